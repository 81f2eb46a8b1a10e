"""Longer, or shorter, texts are paid whatever they say.

What it is
    A reward for length, a grader that finds the answer by chance in long texts, or a limit that only short ones
    meet.
How it shows
    Inside the same groups length goes with the reward, lengths move that way, and a true score does not follow. In a
    log the mean reward changes from row to row with the mean length and hardly else (correlation above 0.9).
What it does to the gradient
    It moves the length itself: every token at the end is credited with the reward of the whole.
What to do
    Take length out of the reward, or cap what it adds; grade the final answer alone.
What decides
    The grader on right and wrong answers, each padded or cut to the same length.
Sources
    TRL #2771, a distance paid in place of its opposite: https://github.com/huggingface/trl/issues/2771
    method of this project
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, measured
from grposcope.core.text import number
from grposcope.signs.mismatch import spearman
from grposcope.signs.quantities import LEAST, Quantities
from grposcope.signs.rollouts.claims import texts

WITH = 0.9
"""Correlation of the changes of reward and length from row to row, up to which prompts of other difficulty make it:
among 23 public logs the largest is 0.83."""

READ = (
    "see whether a reward function counts characters or tokens, and with which sign: a distance from the wanted length "
    "is paid as it is where its opposite was meant; where length is what is meant, nothing is wrong; else cap what it "
    "adds"
)
"""What to do where the reward changes with the length alone."""


def _check(quantities: Quantities) -> Finding:
    """Changes of the mean reward from row to row go with those of the mean length: their correlation above WITH, of
    half as many rows, since neighbouring changes share one."""
    reward, length = quantities.require("reward", LEAST), quantities.require("length", LEAST)
    _, a, b = np.intersect1d(reward.steps, length.steps, return_indices=True)
    x, y = np.diff(reward.values[a]), np.diff(length.values[b])
    if np.count_nonzero((x != 0) & (y != 0)) < max(LEAST, 0.8 * len(x)) or not (x.std() > 0 and y.std() > 0):
        return measured(1.0, "reward and length are not logged together on enough rows, or do not vary")
    along, ranked = float(np.corrcoef(x, y)[0, 1]), spearman(x, y)  # ranks know nothing of how large one jump is
    least = min(abs(along), abs(ranked)) if along * ranked > 0 else 0.0
    gap = (math.atanh(min(least, 1 - 1e-9)) - math.atanh(WITH)) * math.sqrt(len(x) / 2 - 3)
    what = "longer" if along > 0 else "shorter"
    because = (
        f"from row to row {quantities.key(reward.name)} changes with {quantities.key(length.name)} (correlation "
        f"{number(along)} over {len(x)} changes): batches of {what} completions are paid more, and little else is"
    )
    evidence = (Sign("correlation of the changes of reward and length", along, limit=f"limit {WITH:g}"),)
    return measured(
        min(1.0, 2 * float(ndtr(-gap))), because, evidence, remedy=READ, grades=("note", "note"),
        effect="length is what is learned",
        explains=("length", "answers shorten"), brief=f"the reward changes with the length ({what} is paid)",
    )  # fmt: skip


FAULT = Fault(
    name="length pays",
    rank=39.2,
    remedy="take length out of the reward or cap what it adds, and go back to the checkpoint before the onset",
    effect="the policy learns what is paid and not what is meant",
    beside="warning",
    gamed=True,
    log=LogTest(
        "length pays",
        _check,
        needs=("reward", "length"),
        statistic="correlation of the changes of mean reward and mean length from row to row",
        threshold=f"{WITH:g}, by the transformation of Fisher over half of the rows",
        where_logged=True,
    ),
    rollouts=(texts.PROOF,),
)
