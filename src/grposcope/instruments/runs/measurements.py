"""The first things to know of a folder without a run: what its last probe, or its comparison of credit, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grposcope.core.run import Run
from grposcope.instruments import has

if TYPE_CHECKING:
    from grposcope.instruments.credit.record import CreditRecord
    from grposcope.instruments.gradient.probe_record import ProbeRecord


def last_probe(run: Run) -> ProbeRecord | None:
    """What was measured last of the gradient of a run; None where there is nothing, or nobody here can read it."""
    if has("gradient"):
        from grposcope.instruments.gradient import probe_record

        return next(reversed(probe_record.of_run(run)), None)
    return None


def last_credit(run: Run) -> CreditRecord | None:
    """What was measured last of the credit of a run; None where there is nothing, or nobody here can read it."""
    if has("credit"):
        from grposcope.instruments.credit import record

        return next(reversed(record.of_run(run)), None)
    return None
