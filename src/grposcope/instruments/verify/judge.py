"""All claims at once: the tests of chance share an error of 5 % (Holm), exact ones need none.

A claim holds only where every test that it names could be made: a reason why one could not makes it "cannot tell".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from grposcope.instruments.verify.claim import Claim, ClaimResult, ClaimTest, NotTestable
from grposcope.instruments.verify.claims import CLAIMS
from grposcope.instruments.verify.evidence import PipelineEvidence
from grposcope.maths.holm import holm

JOINT_ERROR = 0.05
"""Chance that any claim of a sound pipeline is called broken."""


def judge(
    evidence: PipelineEvidence, claims: Sequence[Claim] = CLAIMS, error: float = JOINT_ERROR
) -> tuple[ClaimResult, ...]:
    """What becomes of each claim, in their order; error: of all of them together."""
    found = [tuple(claim.function(evidence)) for claim in claims]
    tests = [test for one in found for test in one if isinstance(test, ClaimTest)]
    adjusted = holm([test.p for test in tests])
    broken = {
        id(test) for test, p in zip(tests, adjusted, strict=True) if test.broken and (math.isnan(test.p) or p <= error)
    }
    return tuple(_result(claim, one, broken) for claim, one in zip(claims, found, strict=True))


def _result(claim: Claim, found: Sequence[ClaimTest | NotTestable], broken: set[int]) -> ClaimResult:
    tests = [one for one in found if isinstance(one, ClaimTest)]
    told = sorted(tests, key=lambda test: id(test) not in broken)
    untested = tuple(one.reason for one in found if isinstance(one, NotTestable))
    wrong = [test for test in told if id(test) in broken]
    if wrong:
        return ClaimResult(claim, "broken", tuple(wrong), untested)
    return ClaimResult(claim, "holds" if tests and not untested else "cannot tell", tuple(told), untested)
