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
import re

import numpy as np
from scipy.special import ndtr

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, measured
from grposcope.core.text import number
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs.mismatch import spearman
from grposcope.signs.quantities import LEAST, MetricSeries, Quantities
from grposcope.signs.rollouts.claims import texts
from grposcope.signs.tests import any_of

WITH = 0.9
"""Correlation of the changes of reward and length from row to row, up to which prompts of other difficulty make it:
among 23 public logs the largest is 0.83."""

_PENALISES = re.compile(
    r"(?=.*(?:len|long|token))(?=.*(?:penal|punish|cost)).*|.*(?:overlong|too_?long|brevity|concis|shortness).*", re.I
)
"""Names of parts of the reward that are to make answers shorter, or to keep them from being too long."""

_TURN = (
    "print this part for a short and a long answer: the long one has to have less of it; subtract what it counts, or "
    "turn the distance round, and go back to the checkpoint from before answers grew"
)
"""What to do where a part that penalises length pays for it."""

READ = (
    "see whether a reward function counts characters or tokens, and with which sign: a distance from the wanted length "
    "is paid as it is where its opposite was meant; where length is what is meant, nothing is wrong; else cap what it "
    "adds"
)
"""What to do where the reward changes with the length alone."""


def _check(quantities: Quantities) -> Finding:
    """The reward, or a part that by its name penalises length, is paid by the length from row to row."""
    reward, length = quantities.require("reward", LEAST), quantities.require("length", LEAST)
    penalties = [part for name, part in quantities.components().items() if _PENALISES.fullmatch(name)]
    turned = [test for part in penalties if (test := _turned(quantities, part, length)) is not None]
    return any_of([_whole(quantities, reward, length), *turned]) if turned else _whole(quantities, reward, length)


def _turned(quantities: Quantities, part: MetricSeries, length: MetricSeries) -> Finding | None:
    """That a part of the reward whose name says that it penalises length pays longer answers; None if it does not."""
    together = _together(part, length)
    if together is None or together[0] < WITH or _subtracted(quantities, part):
        return None
    along, count, p = together
    went, grew = (
        quantities.went(series.name, series.level(EARLY).value, series.level(LATE).value) for series in (part, length)
    )
    key = quantities.key(part.name)
    because = (
        f"{key} has a name of a penalty for length, and batches of longer completions have more of it (correlation "
        f"{number(along)} over {count} changes from row to row; {went}; {grew}): its sign is wrong, or its distance is"
    )
    evidence = (Sign(f"correlation of the changes of {part.name} and length", along, limit=f"limit {WITH:g}",
                     column=part.name),)  # fmt: skip
    return measured(p, because, evidence, remedy=_TURN, grades=("warning", "warning"), explains=("length",),
                    brief=f"{key} pays longer answers")  # fmt: skip


def _subtracted(quantities: Quantities, part: MetricSeries) -> bool:
    """Whether a part is subtracted in the reward: its weight is negative where the reward is fitted by all parts."""
    names = [f"component/{name}" for name in quantities.components()]
    if "reward" not in quantities.run.table:
        return False
    columns = np.array([quantities.run.table[name] for name in ("reward", *names)])
    changes = np.diff(columns[:, np.isfinite(columns).all(0)])
    weights = np.linalg.lstsq(changes[1:].T, changes[0], rcond=None)[0] if changes.shape[1] else np.zeros(len(names))
    return bool(weights[names.index(part.name)] < 0)


def _together(reward: MetricSeries, length: MetricSeries) -> tuple[float, int, float] | None:
    """(correlation of the changes from row to row, their number, p-value of one above WITH either way); None where
    both are not logged together on enough rows, or do not vary.

    It counts as that of half as many rows, since neighbouring changes share one.
    """
    _, a, b = np.intersect1d(reward.steps, length.steps, return_indices=True)
    x, y = np.diff(reward.values[a]), np.diff(length.values[b])
    if np.count_nonzero((x != 0) & (y != 0)) < max(LEAST, 0.8 * len(x)) or not (x.std() > 0 and y.std() > 0):
        return None
    along, ranked = float(np.corrcoef(x, y)[0, 1]), spearman(x, y)  # ranks know nothing of how large one jump is
    least = min(abs(along), abs(ranked)) if along * ranked > 0 else 0.0
    gap = (math.atanh(min(least, 1 - 1e-9)) - math.atanh(WITH)) * math.sqrt(len(x) / 2 - 3)
    return along, len(x), min(1.0, 2 * float(ndtr(-gap)))


def _whole(quantities: Quantities, reward: MetricSeries, length: MetricSeries) -> Finding:
    """Changes of the mean reward from row to row go with those of the mean length."""
    together = _together(reward, length)
    if together is None:
        return measured(1.0, "reward and length are not logged together on enough rows, or do not vary")
    along, count, p = together
    what = "longer" if along > 0 else "shorter"
    because = (
        f"from row to row {quantities.key(reward.name)} changes with {quantities.key(length.name)} (correlation "
        f"{number(along)} over {count} changes): batches of {what} completions are paid more, and little else is"
    )
    if abs(along) < WITH:
        because = (
            f"the changes of {quantities.key(reward.name)} and of {quantities.key(length.name)} from row to row have a "
            f"correlation of {number(along)} over {count} changes, and prompts of other difficulty make up to {WITH:g}"
        )
    evidence = (Sign("correlation of the changes of reward and length", along, limit=f"limit {WITH:g}"),)
    return measured(
        p, because, evidence, remedy=READ, grades=("note", "note"),
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
        statistic="correlation of the changes of mean reward, or of a part named as a penalty for length, and mean "
        "length from row to row",
        threshold=f"{WITH:g}, by the transformation of Fisher over half of the rows",
        where_logged=True,
    ),
    rollouts=(texts.PROOF,),
)
