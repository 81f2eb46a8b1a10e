"""Rollouts kept token by token, for people to read and for the later instruments."""

from __future__ import annotations

from grposcope.objectives import Objective
from grposcope.policies import Policy
from grposcope.runs.native.writer import Sample
from grposcope.training.rollouts import Batch
from grposcope.training.update import Fixed


def samples(policy: Policy, objective: Objective, batch: Batch, fixed: Fixed, groups: int) -> list[Sample]:
    """The first `groups` groups of a fresh batch, live ones first, with the weight ∂L/∂log π of every token.

    The weights are those of the first optimiser step on the batch, where the ratio is 1.
    """
    rollouts, size = batch.rollouts, batch.rollouts.groups[1]
    live = (fixed.credit != 0).any(-1).reshape(-1, size).any(-1).tolist()
    chosen = sorted(range(len(live)), key=lambda p: not live[p])[:groups]
    rows = [p * size + i for p in chosen for i in range(size)]
    weights = objective.partial_weights(
        rollouts.logp,
        rollouts.logp,
        rollouts.mask,
        fixed.credit,
        objective.reduction(rollouts.mask).float(),
        fixed.reference,
    )
    found = []
    for row in rows:
        problem, n = batch.problems[row // size], int(rollouts.mask[row].sum())
        found.append(
            Sample(
                problem=problem.id,
                prompt=problem.prompt,
                rollout=row % size,
                completion=batch.texts[row],
                reward=float(batch.graded[row // size, row % size]),
                truncated=bool(rollouts.truncated[row]),
                tokens=[str(policy.tokenizer.decode([token])) for token in rollouts.tokens[row, :n].tolist()],
                logp=rollouts.logp[row, :n].tolist(),
                entropy=rollouts.entropy[row, :n].tolist(),
                weight=weights[row, :n].tolist(),
            )
        )
    return found
