"""All claims of a pipeline, weighed together: the tests of chance share an error of 5 % (Holm), exact ones need none.

A claim is broken if one of its faults is present. It holds only where every test that it names could be made and none
is near its limit: a reason why one could not makes it "cannot tell".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from grposcope.core.fault import Proof
from grposcope.core.finding import STATUSES, Finding
from grposcope.faults import catalogue, pages
from grposcope.faults.judge import LEVEL, grade
from grposcope.maths.holm import holm
from grposcope.signs import run_outcome
from grposcope.signs.outcome import Outcome
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import was_tested

ClaimStatus = Literal["broken", "holds", "cannot tell"]

Claims = Mapping[Proof, tuple[Finding, ...]]
"""Claim -> what was found of its faults, those that are present first."""


def prove(evidence: PipelineEvidence, proofs: Sequence[Proof] | None = None, level: float = LEVEL) -> Claims:
    """What is found of the faults of each claim, of all of the catalogue by default; claims about what no rollout has
    are left out.

    level: chance of any present one on rollouts of a pipeline without faults. Rollouts may hold numbers whose squares
    are beyond float.
    """
    asked = catalogue.proofs() if proofs is None else tuple(proofs)
    with np.errstate(over="ignore", invalid="ignore"):
        results = [(proof, finding) for proof in asked for finding in proof.check(evidence)]
    adjusted = holm([finding.p for _, finding in results])
    outcome = Outcome("cannot tell") if evidence.run is None else run_outcome.of_run(evidence.run)
    claims: dict[Proof, list[Finding]] = {proof: [] for proof in asked}
    for (proof, finding), p in zip(results, adjusted, strict=True):
        claims[proof].append(_weighed(replace(finding, adjusted=p), level, outcome))
    return causes_first(
        {proof: _in_order(claims_of) for proof, claims_of in claims.items() if claims_of or not proof.where_there}
    )


def causes_first(claims: Mapping[Proof, tuple[Finding, ...]]) -> Claims:
    """The claims in their order, but one whose first fault is explained by another claim's stands behind that one."""
    shown = {proof: [finding for finding in finding if finding.present] for proof, finding in claims.items()}
    causes = [proof for proof, findings in shown.items() if findings and findings[0].explains]
    explained = {name for proof in causes for name in shown[proof][0].explains}
    behind = [
        proof
        for proof, findings in shown.items()
        if findings and proof not in causes and findings[0].fault in explained
    ]
    last = max((index for index, proof in enumerate(claims) if proof in causes), default=-1)
    before = [proof for proof in list(claims)[: last + 1] if proof not in behind]
    return {proof: claims[proof] for proof in dict.fromkeys([*before, *behind, *claims])}


def _weighed(finding: Finding, level: float, outcome: Outcome) -> Finding:
    """A finding with its status, and with the grade and source of its fault where it is present."""
    if finding.status == "possible" and finding.adjusted <= level:
        finding = replace(finding, status="present")
    if not finding.present:
        return finding
    fault = catalogue.faults()[finding.fault]
    return replace(
        finding, grade=finding.grade or grade(fault, finding, outcome), effect=finding.effect or fault.effect,
        remedy=finding.remedy or fault.remedy, decides=finding.decides or pages.page(fault).decides,
        source=pages.page(fault).source,
    )  # fmt: skip


def _in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings of one claim by their status, else in their order."""
    return tuple(sorted(findings, key=lambda finding: STATUSES.index(finding.status)))


def claim_status(findings: Sequence[Finding]) -> ClaimStatus:
    """What became of a claim, from the findings of all of its faults."""
    if any(finding.present for finding in findings):
        return "broken"
    return "holds" if findings and all(finding.status == "excluded" for finding in findings) else "cannot tell"


def in_part(findings: Sequence[Finding]) -> bool:
    """Whether some tests of a claim could be made and none is broken, but it cannot be told whether it holds."""
    return claim_status(findings) == "cannot tell" and any(map(was_tested, findings))


def reasons(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Why tests that a claim names could not be made."""
    return tuple(finding.because for finding in findings if not was_tested(finding))
