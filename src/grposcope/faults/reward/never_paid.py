"""One reward function returns 0 in every row.

What it is
    It never accepts an answer, because it is broken or the task is too hard; or it is a penalty that nothing
    incurs.
How it shows
    A component of the reward is exactly 0 in every row.
What it does to the gradient
    It has no part in it; its weight is wasted.
What to do
    Run the function by hand on a right answer. If that is paid, use easier prompts or partial credit.
What decides
    The reward of a right answer, given by hand.
Sources
    method of this project
"""

from __future__ import annotations

import re

from grposcope.core.fault import OWN_METHOD, Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.text import listed, visible
from grposcope.faults.checks.effective_weights import CHECK
from grposcope.signs.heldout import pays_for_answers
from grposcope.signs.quantities import LEAST, SHORT, Quantities

_PENALTY = re.compile(r"penal|overlong|repet|length|cost|kl", re.I)
"""Names of components that are best at 0."""


def check(quantities: Quantities) -> Finding:
    """Components that are exactly 0 in SHORT rows or more, and in every row that has them."""
    parts = quantities.components()
    if not parts:
        return cannot_tell(quantities.absent_components(), "components")
    zero = {name: series for name, series in parts.items() if not series.values.any()}
    spreads = quantities.components("component_std")
    zero = {name: one for name, one in zero.items() if name not in spreads or not spreads[name].values.any()}
    if not zero or len(zero) == len(parts):
        which = "all components" if zero else "no component"
        return fact(False, f"{which} of the reward {'are' if zero else 'is'} 0 in every row")
    answers = [name for name in zero if pays_for_answers(name)]
    named = [visible(name, 40) for name in answers or zero]
    rows = len(next(iter(zero.values())))
    because = f"{listed(named)} {'is' if len(named) == 1 else 'are'} 0 in all {rows} rows"
    evidence = tuple(Sign(f"{name}, every row", 0.0, 0.0, column=series.name) for name, series in zero.items())
    brief = f"{visible(named[0], 34)} is 0 in all {rows} steps"
    if not answers and (rows < LEAST or all(_PENALTY.search(name) for name in zero)):
        return fact(True, because, evidence, grades=("note", "note"), brief=brief)
    return fact(True, because, evidence, grades=("warning" if answers else "note", "failing"), brief=brief)


FAULT = Fault(
    name="never paid",
    rank=120,
    remedy="run this reward function by hand on a right answer and check that it is not 0; if it is not, "
    "use easier prompts or partial credit",
    source=OWN_METHOD,
    effect="unless it is a penalty, the policy learns nothing from it",
    log=LogTest(
        "never paid",
        check,
        needs=("components",),
        statistic="components of the reward that are exactly 0 in every row",
        threshold=f"every row of at least {SHORT} rows; for components that do not reward answers, of at least {LEAST}",
    ),
    settings=CHECK,
)
