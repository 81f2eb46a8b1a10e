"""What the experiments on networks share: rollouts of independent prompts, their gradients and their Gram.

Plain autograd, one backward pass per rollout, nothing clever: the reference that a faster probe can be held against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grposcope.objectives import advantages
from grposcope.policies import Policy, encode
from grposcope.records import Rollouts
from grposcope.tasks.base import Problem, Task, grade
from grposcope.training.collect import _rollouts, joined
from grposcope.training.logprobs import token_logprobs
from grposcope.training.sampler import Sampling, sample

AT_ONCE = 512
"""Rollouts sampled at once."""
ROOM = 1.5e9
"""Bytes of per-rollout gradients held at once."""


def draw(
    policy: Policy, task: Task, problems: Sequence[Problem], shape: tuple[int, int], generator: torch.Generator,
    max_tokens: int = 0,
) -> Rollouts:  # fmt: skip
    """`shape` = (P, G) graded rollouts of prompts drawn independently, with replacement, at temperature 1."""
    prompts, group = shape
    parts: list[Rollouts] = []
    picked = torch.randint(len(problems), (prompts,), generator=generator).tolist()
    size = max(1, AT_ONCE // group)
    for start in range(0, prompts, size):
        chosen = [problems[i] for i in picked[start : start + size]]
        sampling = Sampling(max_tokens or task.max_tokens)
        ids, mask = encode(policy, [p.prompt for p in chosen], task.instruction, sampling.max_tokens)
        done = sample(policy.model, ids, mask, group, sampling, policy.eos, policy.pad, generator)
        texts = policy.tokenizer.batch_decode(done.tokens, skip_special_tokens=True)
        rewards = grade(task, [p for p in chosen for _ in range(group)], texts)
        graded = torch.tensor(rewards, dtype=torch.float64).reshape(len(chosen), group)
        parts.append(_rollouts(ids, mask, done, graded, group, (None, None)))
    return joined(parts, policy.pad)


def gradient(
    policy: Policy, rollouts: Rollouts, advantage: Callable[[Tensor], Tensor] = advantages.leave_one_out, size: int = 64
) -> NDArray:
    """(1/B) Σ A_i s_i, (D,) float64; rollouts without weight are left out."""
    weights = (advantage(rollouts.rewards) / rollouts.rewards.numel()).reshape(-1).float()
    policy.model.zero_grad(set_to_none=True)
    rows = weights.nonzero()[:, 0]
    for part in rows.split(size) if len(rows) else ():
        logp, _ = token_logprobs(policy.model, rollouts, part)
        (weights[part] @ logp.sum(-1)).backward()
    flat = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in policy.model.parameters()]
    return torch.cat(flat).double().numpy()


def gram(policy: Policy, rollouts: Rollouts) -> tuple[NDArray, dict[str, NDArray]]:
    """K_ij = ⟨s_i, s_j⟩ (B, B), and the same per parameter tensor, in several passes that each fit in memory."""
    named = dict(policy.model.named_parameters())
    count = rollouts.rewards.numel()
    layers: dict[str, NDArray] = {}
    names = list(named)
    while names:
        taken = [names.pop(0)]
        while names and 4 * count * sum(named[n].numel() for n in [*taken, names[0]]) <= ROOM:
            taken.append(names.pop(0))
        scores = [torch.empty(count, named[n].numel()) for n in taken]
        for row in range(count):
            logp, _ = token_logprobs(policy.model, rollouts, torch.tensor([row]))
            for store, gradient in zip(scores, torch.autograd.grad(logp.sum(), [named[n] for n in taken]), strict=True):
                store[row] = gradient.reshape(-1)
        for name, store in zip(taken, scores, strict=True):
            layers[name] = product(store)
    return sum(layers.values(), np.zeros((count, count))), layers


def product(scores: Tensor) -> NDArray:
    """S Sᵀ in float64 from float32 rows, by blocks of columns."""
    total = np.zeros((len(scores), len(scores)))
    for block in scores.split(1 << 16, dim=1):
        total += (block @ block.T).double().numpy()
    return (total + total.T) / 2
