"""Curvature of a network, against a softmax bandit whose Jacobian is known and against brute force."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics.bandit import Bandit
from grposcope.lab.objectives import advantages
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.logprobs import token_logprobs
from grposcope.lab.train import pretrain
from grposcope.lab.train.run_curvature import (
    TokenWeights,
    _directional_curvature,
    _directional_logprobs,
    _DirectionalCurvature,
    _DirectionalLogProbs,
    _fisher_product,
    _hessian_product,
    _largest_eigenpairs,
    _model_logprobs,
    _parameter_vector,
    _response,
    _set_parameters,
    _unit,
)

REWARDS = torch.tensor([0.1, 0.9, 0.4], dtype=torch.float64)
POPULATION = torch.tensor([0, 1, 1, 2])  # what the policy (1/4, 1/2, 1/4) draws, each with the same chance
REFERENCE = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64).log()
KL = 0.4
U = _unit(torch.tensor([0.5, -1.0, 0.2]))


class Table(nn.Module):
    """A language model of one token: the same logits after every prompt, a softmax bandit."""

    config = SimpleNamespace(_attn_implementation="eager")
    dtype = torch.float32

    def __init__(self, logits: Tensor):
        super().__init__()
        self.logits = nn.Parameter(logits.clone().float())

    def forward(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, use_cache: bool,
                logits_to_keep: int) -> Any:  # fmt: skip
        """The logits after each of the last inputs."""
        return SimpleNamespace(logits=self.logits.expand(len(input_ids), logits_to_keep, -1))


def rollouts(arms: Tensor) -> RolloutBatch:
    """Groups of arms (P, G) as completions of one token."""
    rows = arms.numel()
    ones, zeros = torch.ones(rows, 1, dtype=torch.bool), torch.zeros(rows, 1)
    return RolloutBatch(torch.ones(rows, 1, dtype=torch.long), ones, arms.reshape(-1, 1), ones, zeros, zeros,
                    torch.zeros(rows, dtype=torch.bool), REWARDS[arms])  # fmt: skip


def every_group(size: int) -> RolloutBatch:
    """All groups, each as often as its chance: means over them are expectations."""
    return rollouts(torch.tensor(list(product(POPULATION.tolist(), repeat=size))))


def table() -> Any:
    return Table(torch.tensor([0.25, 0.5, 0.25]).log())


def stale_kl(now: Tensor, old: Tensor, batch: RolloutBatch) -> Tensor:
    """Leave-one-out, no ratio, the KL inside the reward."""
    payoff = batch.rewards - KL * (old - REFERENCE[batch.tokens]).reshape(batch.rewards.shape)
    return -advantages.leave_one_out(payoff).reshape(-1, 1) / len(now)


def ratioed(now: Tensor, old: Tensor, batch: RolloutBatch) -> Tensor:
    """Leave-one-out with the unclipped importance ratio."""
    return -(now - old).exp() * advantages.leave_one_out(batch.rewards).reshape(-1, 1) / len(now)


def standardized(now: Tensor, old: Tensor, batch: RolloutBatch) -> Tensor:
    return -advantages.standardized(batch.rewards).reshape(-1, 1) / len(now)


def along(model: Any, batch: RolloutBatch, direction: Tensor) -> _DirectionalLogProbs:
    return _directional_logprobs(model, batch, direction, _model_logprobs(model))


def seen(group: int, weigh: TokenWeights) -> _DirectionalCurvature:
    batch = every_group(group)
    return _directional_curvature(along(table(), batch, U), batch, weigh)


def quadratic(bandit: Bandit, logits: Tensor) -> float:
    return -float(U.numpy() @ bandit.hessian(logits.detach().double().numpy()[None])[0] @ U.numpy())


def test_a_frozen_force_is_stale_throughout() -> None:
    bandit = Bandit(REWARDS.numpy(), REFERENCE.exp().numpy(), KL)
    measured, logits = seen(2, stale_kl), table().logits
    assert measured.stale.value == pytest.approx(quadratic(bandit, logits), rel=2e-3)
    assert abs(measured.current.value) < 1e-4
    gradient = bandit.gradient(logits.detach().numpy()[None])[0]
    assert measured.force.value == pytest.approx(float(gradient @ U.numpy()), rel=1e-3)
    policy = np.array([0.25, 0.5, 0.25])
    assert measured.fisher.value == pytest.approx(policy @ U.numpy() ** 2 - (policy @ U.numpy()) ** 2, rel=1e-3)


def test_an_unclipped_ratio_leaves_nothing_stale() -> None:
    measured = seen(2, ratioed)
    assert measured.current.value == pytest.approx(quadratic(Bandit(REWARDS.numpy()), table().logits), rel=2e-3)
    assert abs(measured.stale.value) < 1e-4
    assert measured.curvature.value == pytest.approx(measured.current.value + measured.stale.value)


def test_an_advantage_of_the_whole_group() -> None:
    """Standardized advantages depend on the group, so the group is what has to be re-weighted."""

    def force(logits: Tensor) -> float:
        policy = logits.softmax(-1)
        total = 0.0
        for arms in product(range(3), repeat=3):
            credit = advantages.standardized(REWARDS[list(arms)][None])[0]
            scores = torch.eye(3, dtype=torch.float64)[list(arms)] - policy
            total += float(policy[list(arms)].prod() * (credit[:, None] * scores).mean(0) @ U.double())
        return total

    logits, h = table().logits.detach().double(), 1e-4
    brute = -(force(logits + h * U) - force(logits - h * U)) / (2 * h)
    assert seen(3, standardized).curvature.value == pytest.approx(brute, rel=2e-3)


def test_response_agrees_with_the_jacobian() -> None:
    bandit = Bandit(REWARDS.numpy(), REFERENCE.exp().numpy(), KL)
    model: Any = Table(torch.tensor(bandit.fixed_point()[0]))
    before = model.logits.detach().clone()

    def draw(k: int) -> RolloutBatch:
        stream = torch.Generator().manual_seed(k)
        return rollouts(torch.multinomial(model.logits.detach().softmax(-1), 1024, True, generator=stream).view(-1, 8))

    measured = _response(model, U, draw, _model_logprobs(model), stale_kl, 0.1, 8)
    assert abs(measured.value - quadratic(bandit, before)) < 3 * measured.se
    assert 0 < measured.se < 0.15 * measured.value
    assert torch.equal(model.logits, before)


def test_stiffest_direction_of_a_bandit() -> None:
    bandit = Bandit(REWARDS.numpy(), REFERENCE.exp().numpy(), KL)
    model: Any = Table(torch.tensor(bandit.fixed_point()[0]))

    def loss() -> Tensor:
        logp = model.logits.log_softmax(-1)
        return -(logp.exp() * (REWARDS - KL * (logp - REFERENCE))).sum()

    product_ = _hessian_product(model, loss)
    modes = _largest_eigenpairs(product_, torch.tensor([1.0, 2.0, -1.0]), count=2)
    assert [m.value for m in modes] == pytest.approx(bandit.stiffness(), rel=1e-4)
    for mode in modes:
        residual = product_(mode.vector) - mode.value * mode.vector
        assert float(residual.norm()) < 1e-5
        assert float(mode.vector.norm()) == pytest.approx(1)


def test_lanczos_against_dense_eigenvalues() -> None:
    torch.manual_seed(0)
    root = torch.randn(60, 60, dtype=torch.float64)
    matrix = root @ root.T - 20 * torch.eye(60, dtype=torch.float64)
    exact = torch.linalg.eigvalsh(matrix).flip(0)
    few = _largest_eigenpairs(lambda v: matrix @ v, torch.randn(60, dtype=torch.float64), steps=12)
    assert few[0].value <= float(exact[0]) + 1e-9  # Ritz values lie inside, and within the residual of an eigenvalue
    assert float((exact - few[0].value).abs().min()) <= few[0].residual
    far = _largest_eigenpairs(lambda v: matrix @ v, torch.randn(60, dtype=torch.float64), steps=60, count=3)
    assert [m.value for m in far] == pytest.approx(exact[:3].tolist())


@pytest.fixture(scope="module")
def network() -> tuple[Any, RolloutBatch]:
    """A small Llama and six rollouts of up to three tokens."""
    torch.manual_seed(1)
    model = pretrain._model(12, width=32, layers=1).eval()
    stream = torch.Generator().manual_seed(2)
    tokens = torch.randint(2, 12, (6, 3), generator=stream)
    mask = torch.arange(3) < torch.tensor([3, 2, 3, 1, 3, 2])[:, None]
    prompt, zeros = torch.randint(2, 12, (2, 4), generator=stream).repeat_interleave(3, 0), torch.zeros(6, 3)
    rewards = torch.rand(2, 3, dtype=torch.float64, generator=stream)
    return model, RolloutBatch(prompt, torch.ones(6, 4, dtype=torch.bool), tokens * mask, mask, zeros, zeros,
                           torch.zeros(6, dtype=torch.bool), rewards)  # fmt: skip


def scores(model: Any, batch: RolloutBatch) -> Tensor:
    """∇ log π of each rollout, (B, D)."""
    logp = token_logprobs(model, batch, torch.arange(6))[0].sum(-1)
    rows = [torch.autograd.grad(x, list(model.parameters()), retain_graph=True) for x in logp]
    return torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in rows])


def test_line_of_a_network(network: tuple[Any, RolloutBatch]) -> None:
    model, batch = network
    before = _parameter_vector(model)
    rows = scores(model, batch)
    direction = _unit(rows[0] - rows[4])
    measured = along(model, batch, direction)
    assert torch.equal(_parameter_vector(model), before)
    exact = rows @ direction
    assert torch.allclose(measured.first.sum(-1).float(), exact, rtol=0.01, atol=0.01 * float(exact.abs().max()))

    def total() -> Tensor:
        return token_logprobs(model, batch, torch.arange(6))[0].sum()

    second = float(_hessian_product(model, total)(direction) @ direction)
    assert float(measured.second.sum()) == pytest.approx(
        second, rel=0.03, abs=0.03 * float(measured.second.abs().sum())
    )
    assert float((measured.first * ~batch.mask).abs().max()) == 0


def test_fisher_matrix_of_a_network(network: tuple[Any, RolloutBatch]) -> None:
    model, batch = network
    rows = scores(model, batch)
    vector = torch.randn(rows.shape[1], generator=torch.Generator().manual_seed(4))
    measured = _fisher_product(model, batch)(vector)
    exact = rows.T @ (rows @ vector) / len(rows)
    assert torch.allclose(measured, exact, rtol=1e-3, atol=1e-3 * float(exact.abs().max()))
    top = _largest_eigenpairs(_fisher_product(model, batch), vector)[0]
    assert top.value == pytest.approx(float(torch.linalg.eigvalsh(rows @ rows.T / len(rows))[-1]), rel=1e-3)


def test_hessian_product_against_differences_of_gradients() -> None:
    torch.manual_seed(5)
    model: Any = pretrain._model(12, width=32, layers=1).double().eval()
    ids = torch.randint(2, 12, (3, 5))

    def loss() -> Tensor:
        logits: Tensor = model(input_ids=ids, use_cache=False).logits
        return logits.log_softmax(-1)[:, :, 3].square().mean()

    def gradient(at: Tensor) -> Tensor:
        _set_parameters(model, at)
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss(), list(model.parameters()))])

    centre, h = _parameter_vector(model), 1e-2  # the norms of a Llama are in float32 whatever its type
    vector = _unit(torch.randn(len(centre), dtype=torch.float64))
    brute = (gradient(centre + h * vector) - gradient(centre - h * vector)) / (2 * h)
    _set_parameters(model, centre)
    measured = _hessian_product(model, loss)(vector)
    assert torch.allclose(measured, brute, rtol=1e-3, atol=1e-3 * float(brute.abs().max()))


def test_a_direction_needs_a_length() -> None:
    for vector in (torch.zeros(3), torch.tensor([1.0, float("nan")])):
        with pytest.raises(UserError, match="direction"):
            _unit(vector)
