"""What a test of a claim found: the fault is there, or what held and how large a fault would have been seen."""

from __future__ import annotations

import math
from typing import Any

from grposcope.core.finding import Finding, at, fact

LEVEL = 0.05
"""p from which on a test of chance is no sign of its fault, by itself."""


def exact(fault: str, broken: bool, evidence: str, held: str, onset: int | None = None, **more: Any) -> Finding:
    """The finding of a test without chance. evidence: what was seen if it is broken; held: if not, a sentence.

    onset: first step with the fault. more: further fields of a finding that is present, such as effect and remedy.
    """
    if broken:
        return fact(True, evidence, onset=onset, fault=fault, **more)
    return fact(False, held, fault=fault)


def by_chance(
    fault: str, p: float, broken: bool, evidence: str, held: str, onset: int | None = None, **more: Any
) -> Finding:
    """The finding of a test of chance: possible where it would be shown by itself, which a judge weighs, else excluded.

    p: of what was seen if the claim held. broken: whether what was seen is the fault; the others as in `exact`.
    """
    if broken and not math.isnan(p) and p <= LEVEL:
        return Finding(fault, "possible", because=evidence, since=at(onset), p=p, **more)
    return Finding(fault, because=held, p=p)


def was_tested(finding: Finding) -> bool:
    """Whether a finding is of a test that could be made."""
    return finding.status != "cannot tell"
