"""Which of the trainer's weights the sampler has: two sets of weights, tensor by tensor.

A sampler may hold merged adapters, and in another number format. A tensor has arrived where it equals the trainer's bit
by bit, or as the trainer's rounded to the sampler's format, or, of merged adapters, where it is nearer to the trainer's
than a hundredth of what training moved. Only safetensors are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.policies import Policy
from grposcope.signs.rollouts.module_match import KINDS, ModuleMatch

NEAR = 0.01
"""Distance from the trainer's tensor, in units of what training moved, that rounding and merging may leave."""

_PATTERNS = (
    ("embedding", r"embed|wte|wpe"),
    ("head", r"lm_head|embed_out|output_projection"),
    ("attention", r"attn|attention"),
    ("mlp", r"mlp|feed_forward|ffn|experts"),
    ("norm", r"norm|ln_"),
)


def _kind_of(name: str) -> str:
    """The kind of module, of KINDS, that a tensor of this name belongs to."""
    if re.search(r"norm|ln_", name):
        return "norm"
    return next((kind for kind, pattern in _PATTERNS if re.search(pattern, name)), "other")


def weights_of(policy: Policy) -> dict[str, Tensor]:
    """The tensors of a policy by their plain names, adapters merged into what they adapt; tied ones once."""
    model: Any = policy.model
    modules, seen = {}, set()
    for name, tensor in model.state_dict().items():
        if "lora_" in name or tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        modules[name.replace(".base_layer.", ".")] = tensor.detach()
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight") and hasattr(module, "active_adapters"):
            delta = sum(module.get_delta_weight(adapter) for adapter in module.active_adapters)
            own = f"{name}.weight"
            modules[own] = modules[own] + delta.detach().to(modules[own])
    return modules


def compare(
    trainer: Mapping[str, Tensor], sampler: Mapping[str, Tensor], earlier: Mapping[str, Tensor] | None = None
) -> tuple[ModuleMatch, ...]:
    """The sampler's tensors against the trainer's by kind, those of KINDS that there are.

    earlier: the weights before training, where known. UserError where no tensor has a name and a shape in common.
    """
    common = [name for name in trainer if name in sampler and trainer[name].shape == sampler[name].shape]
    if not common:
        raise UserError(
            "the sampler's weights and the trainer's have no tensor in common, so they are of different architectures; "
            "give two checkpoints of one model"
        )
    differences = []
    for kind in KINDS:
        names = [name for name in trainer if _kind_of(name) == kind]
        if not names:
            continue
        here = [name for name in names if name in set(common)]
        before = {} if earlier is None else earlier
        arrived = {name: _arrived(trainer[name], sampler[name], before.get(name)) for name in here}
        wrong = [name for name in here if not arrived[name]]
        differences.append(
            ModuleMatch(
                kind=kind,
                tensors=len(here),
                equal=len(here) - len(wrong),
                earlier=sum(name in before and _same(before[name], sampler[name]) for name in wrong),
                absent=len(names) - len(here),
                moved=sum(
                    name in before and not torch.equal(before[name].float(), trainer[name].float()) for name in here
                ),
                largest=max((float((trainer[n].float() - sampler[n].float()).abs().max()) for n in wrong), default=0.0),
                first=next(iter(wrong), ""),
            )
        )
    return tuple(differences)


def _same(trainer: Tensor, sampler: Tensor) -> bool:
    """Whether the sampler's tensor is the trainer's in the sampler's number format, or in the coarser of the two."""
    narrow = min(trainer.dtype, sampler.dtype, key=lambda kind: torch.finfo(kind).bits)
    return torch.equal(trainer, sampler) or torch.equal(trainer.to(narrow), sampler.to(narrow))


def _arrived(trainer: Tensor, sampler: Tensor, earlier: Tensor | None) -> bool:
    if _same(trainer, sampler):
        return True
    if earlier is None or earlier.shape != trainer.shape or torch.equal(earlier.float(), trainer.float()):
        return False
    moved = (trainer.float() - earlier.float()).norm()
    return bool((sampler.float() - trainer.float()).norm() <= NEAR * moved)
