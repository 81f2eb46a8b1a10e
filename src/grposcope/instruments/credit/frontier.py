"""What finer credit would save, and what it would cost, for a frozen policy on a task: every source on one batch.

P prompts × G rollouts, further rollouts of the same prompts for the gradient itself, and continuations from the
boundaries of the rollouts. Gradients of all sources are compared by `instruments.credit.error`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from grposcope.core.rollouts import Rollout
from grposcope.core.text import visible
from grposcope.instruments.credit import error as credit_error
from grposcope.instruments.credit.batch import CreditBudget, collected, products, timed, vectors
from grposcope.instruments.credit.error import BASE
from grposcope.instruments.credit.record import CreditRecord, SourceRecord
from grposcope.instruments.credit.sources import Credits, shares_of_squares, wrong_signs
from grposcope.lab.credit.prefix import nodes
from grposcope.lab.credit.state import places
from grposcope.lab.objectives import advantages
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.resumable_rollouts import DrawnRollouts
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.base import Task

KEPT = 12
"""Prompts whose rollouts are kept with the credit of their tokens, as many as the viewer shows of a step."""


@dataclass(frozen=True)
class _Frontier:
    """What was measured, and some of the rollouts with the credit of each token.

    gram, sources: what `instruments.credit.error.measure` compared; the last base vector is the reference.
    """

    record: CreditRecord
    rollouts: tuple[Rollout, ...]
    gram: np.ndarray
    sources: tuple[credit_error.GradientSource, ...]


def measure(
    policy: Policy,
    task: Task,
    budget: CreditBudget,
    sampling: Sampling,
    seed: int = 0,
    step: int | None = None,
    quiet: bool = False,
    critic: tuple[str, Path] | None = None,
) -> _Frontier:
    """Draw, credit, and compare every source; a progress bar goes to standard error unless `quiet`.

    critic: of the run that the policy is from; without one the source `value` is skipped.
    UserError: groups of one, no group with unequal rewards, fewer than three prompts.
    """
    seconds: dict[str, float] = {}
    batch = collected(policy, task, budget, sampling, seed, quiet, seconds, critic)
    drawn, rollouts, credits, values = batch.drawn, batch.rollouts, batch.found, batch.values
    with timed(seconds, "gradients"):
        names, by_name = vectors(policy, batch, sampling.temperature, quiet=quiet)
        gram = products(by_name)
    sources = batch.sources(names)
    compared = credit_error.measure(gram, sources, names.index("reference"), seed=seed)
    signs = {} if values is None else wrong_signs(credits, values, rollouts)
    record = CreditRecord(
        model=policy.name, task=task.name, step=step, seed=seed, prompts=budget.prompts, group=budget.group,
        temperature=sampling.temperature, solved=float(rollouts.rewards.mean()), tokens=float(batch.tokens.mean()),
        at=batch.at, boundaries=0.0 if values is None else len(values.continuations.row) / len(rollouts.tokens),
        continuations=0 if values is None else budget.drawn, oracle=budget.oracle and values is not None,
        extra=float(batch.extra.mean()), reference=budget.reference, recurrence=_recurrence(rollouts),
        floor=compared.floor, effective=compared.effective,
        sources=tuple(_source(source, credits, signs, rollouts) for source in compared.sources),
        skipped=credits.skipped, seconds=seconds,
    )  # fmt: skip
    return _Frontier(record, _kept(policy, drawn, rollouts, credits), gram, tuple(sources))


def _recurrence(rollouts: RolloutBatch) -> dict[str, float]:
    """Shares of the ends of steps whose text, and whose step alone, another rollout of the group has as well."""
    if "step_ends" not in rollouts.token_annotations:
        return {}
    ends = rollouts.token_annotations["step_ends"] & rollouts.mask
    last = torch.arange(ends.shape[1], device=ends.device) == (rollouts.lengths - 1)[:, None]
    inside = ends & ~last
    if not bool(inside.any()):
        return {}
    group = rollouts.groups[1]
    _, after = places(rollouts.tokens, ends, rollouts.mask, group)
    return {"text": _met(nodes(rollouts.tokens, group), inside), "step": _met(after, inside)}


def _met(numbers: Tensor, inside: Tensor) -> float:
    """Share of the places `inside` whose number another row has as well."""
    row = torch.arange(len(numbers), device=numbers.device)[:, None].expand_as(numbers)
    pairs = torch.unique(torch.stack((numbers[inside], row[inside])), dim=1)
    count = torch.bincount(pairs[0])
    return float((count[numbers[inside]] > 1).double().mean())


def _source(
    error: credit_error.SourceError, credits: Credits, signs: dict[str, credit_error.Ranged], rollouts: RolloutBatch
) -> SourceRecord:
    tree = credits.trees.get(error.name)
    shown, own = (credits.shown[error.name], rollouts) if tree is None else (tree[1], tree[0])
    within, common = shares_of_squares(shown.to(own.mask.device), own)
    return SourceRecord(
        name=error.name, kind=credits.kinds[error.name], purchasable=error.name in credits.purchasable,
        unbiased=error.unbiased, tokens=error.tokens, mse=error.mse, saving=error.saving, scale=error.scale,
        bias=error.bias, wrong=signs.get(error.name, credit_error.Ranged(flag="not measured")), within=within,
        common=common, log_error=error.log_error, effective=error.effective,
    )  # fmt: skip


def _kept(policy: Policy, drawn: DrawnRollouts, rollouts: RolloutBatch, credits: Credits) -> tuple[Rollout, ...]:
    """Rollouts of some prompts, live groups first, with every credit to three digits."""
    prompts, group = rollouts.groups
    dead = advantages.dead(rollouts.rewards).tolist()
    every = drawn.rollouts.groups[1]
    tokens = []
    for p in sorted(range(prompts), key=lambda p: dead[p])[:KEPT]:
        for j in range(group):
            row, mask = p * group + j, rollouts.mask[p * group + j]
            columns = {
                visible(name, 60): np.array([float(f"{value:.3g}") for value in given[row][mask].tolist()])
                for name, given in credits.shown.items()
                if not name.startswith(f"{BASE}:")
            }
            tokens.append(
                Rollout(
                    problem=drawn.problems[p].id,
                    prompt=drawn.problems[p].prompt,
                    completion=drawn.texts[p * every + j],
                    reward=float(rollouts.rewards[p, j]),
                    tokens=tuple(str(policy.tokenizer.decode([i])) for i in rollouts.tokens[row][mask].tolist()),
                    measures=columns,
                )
            )
    return tuple(tokens)
