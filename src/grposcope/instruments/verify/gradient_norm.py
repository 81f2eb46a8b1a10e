"""The gradient of a step's stated loss, taken again at the checkpoint before it: a plain forward and backward pass.

The weights of the tokens are those of `token_weights` at log-probabilities of the checkpoint in float32; surrogate and
KL term are passed back one by one, so that every combination of the two has its norm from three numbers. Only weights
that the checkpoint trains count: with adapters, theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from grposcope.core.rollouts import Rollout
from grposcope.core.run import Floats
from grposcope.lab.policies import Policy
from grposcope.signs.rollouts import token_weights
from grposcope.signs.rollouts.evidence import GradientEvidence, PipelineEvidence

ROUNDING = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 3e-3}
"""Number format -> nats by which log-probabilities of one policy differ where they are computed twice."""

TOKENS = 4096
"""Tokens of one pass, with those of the prompts."""


def _logged(evidence: PipelineEvidence, step: int) -> float:
    """The norm of the gradient that the log has for a step, NaN where it has none."""
    run = evidence.run
    if run is None or "grad_norm" not in run.table or run.window > 1:
        return math.nan
    rows_of_step = np.flatnonzero(run.table["step"] == step)
    return float(run.table["grad_norm"][rows_of_step[0]]) if len(rows_of_step) else math.nan


def measure(
    policy: Policy, evidence: PipelineEvidence, step: int, precision: str | None = None
) -> GradientEvidence | None:
    """The gradient of `step` at the weights before it; None where loss, norm or what the loss takes are not known.

    precision: number format that the trainer computed in, None for that of the policy.
    Entropy bonuses are no function of log π(y), so that a loss with one is left out.
    """
    stated, norm = evidence.stated, _logged(evidence, step)
    loss = stated.loss
    every = [evidence.rows[index] for index in evidence.steps.get(step, ())]
    some = [every[index] for index in token_weights.of_update(every)]
    if loss is None or stated.kl is None or loss.entropy or evidence.whole is False or not math.isfinite(norm):
        return None
    if not some or not all(map(_can_be_taken, some)):
        return None
    if stated.kl and any(row.reference is None for row in some):
        return None
    if (stated.interval or stated.iterations) != 1 and all(row.loss_weights is None for row in some):
        return None  # which rows the first step took is not known
    temperature, parts = stated.temperature or 1.0, _parts(some)
    with torch.no_grad():
        current = [logp for batch in parts for logp in _logps(policy, [some[i] for i in batch], temperature)]
    order = [i for batch in parts for i in batch]
    logp: list[Floats] = [np.empty(0)] * len(some)
    for i, one in zip(order, current, strict=True):
        logp[i] = one.double().cpu().numpy()
    weights = token_weights.of(loss, some, [row for row in every if not row.dropped], logp)
    gradient = _gradient(policy, some, parts, temperature, weights.policy)
    pull = _gradient(policy, some, parts, temperature, weights.kl) if stated.kl else torch.zeros_like(gradient)
    precision = precision or str(policy.model.dtype).removeprefix("torch.")
    rounding = 0.0
    if stated.kl and not any(np.any(weight) for weight in weights.policy):
        noise = _noise(stated.kl, precision, weights.coefficients)
        rounding = float(_gradient(policy, some, parts, temperature, noise).norm())
    return GradientEvidence(
        step, norm, float(gradient @ gradient), float(pull @ pull), float(gradient @ pull), len(some),
        f"step {step - 1}", precision, rounding,
    )  # fmt: skip


def _can_be_taken(row: Rollout) -> bool:
    """Whether ids and advantages of a rollout are known."""
    return row.prompt_ids is not None and row.completion_ids is not None and row.advantages is not None


def _noise(kl: float, precision: str, coefficients: Sequence[Floats]) -> list[Floats]:
    """Weights of the KL term as they would be if each log-probability were off by the rounding of a number format."""
    random, nats = np.random.default_rng(0), ROUNDING.get(precision, ROUNDING["float32"])
    return [kl * nats * c * random.choice((-1.0, 1.0), len(c)) for c in coefficients]


def _parts(rows: Sequence[Rollout]) -> list[list[int]]:
    """Places of the rows in passes of at most TOKENS."""
    lengths = [length(row) for row in rows]
    parts: list[list[int]] = []
    for i in sorted(range(len(rows)), key=lambda i: lengths[i]):
        if not parts or lengths[i] * (len(parts[-1]) + 1) > TOKENS:
            parts.append([])
        parts[-1].append(i)
    return parts


def length(row: Rollout) -> int:
    """Tokens of a rollout with its prompt, of those whose ids are known."""
    return sum(len(ids) for ids in (row.prompt_ids, row.completion_ids) if ids is not None)


def _logps(policy: Policy, rows: Sequence[Rollout], temperature: float) -> list[Tensor]:
    """log π (T,) of the completion of each row."""
    width, device = max(map(length, rows)), policy.model.device
    ids = torch.full((len(rows), width), policy.pad, dtype=torch.long)
    seen = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        assert row.prompt_ids is not None
        assert row.completion_ids is not None
        ids[i, : length(row)] = torch.from_numpy(np.concatenate([row.prompt_ids, row.completion_ids]))
        seen[i, : length(row)] = 1
    positions = torch.arange(width, device=device).expand(ids.shape)
    inputs = {"attention_mask": seen.to(device), "position_ids": positions, "use_cache": False}
    logits = policy.model(input_ids=ids.to(device), **inputs).logits[:, :-1].float() / temperature
    logp = logits.log_softmax(-1).gather(-1, ids[:, 1:, None].to(device))[..., 0]
    starts = [0 if row.prompt_ids is None else len(row.prompt_ids) for row in rows]
    return [logp[i, start - 1 : length(row) - 1] for i, (start, row) in enumerate(zip(starts, rows, strict=True))]


def _gradient(
    policy: Policy, rows: Sequence[Rollout], parts: Sequence[Sequence[int]], temperature: float,
    weights: Sequence[Floats],
) -> Tensor:  # fmt: skip
    """Σ w ∇log π over the trained weights, in one long row; `.grad` is left empty."""
    trained = [p for p in policy.model.parameters() if p.requires_grad]
    policy.model.zero_grad(set_to_none=True)
    with torch.enable_grad():
        for batch in parts:
            logps = _logps(policy, [rows[i] for i in batch], temperature)
            terms = [
                (torch.from_numpy(np.nan_to_num(weights[i])).to(logp) * logp).sum()
                for i, logp in zip(batch, logps, strict=True)
            ]
            torch.stack(terms).sum().backward()
    gradient = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten().float() for p in trained])
    policy.model.zero_grad(set_to_none=True)
    return gradient
