"""What became of the claims while a run trained, as part of what is said of its folder.

What was broken in a batch then is broken, whatever the rollouts that are here now can show: they may be fewer, and
those of other steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grposcope.instruments.verify.claim import ClaimResult, ClaimTest
from grposcope.instruments.verify.evidence import PipelineEvidence
from grposcope.instruments.verify.judge import judge


@dataclass(frozen=True)
class LiveFault:
    """A claim that was broken while the run trained. since: first step; count: of the `batches` that were tested."""

    since: int
    count: int
    batches: int
    fault: str
    evidence: str
    remedy: str

    @property
    def seen(self) -> str:
        """In how many batches, as a clause."""
        batches = f"{self.batches:,} batch{'' if self.batches == 1 else 'es'}"
        return f"broken in {self.count:,} of {batches} that were tested while the run trained, since step {self.since}"


def results(evidence: PipelineEvidence) -> tuple[ClaimResult, ...]:
    """What becomes of each claim, tested now and while the run trained."""
    faults = broken(evidence.live)
    return tuple(_with(one, faults.get(one.claim.name)) for one in judge(evidence))


def broken(looks: Sequence[Mapping[str, Any]]) -> dict[str, LiveFault]:
    """Claim -> its fault, for those that were broken at a look. looks: the rows of claims.jsonl, in order."""
    found: dict[str, LiveFault] = {}
    for look in looks:
        for name, one in look["claims"].items():
            if one["status"] != "broken":
                continue
            fault = LiveFault(int(look["step"]), 0, len(looks), one["fault"], one["evidence"], one["remedy"])
            before = found.setdefault(name, fault)
            found[name] = replace(before, count=before.count + 1)
    return found


def _with(result: ClaimResult, fault: LiveFault | None) -> ClaimResult:
    """What became of a claim, broken if it was while the run trained."""
    if fault is None:
        return result
    now = result.told if result.status == "broken" else ()
    same = next((test for test in now if test.fault == fault.fault), None)
    evidence = f"{(same.evidence if same else fault.evidence).rstrip('.')}; {fault.seen}"
    if same is not None:
        since = fault.since if same.since is None else min(fault.since, same.since)
        told = tuple(replace(test, evidence=evidence, since=since) if test is same else test for test in now)
    else:
        told = (*now, ClaimTest(fault.fault, True, evidence, "", "", fault.remedy, since=fault.since))
    return ClaimResult(result.claim, "broken", told, result.untested)
