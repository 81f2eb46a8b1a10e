"""States of the texts that are worth a word whatever is paid: one text, empty, repetition, other scripts, gibberish.

Each is a column (N,) whose rise over the steps is tested with all features; the levels from which it is told are
conventions: they were chosen on trainings that have them and on honest ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from grposcope.core.rollouts import Floats
from grposcope.maths.passage import Passage

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
