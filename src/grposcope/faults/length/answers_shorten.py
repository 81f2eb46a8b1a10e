"""Completions shorten by more than two fifths, to no stub.

Asked as
    Why do completions get shorter and shorter?
What it is
    Something pays for being short: completions cut at the limit earn nothing, so that what remains is short; a loss
    that divides by each completion's own length gives short right answers a larger step; or the prompts need no more.
How it shows
    The mean length of the last fifth is below three fifths of the first. Whether the limit does it: the share of cut
    completions falls with it.
What it does to the gradient
    Divided by its own length, a right answer of half the length has twice the weight per token.
What to do
    Nothing where held-out accuracy holds. Else raise the limit, where many were cut; or use a loss that does not divide
    by each completion's length (Dr. GRPO, DAPO).
What decides
    grposcope texts RUN with the rollouts: whether length is paid within groups.
Sources
    arXiv:2503.20783 (Dr. GRPO), the length bias of the loss
    EasyR1 #40: https://github.com/hiyouga/EasyR1/issues/40
    VLM-R1 #280: https://github.com/om-ai-lab/VLM-R1/issues/280
"""

from __future__ import annotations

import math
from functools import partial

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, cannot_tell, measured
from grposcope.core.text import apart_shares, number
from grposcope.faults.length.length import SHORTER
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs import onset
from grposcope.signs.counted_as_cut import ended
from grposcope.signs.quantities import LEAST, SHORT, Quantities
from grposcope.signs.tests import early_level, late_level

SHORT_BY = 0.6
"""Late over early length below which answers have shortened."""

MANY_CUT = 0.1
"""Share of completions cut at first from which the limit may be what shortens them, if it then falls to half."""


def _check(quantities: Quantities) -> Finding:
    """Late lengths below SHORT_BY × the early ones, and above the stub that the fault `length` names."""
    length = quantities.require("length", LEAST)
    if length.logs is None:
        return cannot_tell("lengths that are not positive are no lengths", "length")
    early, late = length.geometric_mean(EARLY), length.geometric_mean(LATE)
    evidence = (early_level(length.name, *early), late_level(length.name, *late, f"limit {SHORT_BY:g} × the first"))
    because = f"completions went from {number(early[0])} to {number(late[0])} tokens"
    if late[0] < SHORTER * early[0]:
        return measured(1.0, because, evidence)
    limit = _by_the_limit(quantities)
    return measured(
        length.logs.change(EARLY, LATE, minus=math.log(SHORT_BY)).p_down,
        because + limit,
        evidence,
        begins=partial(onset.since, length.logs, -1),
        brief=quantities.went(length.name, early[0], late[0], " tokens"),
        remedy=RAISE if limit else "",
    )


def _by_the_limit(quantities: Quantities) -> str:
    """That fewer are cut as they shorten, as a clause; empty where it is not so or not logged."""
    cut = quantities.get("truncated", SHORT)
    if cut is None or cut.values.max() > 1 or ended(quantities) is not None:
        return ""
    first, last = cut.level(EARLY).value, cut.level(LATE).value
    if first < MANY_CUT or last > first / 2:
        return ""
    return f", and those cut at the limit {apart_shares(first, last)}: so it is where what is cut is paid less"


RAISE = (
    "raise the token limit, or mask or drop cut completions (overlong filtering), if answers should be as long as the "
    "first ones"
)

FAULT = Fault(
    name="answers shorten",
    rank=245,
    remedy="nothing, if held-out accuracy holds; else use a loss that does not divide by each completion's length (Dr. "
    "GRPO, DAPO), and see what pays: grposcope texts with the rollouts",
    instead="note",
    log=LogTest(
        "answers shorten",
        _check,
        needs=("length",),
        statistic="mean log length, late − early − log ρ",
        threshold=f"{SHORT_BY:g} × the first length or less",
    ),
)
