"""What the experiments on networks share: rollouts of independent prompts, their gradients, Gram, probe and moments.

`gram` is plain autograd, one backward pass per rollout, nothing clever: the reference. `streamed` is the same matrix
from the factors of `grposcope probe`, one backward pass for all: on 256 rollouts of `tiny` the two differ by 2.8e-6 of
the largest entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grposcope.core.files import write_json
from grposcope.instruments.gradient import backward
from grposcope.instruments.gradient import gram as contraction
from grposcope.instruments.gradient.probe_record import ProbeGram, write_gram
from grposcope.lab.objectives import advantages
from grposcope.lab.policies import Policy, encode
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.logprobs import token_logprobs
from grposcope.lab.sampling.rollouts import _to_rollouts, joined
from grposcope.lab.sampling.sampler import Sampling, sample
from grposcope.lab.tasks.base import Problem, Task, grade
from grposcope.maths import moments

AT_ONCE = 512
"""Rollouts sampled at once."""
ROOM = 1.5e9
"""Bytes of per-rollout gradients held at once."""


def draw(
    policy: Policy, task: Task, problems: Sequence[Problem], shape: tuple[int, int], generator: torch.Generator,
    max_tokens: int = 0,
) -> RolloutBatch:  # fmt: skip
    """`shape` = (P, G) graded rollouts of prompts drawn independently, with replacement, at temperature 1."""
    prompts, group = shape
    parts: list[RolloutBatch] = []
    picked = torch.randint(len(problems), (prompts,), generator=generator).tolist()
    size = max(1, AT_ONCE // group)
    for start in range(0, prompts, size):
        chosen = [problems[i] for i in picked[start : start + size]]
        sampling = Sampling(max_tokens or task.max_tokens)
        ids, mask = encode(policy, [p.prompt for p in chosen], task.instruction, sampling.max_tokens)
        done = sample(policy.model, (ids, mask), group, sampling, policy.eos, policy.pad, generator)
        texts = policy.tokenizer.batch_decode(done.tokens, skip_special_tokens=True)
        rewards = grade(task, [p for p in chosen for _ in range(group)], texts)
        graded = torch.tensor(rewards, dtype=torch.float64).reshape(len(chosen), group)
        parts.append(_to_rollouts(ids, mask, done, graded, group))
    return joined(parts, policy.pad)


def gradient(
    policy: Policy,
    rollouts: RolloutBatch,
    advantage: Callable[[Tensor], Tensor] = advantages.leave_one_out,
    size: int = 64,
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


def gram(policy: Policy, rollouts: RolloutBatch) -> tuple[NDArray, dict[str, NDArray]]:
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


def streamed(policy: Policy, rollouts: RolloutBatch) -> NDArray:
    """K_ij = ⟨s_i, s_j⟩ over all parameters, (B, B). ValueError where a parameter cannot be measured."""
    own = rollouts.each(lambda name, array: array.clone())  # not of inference mode
    attached = backward.attach(policy.model, own, temperature=1.0)
    if attached.left_out:
        raise ValueError(f"no factors for {', '.join(attached.left_out)}")
    total = np.zeros((rollouts.rewards.numel(),) * 2)

    def add(score: backward.Score) -> None:
        total[:] += contraction.gram(score).cpu().numpy()

    attached.stream(own, add)
    policy.model.zero_grad(set_to_none=True)
    return (total + total.T) / 2


def write_probe(
    folder: Path,
    matrix: NDArray,
    rollouts: RolloutBatch,
    model: str,
    task: Task,
    layers: dict[str, NDArray] | None = None,
    **more: Any,
) -> None:
    """Write the Gram (B, B) of rollouts, and of `layers`, as a probe that `grposcope plan` reads.

    more: further entries of probe.json, which is written last, so that a folder with this file is whole.
    """
    prompts, group = rollouts.rewards.shape
    truncated = rollouts.truncated.reshape(prompts, group).numpy()
    stacked = (np.stack(list(layers.values())), tuple(layers)) if layers else ()
    write_gram(folder, ProbeGram(matrix, rollouts.rewards.numpy(), truncated, *stacked))
    about = {"format": 1, "model": model, "task": task.name, "prompts": prompts, "group": group, **more}
    write_json(folder / "probe.json", about)


def product(scores: Tensor) -> NDArray:
    """S Sᵀ in float64 from float32 rows, by blocks of columns."""
    total = np.zeros((len(scores), len(scores)))
    for block in scores.split(1 << 16, dim=1):
        total += (block @ block.T).double().numpy()
    return (total + total.T) / 2


def pooled(parts: Sequence[moments.Moments]) -> moments.Moments:
    """The moments of independent probes of one size together: the averages of theirs.

    Only the statistics (pooled, jackknife, bootstrap) are averaged, which is all that predictions use.
    """
    count = len(parts)

    def average(name: str) -> moments.Statistics:
        values = {f.name: [getattr(getattr(m, name), f.name) for m in parts] for f in fields(moments.Statistics)}
        if name != "jackknife":
            return moments.Statistics(**{k: np.mean(v, axis=0) for k, v in values.items()})
        points = {k: [getattr(m.pooled, k) for m in parts] for k in values}
        return moments.Statistics(**{
            k: np.concatenate([(sum(points[k]) - points[k][i] + v[i]) / count for i in range(count)])
            for k, v in values.items()
        })  # fmt: skip

    return replace(parts[0], pooled=average("pooled"), jackknife=average("jackknife"), bootstrap=average("bootstrap"),
                   prompts=sum(m.prompts for m in parts), flag="",
                   informative=np.concatenate([m.informative for m in parts]))  # fmt: skip
