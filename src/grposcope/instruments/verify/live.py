"""What became of the claims while a run trained, as part of what is said of its folder.

What was broken in a batch then is broken, whatever the rollouts that are here now can show: they may be fewer, and
those of other steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, at, fact, of_document
from grposcope.faults.judge_rollouts import Claims, prove
from grposcope.signs.rollouts.evidence import PipelineEvidence


@dataclass(frozen=True)
class _LiveFinding:
    """What broke a claim while the run trained, as it was first seen. count: of the `batches` that were tested."""

    finding: Finding
    count: int
    batches: int

    @property
    def since(self) -> int:
        """The step at which it was first seen."""
        return self.finding.seen or 0

    @property
    def where(self) -> str:
        """In how many batches, as a clause."""
        batches = f"{self.batches:,} batch{'' if self.batches == 1 else 'es'}"
        return f"broken in {self.count:,} of {batches} that were tested while the run trained, since step {self.since}"


def claims(evidence: PipelineEvidence) -> Claims:
    """What is found of each claim, now and while the run trained."""
    earlier = broken(evidence.live)
    return {proof: _with(findings, earlier, proof) for proof, findings in prove(evidence).items()}


def broken(looks: Sequence[Mapping[str, Any]]) -> dict[str, _LiveFinding]:
    """Claim -> what broke it, for those that were broken at a look. looks: the rows of claims.jsonl, in order."""
    found: dict[str, _LiveFinding] = {}
    for look in looks:
        for name, row in look["claims"].items():
            if row["status"] != "broken":
                continue
            before = found.setdefault(name, _LiveFinding(_finding(row, int(look["step"])), 0, len(looks)))
            found[name] = replace(before, count=before.count + 1)
    return found


def _finding(row: Mapping[str, Any], step: int) -> Finding:
    """The finding of a row of claims.jsonl; rows of earlier versions have its parts, under names of their own."""
    if "finding" in row:
        return of_document(row["finding"], f"claims.jsonl, step {step}")
    return fact(True, row["evidence"], fault=row["fault"], remedy=row["remedy"], seen=step)


def _with(findings: Sequence[Finding], earlier: Mapping[str, _LiveFinding], proof: Proof) -> tuple[Finding, ...]:
    """The findings of a claim with what broke it while the run trained, which is the first of them."""
    if proof.name not in earlier:
        return tuple(findings)
    live = earlier[proof.name]
    names = live.finding.fault, live.finding.brief
    same = next(
        (finding for finding in findings if finding.present and (finding.fault in names or finding.brief in names)),
        None,
    )
    if same is None:
        because = f"{live.finding.because.rstrip('.')}; {live.where}"
        present = [finding for finding in findings if finding.present]
        others = [finding for finding in findings if not finding.present]
        return (*present, replace(live.finding, because=because, since=at(live.since)), *others)
    because = f"{same.because.rstrip('.')}; {live.where}"
    since = live.since if same.onset is None else min(live.since, same.onset)
    whole = replace(same, because=because, since=at(since), seen=live.since)
    return tuple(whole if finding is same else finding for finding in findings)
