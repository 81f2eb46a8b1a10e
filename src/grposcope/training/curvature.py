"""How stiff a network is along a direction of its weights: κ, the restoring force per unit of displacement.

A trainer moves the weights θ along F(θ, θ_old) = −E[Σ_t w_t ∇log π_θ(y_t)], with rollouts y and per-token weights
w = ∂L/∂log π that depend on the policy that drew them. Along a unit direction u

    κ = −d/dε u·F(θ + εu, θ + εu) = current + stale
    current = −d/dε u·F(θ + εu, θ)      follows every optimiser step
    stale   = −d/dε u·F(θ, θ + εu)      waits for the next refresh

`dynamics.refresh` is about a force that is stale throughout. Three ways to κ, our own derivation:

`response`         move the weights by ± ε, draw fresh rollouts at both ends, take the slope of the force. Assumes
                   nothing; needs many rollouts.
`along`            the same slope from rollouts of one policy. With the derivatives a, b of log π(y_t) along u,
                   stale = E[Σ w_old' a] − E[S_g f_g], current = E[Σ w_now' a + w b]: w' is the change of w with either
                   policy, S_g = Σ a over a group, f_g its force. Re-weighting whole groups by S_g is exact for any
                   advantage of the group. Needs forward passes only, since a and b are differences along the line.
`hessian_product`  Hv of a loss by a double backward pass, for the directions themselves: `stiffest` finds the
                   eigenvectors of largest eigenvalue by Lanczos. `fisher_loss` has the Fisher matrix as its Hessian.

`of_run` puts them together for the model of a run. The stiffest direction is the one that decides; along the way the
weights have moved κ can be thousands of times smaller.

Where the rewards carry a KL of weight λ to a reference, the plateau has stale κ = λ u'Fu and no current part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from transformers import PreTrainedModel

from grposcope import policies
from grposcope.credit import SOURCES, per_token
from grposcope.errors import UserError
from grposcope.records import Estimate, Rollouts
from grposcope.training.config import TrainConfig
from grposcope.training.logprobs import token_logprobs
from grposcope.training.rollouts import collect
from grposcope.training.setup import Setup, prepare
from grposcope.training.update import frozen_logprobs

CHANGE = 0.03
"""By how much the log-probability of a rollout changes, root mean square, over the step of a difference: enough for
float32 log-probabilities, and little enough for the line to be straight."""

Weigh = Callable[[Tensor, Tensor, Rollouts], Tensor]
"""(log π now, log π when drawn, rollouts) to the weights ∂L/∂log π of a batch, all (B, T)."""


@dataclass(frozen=True)
class Line:
    """Rollouts seen from the weights θ + εu: log π at ε = 0 and its first two derivatives in ε, (B, T) float64.

    step is the ε of the differences.
    """

    logp: Tensor
    first: Tensor
    second: Tensor
    step: float


@dataclass(frozen=True)
class Along:
    """What rollouts say of one unit direction, with standard errors over prompts.

    force: u·F. current and stale: the parts of κ that follow every step and every refresh. curvature: κ, their sum.
    fisher: u'Fu, the mean square of a rollout's score along u.
    """

    force: Estimate
    current: Estimate
    stale: Estimate
    curvature: Estimate
    fisher: Estimate


@dataclass(frozen=True)
class Mode:
    """An eigenvalue, its unit eigenvector (D,), and the length of Hv − λv: how far it is from being one."""

    value: float
    vector: Tensor
    residual: float


def weights(model: PreTrainedModel) -> Tensor:
    """All parameters as one vector, (D,), a copy."""
    return parameters_to_vector(p.detach() for p in model.parameters()).clone()


def place(model: PreTrainedModel, vector: Tensor) -> None:
    """Set all parameters from one vector (D,)."""
    with torch.no_grad():
        vector_to_parameters(vector, model.parameters())


def unit(vector: Tensor) -> Tensor:
    """The vector at length 1; UserError where it has no direction."""
    length = float(vector.norm())
    if not (length > 0 and math.isfinite(length)):
        raise UserError(f"a direction of length {length} is none; give a vector that is finite and not 0")
    return vector / length


def line(
    model: PreTrainedModel, rollouts: Rollouts, direction: Tensor, temperature: float = 1.0, size: int = 256,
    step: float | None = None,
) -> Line:  # fmt: skip
    """Log-probabilities of the rollouts along a unit direction (D,), by differences; the model is left as it was.

    step: the ε of the differences, by default the one that changes a rollout's log π by CHANGE. `size` rollouts
    go through the model at a time.
    """
    centre = weights(model)

    def at(epsilon: float) -> Tensor:
        place(model, centre + epsilon * direction)
        return frozen_logprobs(model, rollouts, temperature, size).double()

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
        place(model, centre)
    return Line(middle, (ahead - behind) / (2 * step), (ahead - 2 * middle + behind) / step**2, step)


def along(seen: Line, rollouts: Rollouts, weigh: Weigh) -> Along:
    """κ along a line from the rollouts of its middle, split into what follows a step and what waits for a refresh."""
    prompts, group = rollouts.groups

    def per_group(terms: Tensor) -> Tensor:
        """Sums over the tokens of each group, (P,)."""
        return terms.sum(-1).reshape(prompts, group).sum(-1)

    def slope(now: float, old: float) -> Tensor:
        """Change of the weights per unit of displacement of either policy."""
        ends = [
            weigh(seen.logp + now * side * change, seen.logp + old * side * change, rollouts).double()
            for side, change in ((1, h * seen.first), (-1, h * seen.first))
        ]
        return (ends[0] - ends[1]) / (2 * h)

    h = seen.step
    w = weigh(seen.logp, seen.logp, rollouts).double()
    score = per_group(seen.first)
    force = -prompts * per_group(w * seen.first)
    current = prompts * per_group(slope(1, 0) * seen.first + w * seen.second)
    stale = prompts * per_group(slope(0, 1) * seen.first) - score * force
    fisher = seen.first.sum(-1).square().reshape(prompts, group).mean(-1)
    return Along(*(Estimate.mean(x.tolist()) for x in (force, current, stale, current + stale, fisher)))


def response(
    model: PreTrainedModel, direction: Tensor, draw: Callable[[int], Rollouts], weigh: Weigh, epsilon: float,
    batches: int, temperature: float = 1.0, size: int = 256,
) -> Estimate:  # fmt: skip
    """κ along a unit direction (D,) from the force at θ ± εu on fresh rollouts, with its error over batches.

    draw(k) samples batch k from the model as it then is; with the same random numbers at both ends the
    difference is less noisy. The model is left as it was.
    """
    centre, slopes = weights(model), []
    try:
        for k in range(batches):
            ends = []
            for side in (epsilon, -epsilon):
                place(model, centre + side * direction)
                rollouts = draw(k)
                ends.append(along(line(model, rollouts, direction, temperature, size), rollouts, weigh).force.value)
            slopes.append(-(ends[0] - ends[1]) / (2 * epsilon))
    finally:
        place(model, centre)
    return Estimate.mean(slopes)


def hessian_product(model: PreTrainedModel, loss: Callable[[], Tensor]) -> Callable[[Tensor], Tensor]:
    """v ↦ Hv of a loss at the present weights, (D,) to (D,), by double backward. The loss is evaluated once."""
    parameters = list(model.parameters())
    with sdpa_kernel(SDPBackend.MATH), torch.enable_grad():  # the fused kernels have no second derivative
        slopes = torch.autograd.grad(loss(), parameters, create_graph=True)
    slope = torch.cat([g.reshape(-1) for g in slopes])

    def product(vector: Tensor) -> Tensor:
        found = torch.autograd.grad(slope @ vector.to(slope), parameters, retain_graph=True)
        return torch.cat([g.reshape(-1) for g in found])

    return product


def fisher_loss(model: PreTrainedModel, rollouts: Rollouts, temperature: float = 1.0) -> Tensor:
    """½ mean (Σ_t log π(y_t) − its present value)²: 0, with gradient 0 and the Fisher matrix E[s s'] as its Hessian."""
    rows = torch.arange(len(rollouts.mask), device=rollouts.mask.device)
    logp = token_logprobs(model, rollouts, rows, temperature)[0].sum(-1)
    return (logp - logp.detach()).square().mean() / 2


def stiffest(
    product: Callable[[Tensor], Tensor], start: Tensor, steps: int = 20, modes: int = 1
) -> tuple[Mode, ...]:  # fmt: skip
    """The `modes` largest eigenvalues of a symmetric product, by Lanczos with full reorthogonalisation.

    start (D,): any vector that is not orthogonal to what is sought. Fewer come back where the space is exhausted.
    """
    basis = [unit(start)]
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(steps, len(start))):
        image = product(basis[-1])
        diagonal.append(float(image @ basis[-1]))
        spanned = torch.stack(basis)
        for _ in range(2):  # once is not enough in floating point
            image = image - spanned.T @ (spanned @ image)
        beside.append(float(image.norm()))
        if beside[-1] <= 1e-6 * max(map(abs, diagonal)):
            break
        basis.append(image / beside[-1])
    size = len(diagonal)
    tridiagonal = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    for i, value in enumerate(beside[: size - 1]):
        tridiagonal[i, i + 1] = tridiagonal[i + 1, i] = value
    values, vectors = torch.linalg.eigh(tridiagonal)
    spanned = torch.stack(basis[:size])
    return tuple(
        Mode(float(values[-i]), unit(spanned.T @ vectors[:, -i].to(spanned)), abs(beside[-1] * float(vectors[-1, -i])))
        for i in range(1, min(modes, size) + 1)
    )


