"""What became of a run: whether it learned and held it, from one outcome, before any rule is asked.

Method of this project; no publication. The outcome is the held-out score where there is one up to the end of the run,
and else the training reward. Three levels of it are compared: the first part, the last part, and the best of the parts
in between. Levels of the training reward are those of its mean curve (`maths.timeseries.change`), with an error that
allows for wandering; levels of evaluations are means of evaluations, with the error that the log gives them or that
their neighbours show, since an evaluation says where the run was and not where it was drawn to.

    learned   the end is above the beginning, and not below the best part by LOST of what was gained
    solved    it did not rise, but ended in the upper part of its range, SOLVED
    stalled   it rose, stands still since the middle of the run, and gained at most HALF of what there was to gain
    lost      it rose, and lost at least the share LOST of it again
    fell      the end is below the beginning or below an earlier level, and nothing was gained before
    flat      it did not change by as much as a tenth of its range

Where none of these can be shown the fate is "cannot tell". The tests are those of `outcome_tests`, their limits those
of `thresholds`. `state` is what the table of words (`words`) asks for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from grposcope.core.estimate import Estimate
from grposcope.core.finding import Interval
from grposcope.core.metrics import VARIANTS

Fate = Literal["learned", "solved", "stalled", "lost", "fell", "flat", "cannot tell"]

Direction = Literal["up", "down", "none", "unknown"]
"""Where a run went: up or down beyond chance, none where it did not change by much, unknown where it cannot be told."""

Doubt = Literal["", "chance", "wandering", "lost"]
"""Why it cannot be told: chance explains the change, or slow wandering does, or it may have lost what it had gained."""


State = Literal["up", "small", "stalled", "top", "proxy", "hump", "lost", "down", "level", "undecided"]
"""What an outcome is to the table of words; `words.MEANING` says what each means."""

NOTHING = Estimate(math.nan, math.nan, 0)
"""A level that is not known."""


def direction(fate: Fate) -> Direction:
    """Where a run of this fate went in the end; one that lost what it had gained went down."""
    went: dict[Fate, Direction] = {
        "learned": "up",
        "stalled": "up",
        "lost": "down",
        "fell": "down",
        "cannot tell": "unknown",
    }
    return went.get(fate, "none")


@dataclass(frozen=True)
class Outcome:
    """What became of a run, and the levels that say so.

    name: the metric; heldout: whether it is an evaluation. start, end, best: levels of the first, last and best part,
    with the standard error of each. best_step: the middle of the best part. still: whether it stands still in its
    second half. first, last: steps of the first and last value. before: the level that the end is compared with: of a
    fall the best, unless the first evaluation was higher; else the start. change: the end less that. doubt: why the
    fate is "cannot tell". sampled: whether the noise of drawing rollouts is known. missing: what is not logged, or on
    too few rows, where nothing could be tested, as a clause. rose: the end is above the start, by however little.
    no_gain: no gain was shown, where one should be seen by now. plain: the eye sees plainly that it fell. sudden: the
    metric fell at once and for good; p_sudden: p-value of such a fall within the last evaluations. fall: since when it
    has fallen, None where that cannot be dated; high: step of the last evaluation before it. proxy: the reward
    rose, and right answers beside it did not; answers: the column of those, and its first and last level. small: a gain
    that is certain, but little of the range. above: what was lost is less than half of the gain, and the end is above
    the start. sum_of_parts: the reward is a sum of several parts whose range is not logged, only taken to be [0, 1].
    dip: the steps in which it was far below those around them, and which are left out here. task: that of several in
    turn whose outcome this is, empty where the rows are of one.
    """

    fate: Fate
    name: str = ""
    heldout: bool = False
    start: Estimate = NOTHING
    end: Estimate = NOTHING
    best: Estimate = NOTHING
    best_step: int = 0
    still: bool = False
    first: int = 0
    last: int = 0
    before: Estimate = NOTHING
    change: Estimate = NOTHING
    doubt: Doubt = ""
    sampled: bool = False
    missing: str = ""
    rose: bool = False
    no_gain: bool = False
    plain: bool = False
    sudden: bool = False
    p_sudden: float = 1.0
    fall: Interval | None = None
    high: int | None = None
    proxy: bool = False
    answers: tuple[str, Estimate, Estimate] = ("", NOTHING, NOTHING)
    small: bool = False
    above: bool = False
    sum_of_parts: bool = False
    dip: Interval | None = None
    task: str = ""

    @property
    def state(self) -> State:
        """What it is to the table of words."""
        states: dict[Fate, State] = {"learned": "up", "stalled": "stalled", "solved": "top", "lost": "lost"}
        if self.fate == "lost" and self.above:
            return "hump"
        if self.fate == "fell":
            return "lost" if self.plain else "down"
        if self.proxy:
            return "proxy"
        if self.fate in states:
            return "small" if self.small else states[self.fate]
        return "level" if self.fate == "flat" or self.no_gain else "undecided"

    @property
    def direction(self) -> Direction:
        """Where the run went."""
        return direction(self.fate)

    @property
    def known(self) -> bool:
        """Whether there are levels to speak of, on enough rows to test them."""
        return bool(self.name) and math.isfinite(self.end.value) and not self.missing

    @property
    def well(self) -> bool:
        """Whether the run learned, or had nothing left to learn, and held it."""
        return self.fate in ("learned", "solved") and not self.proxy

    @property
    def by_heldout(self) -> bool:
        """Whether a held-out score shows that the run learned and held it, so that the reward need not show it."""
        return self.well and self.heldout

    @property
    def lost(self) -> bool:
        """Whether it fell, by a quarter of what was gained or by what the eye sees plainly."""
        return self.state == "lost"

    @property
    def by_answers(self) -> bool:
        """Whether right answers on the rows of training say it, and neither the reward nor a held-out score."""
        return bool(self.name) and not self.heldout and self.name not in VARIANTS["reward"]

    @property
    def gain(self) -> float:
        """The best level less the first."""
        return self.best.value - self.start.value
