"""What becomes of the claims of a pipeline, by name, with its findings sorted for assertions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grposcope.core.finding import Finding
from grposcope.faults.judge_rollouts import claim_status, prove, reasons
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import was_tested


@dataclass(frozen=True)
class Judged:
    """told: findings of the tests that were made, where it is broken those that are present. untested: reasons."""

    status: str
    told: tuple[Finding, ...]
    untested: tuple[str, ...]

    @property
    def in_part(self) -> bool:
        """Whether it was tested in part and nothing is broken."""
        return self.status == "cannot tell" and bool(self.told)


def of(evidence: PipelineEvidence, **more: Any) -> dict[str, Judged]:
    """Claim -> what becomes of it."""
    found = {}
    for proof, findings in prove(evidence, **more).items():
        status = claim_status(findings)
        told = tuple(one for one in findings if (one.present if status == "broken" else was_tested(one)))
        found[proof.name] = Judged(status, told, reasons(findings))
    return found
