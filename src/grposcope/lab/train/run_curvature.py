"""Curvature of a finished run: the stiffest direction of its model, measured on rollouts drawn like the run's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.instruments.gradient.curvature import (
    DirectionalCurvature,
    Eigenpair,
    LogProbs,
    TokenWeights,
    directional_curvature,
    directional_logprobs,
    fisher_loss,
    hessian_product,
    largest_eigenpairs,
)
from grposcope.lab import policies
from grposcope.lab.credit import per_token
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling import critic
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.logprobs import token_logprobs
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.setup import Setup, prepare


def of_run(folder: Path, settings: Mapping[str, Any], batches: int = 8) -> tuple[Eigenpair, DirectionalCurvature]:
    """The stiffest direction of the final model of a run, and κ along it with errors over batches.

    settings: those of the run, fields of `TrainConfig`. Half of the batches, drawn like the run's own, find the
    direction: the first eigenvector of the Fisher matrix. κ is measured on the other half, since a direction looks
    stiffer than it is on the rollouts that chose it. UserError where the run has no model.
    """
    if not (folder / "model" / "config.json").exists():
        raise UserError(f"{folder} holds no model to measure; the curvature needs a finished run of grposcope train")
    known = {f.name for f in fields(TrainConfig)}
    setup = prepare(TrainConfig(**{name: value for name, value in settings.items() if name in known}))
    model = setup.policy.model
    model.load_state_dict(policies.load(str(folder / "model"), model.dtype, str(model.device)).model.state_dict())
    if setup.critic is not None:
        critic.load(setup.critic, folder)
    half = max(batches // 2, 2)
    products = [_fisher_product(model, _drawn(setup, k), setup.config.temperature) for k in range(half)]
    start = torch.randn(setup.policy.parameters, generator=torch.Generator().manual_seed(0)).to(model.device)
    (top,) = largest_eigenpairs(lambda v: torch.stack([p(v) for p in products]).mean(0), start, 12)
    logprobs = _model_logprobs(model, setup.config.temperature, setup.micro_batch)
    measured = []
    for k in range(half, 2 * half):
        batch = _drawn(setup, k)
        along = directional_logprobs(model, batch, top.vector, logprobs)
        measured.append(directional_curvature(along, batch, _objective_weights(setup, batch)))
    return top, DirectionalCurvature(
        *(Estimate.mean([getattr(m, f.name).value for m in measured]) for f in fields(DirectionalCurvature))
    )


def _model_logprobs(model: PreTrainedModel, temperature: float = 1.0, size: int = 256) -> LogProbs:
    """log π of rollouts at the model's weights of the time of the call, `size` rollouts at a time."""
    return lambda rollouts: frozen_logprobs(model, rollouts, temperature, size)


def _fisher_product(
    model: PreTrainedModel, rollouts: RolloutBatch, temperature: float = 1.0
) -> Callable[[Tensor], Tensor]:
    """v ↦ Fv, the Fisher matrix of the rollouts E[s s'] times a vector (D,)."""

    def loss() -> Tensor:
        rows = torch.arange(len(rollouts.mask), device=rollouts.mask.device)
        return fisher_loss(token_logprobs(model, rollouts, rows, temperature)[0].sum(-1))

    return hessian_product(model, loss)


def _drawn(setup: Setup, number: int) -> RolloutBatch:
    """Batch `number` of rollouts of the present policy, on problems and random numbers that no run has used."""
    return setup.collect(setup.config.seed + 1_000_000, number * setup.config.prompts).rollouts


def _objective_weights(setup: Setup, batch: RolloutBatch) -> TokenWeights:
    """The weights ∂L/∂log π of a run's objective on a batch, its KL to the reference included."""
    temperature = setup.config.temperature
    credit = per_token(setup.config.credit, setup.objective, batch, torch.float64)
    reference = None
    if setup.reference is not None:
        reference = frozen_logprobs(setup.reference, batch, temperature, setup.micro_batch).double()

    def weigh(now: Tensor, old: Tensor, rollouts: RolloutBatch) -> Tensor:
        return setup.objective.weights(now, old, rollouts, credit=credit, logp_ref=reference)

    return weigh
