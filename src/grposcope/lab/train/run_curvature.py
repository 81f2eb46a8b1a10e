"""Curvature of a finished run: the stiffest direction of its model, measured on rollouts drawn like the run's own.

Curvature of the objective along a direction of the weights: κ, the restoring force per unit of displacement.

A trainer moves the weights θ along F(θ, θ_old) = −E[Σ_t w_t ∇log π_θ(y_t)], with rollouts y and per-token weights
w = ∂L/∂log π that depend on the policy that drew them. Along a unit direction u

    κ = −d/dε u·F(θ + εu, θ + εu) = current + stale
    current = −d/dε u·F(θ + εu, θ)      follows every optimizer step
    stale   = −d/dε u·F(θ, θ + εu)      waits for the next refresh

`instruments.dynamics.refresh` is about a force that is stale throughout. Three ways to κ (derivation of this project;
no publication):

`response`                moves the weights by ± ε, draws fresh rollouts at both ends and takes the slope of the force.
                          It assumes nothing and needs many rollouts.
`_directional_curvature`  takes the same slope from rollouts of one policy. With the derivatives a, b of log π(y_t)
                          along u, stale = E[Σ w_old' a] − E[S_g f_g] and current = E[Σ w_now' a + w b]: w' is the
                          change of w with either policy, S_g = Σ a over a group, f_g its force. Re-weighting whole
                          groups by S_g is exact for any advantage of the group. Only forward passes are needed, since
                          a and b are differences along the direction.
`_hessian_product`        Hv of a loss by a double backward pass, for the directions themselves: `_largest_eigenpairs`
                          finds the eigenvectors of largest eigenvalue. `_fisher_loss` has the Fisher matrix as Hessian.

The stiffest direction decides the stability; along the way the weights have moved κ can be thousands of times smaller.
Where the rewards carry a KL of weight λ to a reference, the plateau has stale κ = λ u'Fu and no current part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from transformers import PreTrainedModel

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.lab import policies
from grposcope.lab.credit import per_token
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling import critic
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.logprobs import token_logprobs
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.setup import Setup, prepare


def of_run(folder: Path, settings: Mapping[str, Any], batches: int = 8) -> tuple[_Eigenpair, _DirectionalCurvature]:
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
    (top,) = _largest_eigenpairs(lambda v: torch.stack([p(v) for p in products]).mean(0), start, 12)
    logprobs = _model_logprobs(model, setup.config.temperature, setup.micro_batch)
    measured = []
    for k in range(half, 2 * half):
        batch = _drawn(setup, k)
        along = _directional_logprobs(model, batch, top.vector, logprobs)
        measured.append(_directional_curvature(along, batch, _objective_weights(setup, batch)))
    return top, _DirectionalCurvature(
        *(Estimate.mean([getattr(m, f.name).value for m in measured]) for f in fields(_DirectionalCurvature))
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
        return _fisher_loss(token_logprobs(model, rollouts, rows, temperature)[0].sum(-1))

    return _hessian_product(model, loss)


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


CHANGE = 0.03
"""By how much the log-probability of a rollout changes, root mean square, over the step of a difference: enough for
float32 log-probabilities, and little enough for the line to be straight."""

LogProbs = Callable[[RolloutBatch], Tensor]
"""Rollouts to log π (B, T) of their tokens at the present weights of the model, without gradient."""

TokenWeights = Callable[[Tensor, Tensor, RolloutBatch], Tensor]
"""(log π now, log π when drawn, rollouts) to the weights ∂L/∂log π of a batch, all (B, T)."""


@dataclass(frozen=True)
class _DirectionalLogProbs:
    """log π (B, T) at θ + εu for ε = 0 and its first two derivatives in ε, float64, by differences of size `step`."""

    logp: Tensor
    first: Tensor
    second: Tensor
    step: float


@dataclass(frozen=True)
class _DirectionalCurvature:
    """Force and curvature along one unit direction, with standard errors over prompts.

    force: u·F. current and stale: the parts of κ that follow every step and every refresh. curvature: κ, their sum.
    fisher: u'Fu, the mean square of a rollout's score along u.
    """

    force: Estimate
    current: Estimate
    stale: Estimate
    curvature: Estimate
    fisher: Estimate


@dataclass(frozen=True)
class _Eigenpair:
    """An eigenvalue λ, its unit eigenvector v (D,), and the residual |Hv − λv|, which bounds the error of λ."""

    value: float
    vector: Tensor
    residual: float


def _parameter_vector(model: nn.Module) -> Tensor:
    """All parameters as one vector, (D,), a copy."""
    return parameters_to_vector(p.detach() for p in model.parameters()).clone()


def _set_parameters(model: nn.Module, vector: Tensor) -> None:
    """Set all parameters from one vector (D,)."""
    with torch.no_grad():
        vector_to_parameters(vector, model.parameters())


def _unit(vector: Tensor) -> Tensor:
    """The vector scaled to length 1; UserError for a vector that is 0 or not finite."""
    length = float(vector.norm())
    if not (length > 0 and math.isfinite(length)):
        raise UserError(f"a vector of length {length} has no direction; give one that is finite and not 0")
    return vector / length


def _directional_logprobs(
    model: nn.Module, rollouts: RolloutBatch, direction: Tensor, logprobs: LogProbs, step: float | None = None
) -> _DirectionalLogProbs:
    """Log-probabilities of the rollouts along a unit direction (D,), by differences; the model is left as it was.

    step: the ε of the differences, by default the one that changes a rollout's log π by CHANGE.
    """
    centre = _parameter_vector(model)

    def at(epsilon: float) -> Tensor:
        _set_parameters(model, centre + epsilon * direction)
        return logprobs(rollouts).double()

    try:
        middle = at(0.0)
        if step is None:
            step, ahead = 1e-3, at(1e-3)
            for _ in range(8):  # the scale of a direction is unknown: find it by repeated rescaling
                moved = float((ahead - middle).sum(-1).square().mean().sqrt())
                if 0.3 * CHANGE < moved < 3 * CHANGE:
                    break
                step *= min(max(CHANGE / max(moved, 1e-6), 0.01), 100.0)
                ahead = at(step)
        behind, ahead = at(-step), at(step)
    finally:
        _set_parameters(model, centre)
    return _DirectionalLogProbs(middle, (ahead - behind) / (2 * step), (ahead - 2 * middle + behind) / step**2, step)


def _directional_curvature(
    along: _DirectionalLogProbs, rollouts: RolloutBatch, weigh: TokenWeights
) -> _DirectionalCurvature:
    """κ along a direction from rollouts of one policy, split into what follows a step and what waits for a refresh."""
    prompts, group = rollouts.groups

    def per_group(terms: Tensor) -> Tensor:
        """Sums over the tokens of each group, (P,)."""
        return terms.sum(-1).reshape(prompts, group).sum(-1)

    def slope(now: float, old: float) -> Tensor:
        """Change of the weights per unit of displacement of either policy."""
        ends = [
            weigh(along.logp + now * side * change, along.logp + old * side * change, rollouts).double()
            for side, change in ((1, h * along.first), (-1, h * along.first))
        ]
        return (ends[0] - ends[1]) / (2 * h)

    h = along.step
    w = weigh(along.logp, along.logp, rollouts).double()
    score = per_group(along.first)
    force = -prompts * per_group(w * along.first)
    current = prompts * per_group(slope(1, 0) * along.first + w * along.second)
    stale = prompts * per_group(slope(0, 1) * along.first) - score * force
    fisher = along.first.sum(-1).square().reshape(prompts, group).mean(-1)
    return _DirectionalCurvature(*(Estimate.mean(x.tolist()) for x in (force, current, stale, current + stale, fisher)))


def _response(
    model: nn.Module, direction: Tensor, draw: Callable[[int], RolloutBatch], logprobs: LogProbs, weigh: TokenWeights,
    epsilon: float, batches: int,
) -> Estimate:  # fmt: skip
    """κ along a unit direction (D,) from the force at θ ± εu on fresh rollouts, with its error over batches.

    draw(k) samples batch k from the model as it then is; with the same random numbers at both ends the
    difference is less noisy. The model is left as it was.
    """
    centre, slopes = _parameter_vector(model), []
    try:
        for k in range(batches):
            ends = []
            for side in (epsilon, -epsilon):
                _set_parameters(model, centre + side * direction)
                rollouts = draw(k)
                along = _directional_logprobs(model, rollouts, direction, logprobs)
                ends.append(_directional_curvature(along, rollouts, weigh).force.value)
            slopes.append(-(ends[0] - ends[1]) / (2 * epsilon))
    finally:
        _set_parameters(model, centre)
    return Estimate.mean(slopes)


def _hessian_product(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[Tensor], Tensor]:
    """v ↦ Hv of a loss at the present weights, (D,) to (D,), by double backward. The loss is evaluated once."""
    parameters = list(model.parameters())
    with sdpa_kernel(SDPBackend.MATH), torch.enable_grad():  # the fused kernels have no second derivative
        slopes = torch.autograd.grad(loss(), parameters, create_graph=True)
    slope = torch.cat([g.reshape(-1) for g in slopes])

    def product(vector: Tensor) -> Tensor:
        gradients = torch.autograd.grad(slope @ vector.to(slope), parameters, retain_graph=True)
        return torch.cat([g.reshape(-1) for g in gradients])

    return product


def _fisher_loss(logp: Tensor) -> Tensor:
    """½ mean (log π(y) − its present value)² of rollouts (B,): 0 with gradient 0; the Hessian is the Fisher matrix."""
    return (logp - logp.detach()).square().mean() / 2


def _largest_eigenpairs(
    product: Callable[[Tensor], Tensor], start: Tensor, steps: int = 20, count: int = 1
) -> tuple[_Eigenpair, ...]:
    """The `count` largest eigenvalues of a symmetric product, by `steps` of Lanczos with full reorthogonalisation.

    start (D,): any vector that is not orthogonal to what is sought. Fewer come back where the space is exhausted.
    `scipy.sparse.linalg.eigsh` is no replacement: it restarts until it has converged, where here the number of products
    (each a double backward pass) is given and the residual says how far the result is from an eigenpair; and its
    vectors would leave the device.
    """
    basis = [_unit(start)]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    for _ in range(min(steps, len(start))):
        image = product(basis[-1])
        diagonal.append(float(image @ basis[-1]))
        spanned = torch.stack(basis)
        for _ in range(2):  # once is not enough in floating point
            image = image - spanned.T @ (spanned @ image)
        off_diagonal.append(float(image.norm()))
        if off_diagonal[-1] <= 1e-6 * max(map(abs, diagonal)):
            break
        basis.append(image / off_diagonal[-1])
    size = len(diagonal)
    between = torch.tensor(off_diagonal[: size - 1], dtype=torch.float64)
    tridiagonal = torch.diag(torch.tensor(diagonal, dtype=torch.float64)) + between.diag(1) + between.diag(-1)
    values, vectors = torch.linalg.eigh(tridiagonal)
    spanned = torch.stack(basis[:size])
    return tuple(
        _Eigenpair(float(values[-i]), _unit(spanned.T @ vectors[:, -i].to(spanned)),
                  abs(off_diagonal[-1] * float(vectors[-1, -i])))
        for i in range(1, min(count, size) + 1)
    )  # fmt: skip
