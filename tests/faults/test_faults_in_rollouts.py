"""Every fault that rollouts show is present where it was put in, and absent where it was not."""

from __future__ import annotations

import pytest
from faulty_rollouts import FAULTY

from grposcope.core.finding import Finding
from grposcope.faults import catalogue
from grposcope.faults.judge_rollouts import Claims, claim_status, prove

FAULTS = {name: fault for name, fault in catalogue.faults().items() if fault.rollouts}


def present(claims: Claims) -> dict[str, Finding]:
    return {finding.fault: finding for findings in claims.values() for finding in findings if finding.present}


def test_every_fault_that_rollouts_show_is_in_the_table() -> None:
    assert FAULTY.keys() == FAULTS.keys()


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_present_where_it_is_and_absent_where_it_is_not(name: str) -> None:
    """Findings name faults that name the claim in turn; one that is present is told in full."""
    fault = catalogue.fault(name)
    claims = prove(FAULTY[name](True))
    found = present({claim: findings for claim, findings in claims.items() if claim in fault.rollouts})[name]
    assert all((found.because, found.effect, found.remedy, found.grade, found.decides, found.source))
    assert not present(prove(FAULTY[name](False), fault.rollouts))
    for proof, findings in claims.items():
        for finding in findings:
            assert finding.status == "cannot tell" or proof in FAULTS[finding.fault].rollouts
        assert (claim_status(findings) == "broken") == any(finding.present for finding in findings)
