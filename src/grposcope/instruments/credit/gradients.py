"""Gradients of every prompt's group under many credits at once, as short vectors that keep their inner products.

The gradient Σ_i Σ_t A_{i,t} ∇log π is linear in the credit, so of S credits of a group only as many backward passes are
made as there are linearly independent ones: credits that differ by a factor, or by a combination of others, cost
nothing. All passes of a prompt share one forward pass.

A gradient of D entries is kept as WIDTH numbers: entries get random signs, fixed by the name of their parameter, and
are added up at distance WIDTH. Inner products are then unbiased, with a standard error of at most √(2/WIDTH) of the
product of the norms where no bin is dominated by a few entries (the count sketch of Charikar, Chen and Farach-Colton
2002, with a fixed hash). Models of up to WIDTH entries are kept exactly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.logprobs import token_logprobs

WIDTH = 65_521
"""Numbers that a gradient is kept as; prime, so that no column of a matrix falls into one bin."""

INDEPENDENT = 1e-6
"""Singular value of a group's credits, relative to the largest, below which a direction counts as dependent."""


class Sketch:
    """Random signs of every trainable parameter, and the sum of its signed entries at distance `width`."""

    def __init__(self, parameters: Mapping[str, Tensor], width: int = WIDTH):
        entries = sum(p.numel() for p in parameters.values())
        self.width = min(width, entries)
        self._start: dict[str, int] = {}
        self._signs: dict[str, Tensor] = {}
        start = 0
        for name, parameter in parameters.items():
            self._start[name] = start % self.width
            if entries > width:
                self._signs[name] = _signs(name, parameter)
            start += parameter.numel()

    def add(self, name: str, gradient: Tensor, to: Float[Tensor, " K"]) -> None:
        """Add a parameter's gradient to a kept vector."""
        flat = gradient.detach().reshape(-1).float()
        if name in self._signs:
            flat = flat * self._signs[name]
        start = self._start[name]
        first = flat[: self.width - start]
        to[start : start + len(first)] += first
        rest = flat[len(first) :]
        whole = len(rest) // self.width * self.width
        to += rest[:whole].reshape(-1, self.width).sum(0)
        to[: len(rest) - whole] += rest[whole:]


def of_groups(
    policy: Policy,
    rollouts: RolloutBatch,
    credits: Float[Tensor, "V B T"],
    temperature: float = 1.0,
    sketch: Sketch | None = None,
    progress: Callable[[], object] = lambda: None,
) -> Float[Tensor, "V P K"]:
    """(1/G) Σ_i Σ_t A_{i,t} ∇log π of every prompt under each of V credits (V, B, T), as kept vectors.

    progress: called once per prompt. UserError where a gradient is not finite.
    """
    prompts, group = rollouts.groups
    trained = trainable(policy)
    sketch = sketch or Sketch(trained)
    gradients = torch.zeros(len(credits), prompts, sketch.width)
    for p in range(prompts):
        rows = torch.arange(p * group, (p + 1) * group, device=rollouts.mask.device)
        mask = rollouts.mask[rows]
        live = credits[:, rows.to(credits.device)][:, mask.to(credits.device)]  # (V, tokens of the group)
        live = live.double().cpu() / group  # where the kept vectors are
        basis, parts = _independent(live)
        if len(basis):
            vectors = _backward(policy, rollouts, rows, basis, temperature, trained, sketch)
            gradients[:, p] = (parts @ vectors.double()).float()
        progress()
    if not bool(gradients.isfinite().all()):
        raise UserError("a gradient is not finite; load the model in float32, or look at the checkpoint for NaN")
    return gradients


def _independent(credits: Float[Tensor, "V N"]) -> tuple[Float[Tensor, "R N"], Float[Tensor, "V R"]]:
    """Orthonormal rows that span the credits, and the credits' coordinates: `parts @ basis` are the credits again."""
    mixing, sizes, right = torch.linalg.svd(credits, full_matrices=False)
    independent = (
        sizes > INDEPENDENT * sizes[0] if len(sizes) and float(sizes[0]) > 0 else torch.zeros_like(sizes).bool()
    )
    return right[independent], mixing[:, independent] * sizes[independent]


def trainable(policy: Policy) -> dict[str, Tensor]:
    """Parameters with a gradient, by name."""
    return {name: p for name, p in policy.model.named_parameters() if p.requires_grad}


def _backward(
    policy: Policy,
    rollouts: RolloutBatch,
    rows: Tensor,
    basis: Tensor,
    temperature: float,
    trained: Mapping[str, Tensor],
    sketch: Sketch,
) -> Tensor:
    """Kept vectors (R, K) of Σ w ∇log π for each row of weights (R, N) on the tokens of some rollouts."""
    mask = rollouts.mask[rows]
    logp, _ = token_logprobs(policy.model, rollouts, rows, temperature)
    inside = logp[mask[:, : logp.shape[1]]]
    found = torch.zeros(len(basis), sketch.width)
    names, leaves = list(trained), list(trained.values())
    for i, weights in enumerate(basis):
        total = (inside * weights.to(inside)).sum()
        gradients = torch.autograd.grad(total, leaves, retain_graph=i < len(basis) - 1, allow_unused=True)
        for name, gradient in zip(names, gradients, strict=True):
            if gradient is not None:
                sketch.add(name, gradient.cpu(), found[i])
    return found


def _signs(name: str, parameter: Tensor) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
    drawn = torch.randint(0, 2, (parameter.numel(),), generator=torch.Generator().manual_seed(seed), dtype=torch.int8)
    return drawn.mul_(2).sub_(1)