def of_run(folder: Path, settings: dict[str, Any], batches: int = 8) -> tuple[Mode, Along]:
    """The stiffest direction of the final model of a run, and κ along it with errors over batches.

    settings: those of the run, fields of `TrainConfig`. Half of the batches, drawn like the run's own, find the
    direction: the first eigenvector of the Fisher matrix. κ is measured on the other half, since a direction looks
    stiffer than it is on the rollouts that chose it. UserError where the run has no model.
    """
    if not (folder / "model" / "config.json").exists():
        raise UserError(f"{folder} holds no model to measure; --measure needs a finished run folder of grposcope train")
    known = {f.name for f in fields(TrainConfig)}
    setup = prepare(TrainConfig(**{name: value for name, value in settings.items() if name in known}))
    model = setup.policy.model
    model.load_state_dict(policies.load(str(folder / "model"), model.dtype, str(model.device)).model.state_dict())
    half = max(batches // 2, 2)
    some = [drawn(setup, k) for k in range(half)]
    products = [hessian_product(model, partial(fisher_loss, model, b, setup.config.temperature)) for b in some]
    start = torch.randn(setup.policy.parameters, generator=torch.Generator().manual_seed(0)).to(model.device)
    top = stiffest(lambda v: torch.stack([p(v) for p in products]).mean(0), start, 12)[0]
    found = []
    for k in range(half, 2 * half):
        batch = drawn(setup, k)
        seen = line(model, batch, top.vector, setup.config.temperature, setup.micro_batch)
        found.append(along(seen, batch, objective_weights(setup, batch)))
    return top, Along(*(Estimate.mean([getattr(x, f.name).value for x in found]) for f in fields(Along)))


def drawn(setup: Setup, number: int) -> Rollouts:
    """Batch `number` of rollouts of the present policy, on problems and random numbers that no run has used."""
    config = setup.config
    batch = collect(
        setup.policy,
        setup.task,
        setup.train_set,
        setup.objective,
        setup.sampling,
        (config.prompts, config.group),
        config.seed + 1_000_000,
        number * config.prompts,
        SOURCES[config.credit].needs_steps,
    )
    return batch.rollouts


def objective_weights(setup: Setup, batch: Rollouts) -> Weigh:
    """The weights ∂L/∂log π of a run's objective on a batch, its KL to the reference included."""
    temperature = setup.config.temperature
    credit = per_token(setup.config.credit, setup.objective, batch, torch.float64)
    reference = None
    if setup.reference is not None:
        reference = frozen_logprobs(setup.reference, batch, temperature, setup.micro_batch).double()

    def weigh(now: Tensor, old: Tensor, rollouts: Rollouts) -> Tensor:
        return setup.objective.weights(now, old, rollouts, credit=credit, logp_ref=reference)

    return weigh
