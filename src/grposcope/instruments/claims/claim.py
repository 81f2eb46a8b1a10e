"""A statement of a paper, the criterion by which it is judged, and what came out here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

PaperVerdict = Literal["holds", "holds in part", "does not hold", "cannot tell"]

Stated = Literal["theorem", "assumption", "hypothesis", "measurement", "ours", "second-hand"]
"""How a statement stands in its paper: proved, assumed or left open there, measured there, sharpened or read into it by
this project, or known from summaries alone."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Drawing:
    """Points of a chart, joined by series. points: series, x, y, and the standard error of y, 0 where it is exact.

    log: whether both axes are logarithmic.
    """

    x: str
    y: str
    points: Sequence[tuple[str, float, float, float]]
    log: bool = False


@dataclass(frozen=True)
class Derived:
    """What came out: the verdict, the numbers that decide it in a sentence, and on what they were taken."""

    verdict: PaperVerdict
    found: str
    on: str
    drawing: Drawing | None = None


@dataclass(frozen=True)
class PaperClaim:
    """A headline statement.

    name: short, a key. paper: "pg", "u" or "d". says: the statement, in our words. criterion: when it holds, stated
    before anything is computed. exact: whether it is decided by algebra or enumeration, without sampling. script: of
    `experiments/`, which tests it at full scale, empty where there is none. derive: computes it, telling its progress.
    stated: how it stands in the paper.
    """

    name: str
    paper: Literal["pg", "u", "d"]
    says: str
    criterion: str
    exact: bool
    script: str
    derive: Callable[[Tell], Derived]
    stated: Stated = "second-hand"
