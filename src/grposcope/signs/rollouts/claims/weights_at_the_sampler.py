"""Adapters, embeddings and heads arrived: the sampler's weights against the trainer's, by kind of module. Exact."""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Proof
from grposcope.core.finding import Finding, cannot_tell
from grposcope.core.text import listed
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.rollouts.findings import exact
from grposcope.signs.rollouts.module_match import ModuleMatch


def _tests(evidence: PipelineEvidence) -> Iterator[Finding]:
    """One test over all kinds; the evidence names those that did not arrive."""
    if not evidence.arrived:
        yield cannot_tell(
            "The sampler's weights were not given; save them after an update and give both folders, or give several "
            "checkpoints to compare by the tokens of rollouts."
        )
        return
    total, moved = sum(match.tensors for match in evidence.arrived), sum(match.moved for match in evidence.arrived)
    wrong = [match for match in evidence.arrived if match.equal < match.tensors or match.absent]
    if not wrong and not moved:
        yield cannot_tell(f"All {total} tensors of the sampler equal the trainer's, but it is unknown whether training "
                          "moved any; give the weights from before training as well.")  # fmt: skip
        return
    other = bool(wrong) and not any(match.earlier for match in wrong)
    if not other:
        remedy = "Merge or send every trained tensor: these still have their values from before training."
    else:
        remedy = "Export the sampler's weights from the trainer again; compare names and number formats."
    yield exact(
        fault="wrong weights at the sampler" if other else "weights never arrived",
        brief=f"{listed([match.kind for match in wrong])} not arrived",
        broken=bool(wrong),
        evidence="; ".join(_said(match) for match in wrong),
        held=f"All {total} tensors of the sampler equal the trainer's; training moved {moved} of them.",
        effect="The sampler's weights differ from the trainer's, so rollouts are off-policy, like stale ones.",
        remedy=remedy,
    )


def _said(match: ModuleMatch) -> str:
    parts = [
        f"{match.tensors - match.equal} of {match.tensors} {match.kind} tensors of the sampler differ from the "
        "trainer's"
    ]
    if match.earlier:
        parts.append(f"{match.earlier} of them still have their values from before training")
    if match.absent:
        parts.append(f"{match.absent} are absent")
    if match.first:
        parts.append(f"the first is {match.first}, the largest difference {match.largest:.2g}")
    return "; ".join(parts)


PROOF = Proof("arrived", "All trained weights reached the sampler", "the trainer's and the sampler's weights", _tests)
