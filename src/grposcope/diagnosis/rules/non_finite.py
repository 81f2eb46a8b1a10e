"""Non-finite values: infinities anywhere, and a loss or gradient norm missing from a row that has all the rest."""

from __future__ import annotations

import numpy as np

from grposcope.diagnosis.findings import OWN_METHOD, Evidence, Rule, RuleResult
from grposcope.diagnosis.quantities import Quantities
from grposcope.runs.not_finite import not_finite


def check(quantities: Quantities) -> RuleResult:
    """One value that is not finite is enough."""
    table = quantities.run.table
    bad = [(int(np.flatnonzero(rows)[0]), int(rows.sum()), name) for name, rows in not_finite(table).items()]
    if not bad:
        return RuleResult(1.0, "all values are finite")
    evidence = tuple(
        Evidence(f"values of {name} that are not finite", float(count), column=name) for _, count, name in bad
    )
    what = " and ".join(f"{name} on {count} {'row' if count == 1 else 'rows'}" for _, count, name in bad)
    lasting = any(not np.isfinite(table[name][-1]) for _, _, name in bad)
    return RuleResult(
        0.0, f"values are not finite: {what}", evidence, int(table["step"][min(bad)[0]]),
        beside="failing" if lasting else None,
    )  # fmt: skip


RULE = Rule(
    mode="non-finite",
    needs=(),
    statistic="infinite values; NaN where a value is due",
    threshold="one is enough",
    source=OWN_METHOD,
    advice="lower the learning rate, clip the gradient, check for log(0) and for float16 overflow",
    check=check,
    proof=True,
    beside="warning",
)
