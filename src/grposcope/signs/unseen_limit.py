"""Whether completions are cut at a limit that nothing in the log counts: from their mean, or from the longest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.text import number
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs import run_outcome
from grposcope.signs.quantities import LEAST, SHORT, Quantities

ALIKE = 1e-3
"""Spread of late mean lengths, over their mean, below which all completions have one length."""

SOME = 5
"""Tokens below which answers may all have one length by themselves, such as a letter."""

SHORTER = 0.9
"""Early lengths over the late one, at most, where a limit is reached."""

ROUND = (64, 100)
"""Limits in tokens are multiples of one of these; lengths that one text repeated would have seldom are."""

BAND = 0.05
"""Spread of the longest completions of all batches, over the largest, that is a wall; without one it is wider."""

GREW = 1.5
"""Late over early mean length by which the longest would have grown too."""

COUNTED = 0.02
"""Late share of completions that are counted as cut, above which the limit is seen."""

FOLLOWS = ("length", "reward decline", "constant reward", "starved", "empty steps", "never paid", "dead after a fall")
"""Faults that follow from cut completions."""


@dataclass(frozen=True)
class _Limit:
    """A limit in tokens that completions are cut at, since which step (None: the first), and how it shows."""

    tokens: float
    since: int | None
    because: str
    column: str


def _check(quantities: Quantities) -> Finding:
    """The limit that completions are cut at where the log does not count them."""
    if quantities.get("length", SHORT) is None:
        return cannot_tell(quantities.absence("length", SHORT), "length")
    wall = limit(quantities)
    if wall is None:
        return fact(False, "lengths do not stand at a limit that is not counted")
    evidence = (Sign("limit in tokens", wall.tokens, column=wall.column),)
    brief = f"completions are cut at {number(wall.tokens)} tokens"
    return fact(True, wall.because, evidence, wall.since, explains=FOLLOWS, brief=brief)


def limit(quantities: Quantities) -> _Limit | None:
    """The limit at which completions are cut unseen; None where they are not, or where the log counts them."""
    cut = quantities.get("truncated", SHORT)
    if cut is not None and cut.values[level.rows(len(cut), LATE)].mean() > COUNTED:
        return None
    return _one_length(quantities) or _all_alike(quantities) or _wall(quantities)


def _one_length(quantities: Quantities) -> _Limit | None:
    """All late completions have one length, which they had not at first."""
    length = quantities.get("length")
    if length is None:
        return None
    values = length.values
    late = values[level.rows(len(values), LATE)]
    middle = float(np.median(late))
    grew = values[: len(values) // 4].max() < SHORTER * middle
    if not (grew and np.ptp(late) <= ALIKE * middle and any(round(middle) % step == 0 for step in ROUND)):
        return None
    near = np.abs(values - middle) > 0.05 * middle
    first = int(np.flatnonzero(near)[-1]) + 1
    because = (
        f"{quantities.key(length.name)} stands at {number(middle)} tokens, so that every completion has this length: "
        "they are cut, which the log does not count"
    )
    return _Limit(middle, int(length.steps[min(first, len(values) - 1)]), because, length.name)


def _all_alike(quantities: Quantities) -> _Limit | None:
    """Every completion of every row has one and the same length, and no gain is shown: none ends by itself."""
    length, longest = quantities.get("length"), quantities.get("length_max")
    if length is None or longest is None or len(length) != len(longest):
        return None
    limit = float(longest.values[0])
    if limit < SOME or np.ptp(longest.values) or np.abs(length.values - limit).max() > ALIKE * limit:
        return None
    if run_outcome.of_run(quantities.run).state not in ("level", "undecided"):
        return None
    keys = f"{quantities.key(length.name)} and {quantities.key(longest.name)}"
    because = (
        f"{keys} are {number(limit)} tokens in all {len(length)} rows, so that every completion has this length: they "
        "are cut, which the log does not count"
    )
    return _Limit(limit, None, because, length.name)


def _wall(quantities: Quantities) -> _Limit | None:
    """The longest completion of each batch stays in a narrow band while the mean grows towards it."""
    longest, length = quantities.get("length_max"), quantities.get("length")
    if longest is None or length is None:
        return None
    top = float(longest.values.max())
    early, late = (float(length.values[level.rows(len(length), span)].mean()) for span in (EARLY, LATE))
    still, cut = np.ptp(longest.values) == 0, quantities.get("truncated", SHORT)
    uncounted = cut is not None and len(cut) == len(longest) and not cut.values.any()
    if top - longest.values.min() > BAND * top or (still and not uncounted) or late < GREW * early or late < top / 3:
        return None
    prompt = quantities.column("prompt_length/max")
    beside = ""
    if prompt is not None:
        whole = top + float(prompt.values.max())
        beside = f"; with the longest prompt that is {number(whole)} tokens, as a max_model_len would cut"
    stays = f"between {number(longest.values.min())} and {number(top)} tokens"
    because = (
        f"{quantities.key(longest.name)} stays {f'at {number(top)} tokens' if still else stays} while "
        f"the mean grows from {number(early)} to {number(late)}, so that answers are cut there, which the log does not "
        f"count{beside}"
    )
    return _Limit(top, None, because, longest.name)


TEST = LogTest(
    "unseen truncation",
    _check,
    needs=("length",),
    statistic="spread of late mean lengths; spread of the longest completion of each batch while the mean grows",
    threshold=f"{ALIKE:g} of the late mean, or {BAND:g} of the largest while the mean grows {GREW:g} × over at least "
    f"{LEAST} rows; where fewer than {COUNTED:g} are counted as cut",
)
