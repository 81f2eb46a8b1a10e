"""Adapters, embeddings and heads arrived: the sampler's weights against the trainer's, by kind of module. Exact."""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.text import listed
from grposcope.instruments.verify.claim import Claim, ClaimTest, NotTestable
from grposcope.instruments.verify.evidence import PipelineEvidence
from grposcope.instruments.verify.module_match import ModuleMatch


def tests(evidence: PipelineEvidence) -> Iterator[ClaimTest | NotTestable]:
    """One test over all kinds; the evidence names those that did not arrive."""
    if not evidence.arrived:
        yield NotTestable(
            "The sampler's weights were not given; save them after an update and give both folders, or give several "
            "checkpoints to compare by the tokens of rollouts."
        )
        return
    total, moved = sum(one.tensors for one in evidence.arrived), sum(one.moved for one in evidence.arrived)
    wrong = [one for one in evidence.arrived if one.equal < one.tensors or one.absent]
    if not wrong and not moved:
        yield NotTestable(f"All {total} tensors of the sampler equal the trainer's, but it is unknown whether training "
                          "moved any; give the weights from before training as well.")  # fmt: skip
        return
    if any(one.earlier for one in wrong):
        remedy = "Merge or send every trained tensor: these still have their values from before training."
    else:
        remedy = "Export the sampler's weights from the trainer again; compare names and number formats."
    yield ClaimTest(
        fault=f"{listed([one.kind for one in wrong])} not arrived" if wrong else "weights not arrived",
        broken=bool(wrong),
        evidence="; ".join(_said(one) for one in wrong),
        held=f"All {total} tensors of the sampler equal the trainer's; training moved {moved} of them.",
        effect="The sampler's weights differ from the trainer's, so rollouts are off-policy, like stale ones.",
        remedy=remedy,
    )


def _said(one: ModuleMatch) -> str:
    parts = [f"{one.tensors - one.equal} of {one.tensors} {one.kind} tensors of the sampler differ from the trainer's"]
    if one.earlier:
        parts.append(f"{one.earlier} of them still have their values from before training")
    if one.absent:
        parts.append(f"{one.absent} are absent")
    if one.first:
        parts.append(f"the first is {one.first}, the largest difference {one.largest:.2g}")
    return "; ".join(parts)


CLAIM = Claim("arrived", "All trained weights reached the sampler", "the trainer's and the sampler's weights", tests)
