"""States of the texts that are worth a word whatever is paid: one text, empty, repetition, other scripts, gibberish.

Each is a column (N,) whose rise over the steps is tested with all features; the levels from which it is told are
conventions: they were chosen on trainings that have them and on honest ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grposcope.core.rollouts import Floats
from grposcope.maths.group_steps import StepChanges
from grposcope.maths.passage import Passage
from grposcope.maths.within_groups import Singles, summing
from grposcope.signs.texts import habits
from grposcope.signs.texts.familiarity import early_rows
from grposcope.signs.texts.features import TextFeatures
from grposcope.signs.texts.sample import TextSample

ONE_TEXT, ONE_ANSWER, EMPTY, UNLIKE, REPEATS, SCRIPTS, CUT = (
    "one text", "one answer", "empty", "unlike the early texts", "repeats itself", "other scripts", "cut off",
)  # fmt: skip

LEAST = {
    ONE_TEXT: (0.25, 0.15), ONE_ANSWER: (0.5, 0.25), EMPTY: (0.1, 0.05), UNLIKE: (0.5, 0.3), REPEATS: (0.25, 0.2),
    SCRIPTS: (0.1, 0.08), CUT: (0.5, 0.3),
}  # fmt: skip
"""State -> its least late share, and its least rise."""

NO_PROMPT = 0.5
"""Share of the early dependence on the prompt below which the late texts ignore it; the early one is at least 0.1."""


@dataclass(frozen=True)
class TextState:
    """A state of the texts.

    name: of LEAST. column (N,): the share, or 1 for texts that are in it. early, late: means in the first and last
    tenth of the steps. paid, other: mean reward of texts in it and of the others, NaN for none. p: of its change.
    since: its onset.
    """

    name: str
    column: Floats
    early: float
    late: float
    paid: float
    other: float
    p: float
    since: Passage


@dataclass(frozen=True)
class PromptDependence:
    """How much of what is written depends on the prompt, by step (S,): 1 all, 0 nothing; NaN where it cannot be told.

    1 − (1 − S_w)/(1 − S_b), with S_w the mean cosine of the presence of words over pairs of one group and S_b over
    pairs of different groups of the step. early, late: means of the first and last tenth of the steps.
    """

    steps: Floats
    values: Floats
    early: float
    late: float

    @property
    def lost(self) -> bool:
        """Whether the late texts ignore the prompt and the early ones did not."""
        return self.early > 0.1 and self.late < NO_PROMPT * self.early


def columns(sample: TextSample, features: TextFeatures) -> dict[str, Floats]:
    """The column of each state that the texts may be in."""
    facts = features.facts
    made = {ONE_TEXT: facts["same text"], ONE_ANSWER: facts["same answer"], EMPTY: facts["empty"]}
    early = early_rows(sample.step)
    bits = facts["bits"]
    made[UNLIKE] = (bits > np.quantile(bits[early], 0.95)).astype(np.float64)
    runs = (facts["run"] >= 0.5 * facts["characters"]) & (facts["characters"] >= 8)
    long = facts["characters"] > 60
    again = np.zeros(len(sample), bool)
    if (early & long).sum() > 50:
        packed, pairs = (0.7 * np.quantile(facts[name][early & long], 0.1) for name in ("packed", "distinct"))
        again = long & ((facts["packed"] < packed) | (facts["distinct"] < min(pairs, 0.35)) & (facts["tokens"] >= 30))
    made[REPEATS] = (runs | again).astype(np.float64)
    if _latin(sample):
        made[SCRIPTS] = (facts["other scripts"] > 0.005).astype(np.float64)
    if sample.truncated is not None:
        made[CUT] = sample.truncated.astype(np.float64)
    return made


def _latin(sample: TextSample) -> bool:
    """Whether the prompts have hardly a letter of another script."""
    shown = "".join(prompt[-500:] for prompt in sample.prompts[:: max(1, len(sample) // 300)])
    wide = sum("\u02ff" < sign < "\u2000" or "\u2dff" < sign < "\U00010000" for sign in shown)
    return wide < 0.01 * max(len(shown), 1)


def found(sample: TextSample, made: dict[str, Floats], changes: StepChanges, offset: int,
          rng: np.random.Generator, level: float = habits.LEVEL) -> tuple[TextState, ...]:  # fmt: skip
    """The states that the late texts are in and the early ones were not. offset: of their columns in `changes`.

    level: of the test of their change.
    """
    states = []
    for index, (name, column) in enumerate(made.items()):
        first, last = habits.tenths(sample)
        early, late, p = float(column[first].mean()), float(column[last].mean()), float(changes.p[offset + index])
        least, rise = LEAST[name]
        if late > least and late > early + rise and p <= level:
            inside = column > 0.5 * max(float(column.max()), 1e-12)
            own, other = (sample.reward[rows & np.isfinite(sample.reward)] for rows in (inside, ~inside))
            states.append(TextState(name, column, early, late, habits.mean(own), habits.mean(other), p,
                                    habits.onset(sample, column, rng)))  # fmt: skip
    return tuple(states)


def dependence(words: Singles, sample: TextSample) -> PromptDependence:
    """How much of what is written depends on the prompt, from the presence of words (N, V)."""
    order = np.lexsort((sample.group, sample.step))
    length = np.sqrt(words.sum(1, dtype=np.float64))
    scaled = (words / np.maximum(length, 1e-9)[:, None].astype(np.float32))[order]
    blank = (length == 0)[order].astype(np.float64)
    starts = np.flatnonzero(np.diff(sample.group[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(order)))
    sums = (summing(starts, len(order)) @ scaled).astype(np.float64)
    blanks = np.add.reduceat(blank, starts)
    own = (sums**2).sum(1) + blanks**2  # texts without any word are alike
    of_step = sample.step[order[starts]]
    steps = np.unique(of_step)
    values = np.array([_depends(sums[of_step == step], own[of_step == step], sizes[of_step == step],
                                blanks[of_step == step]) for step in steps])  # fmt: skip
    tenth = max(1, len(steps) // 10)
    early, late = (values[rows][np.isfinite(values[rows])] for rows in (slice(tenth), slice(-tenth, None)))
    return PromptDependence(steps.astype(np.float64), values, habits.mean(early), habits.mean(late))


def _depends(sums: Floats, own: Floats, sizes: Floats, blanks: Floats) -> float:
    inside, between = float((sizes * (sizes - 1)).sum()), float(sizes.sum() ** 2 - (sizes**2).sum())
    if inside <= 0 or between <= 0:
        return np.nan
    total = sums.sum(0)
    same = float((own - sizes).sum()) / inside
    other = float(total @ total + blanks.sum() ** 2 - own.sum()) / between
    return float(1 - (1 - same) / max(1 - other, 0.02)) if 1 - other > 0.02 else 0.0
