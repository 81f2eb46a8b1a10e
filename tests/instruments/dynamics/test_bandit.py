"""Bandits: gradients by differences, runs against a twin in plain loops, sampling against enumeration, stability."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics import bandit as module
from grposcope.instruments.dynamics import noise, refresh
from grposcope.instruments.dynamics.bandit import Bandit
from grposcope.instruments.dynamics.bandit_answer import _settings_grid
from grposcope.lab.objectives import advantages as reference

ARMS = np.array([[0.1, 0.5, 0.9, 0.3], [0.7, 0.2, 0.2, 0.6]])
PRIOR = np.array([[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.4, 0.1]])


def start(contexts: int = 2, arms: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((contexts, arms))


def objective(b: Bandit, logits: np.ndarray) -> float:
    policy = b.policy(logits)
    return float((policy * (b.rewards - b.kl * np.log(policy / b.reference))).sum(-1).mean())


# Gradients


@pytest.mark.parametrize("kl", [0.0, 0.3])
def test_gradient_and_hessian_are_derivatives(kl: float) -> None:
    b, at, h = Bandit(ARMS, PRIOR, kl), start(), 1e-5
    gradient, blocks = np.empty_like(at), np.zeros((2, 4, 4))
    for c, k in np.ndindex(at.shape):
        shift = np.zeros_like(at)
        shift[c, k] = h
        gradient[c, k] = (objective(b, at + shift) - objective(b, at - shift)) / (2 * h)
        blocks[c, :, k] = ((b.gradient(at + shift) - b.gradient(at - shift)) / (2 * h))[c]
    np.testing.assert_allclose(b.gradient(at), gradient, atol=1e-10)
    np.testing.assert_allclose(b.hessian(at), blocks, atol=1e-9)


def test_fixed_point_and_its_stiffness() -> None:
    b = Bandit(ARMS, PRIOR, 0.3)
    at = b.fixed_point()
    np.testing.assert_allclose(b.gradient(at), 0, atol=1e-15)
    policy = b.policy(at)
    expected = [-0.3 * (np.diag(p) - np.outer(p, p)) / 2 for p in policy]
    np.testing.assert_allclose(b.hessian(at), expected, atol=1e-15)
    assert len(b.stiffness()) == 6
    assert (b.stiffness() > 0).all()
    with pytest.raises(UserError, match="kl above 0"):
        Bandit(ARMS).fixed_point()


# Runs against a twin


def twin(b: Bandit, at: np.ndarray, lr: float, beta: float, interval: int, steps: int, **mode: Any) -> np.ndarray:
    """The exact dynamics of one run in plain steps; the path (steps + 1, C, K)."""
    theta, contexts = at.copy(), len(b.rewards)
    first, second, path = np.zeros_like(theta), np.zeros_like(theta), [at.copy()]
    in_reward = mode.get("kl_in", "reward") == "reward"
    for step in range(steps):
        if step % interval == 0:
            old = b.policy(theta)
            payoff = b.rewards - (b.kl * np.log(old / b.reference) if in_reward else 0)
            advantage = payoff - (old * payoff).sum(-1, keepdims=True)
        policy = b.policy(theta)
        ratio = policy / old
        force = np.zeros_like(theta)
        for c, k in np.ndindex(theta.shape):
            rho = {"none": 1.0, "unclipped": ratio[c, k], "clipped": ratio[c, k]}[mode.get("ratio", "none")]
            if mode.get("ratio") == "clipped":
                held_high = advantage[c, k] > 0 and rho > 1 + 0.2
                held_low = advantage[c, k] < 0 and rho < 1 - 0.2
                rho = 0.0 if held_high or held_low else rho
            weight = old[c, k] * advantage[c, k] * rho / contexts
            force[c] -= weight * policy[c]
            force[c, k] += weight
        if not in_reward:
            excess = np.log(policy / b.reference)
            force -= b.kl * policy * (excess - (policy * excess).sum(-1, keepdims=True)) / contexts
        if mode.get("optimizer") == "adam":
            first = beta * first + (1 - beta) * force
            second = 0.99 * second + 0.01 * force**2
            unbiased = first / (1 - beta ** (step + 1)), second / (1 - 0.99 ** (step + 1))
            theta = theta + lr * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
        else:
            first = beta * first + force
            theta = theta + lr * first
        path.append(theta)
    return np.array(path)


@pytest.mark.parametrize("ratio", ["none", "unclipped", "clipped"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kl_in", ["reward", "loss"])
def test_exact_runs_against_a_twin(ratio: str, optimizer: str, kl_in: str) -> None:
    b, at = Bandit(ARMS, PRIOR, 0.2), start()
    mode = {"ratio": ratio, "optimizer": optimizer, "kl_in": kl_in}
    lr, beta, interval = np.array([0.8, 0.3, 0.3]), np.array([0.0, 0.9, 0.5]), np.array([1, 7, 4])
    lr = lr / 10 if optimizer == "adam" else lr  # larger steps of Adam amplify rounding
    run = b.simulate(lr, beta, interval, None, 40, start=at, beta2=0.99, keep_path=True, **mode)
    assert run.path is not None
    for row in range(3):
        expected = twin(b, at, lr[row], beta[row], interval[row], 40, **mode)
        np.testing.assert_allclose(run.path[row], expected, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(run.value[row], b.value(expected), rtol=1e-11)
    np.testing.assert_array_equal(run.logits, run.path[:, -1])


def test_unclipped_ratio_has_no_lag_in_expectation() -> None:
    b = Bandit(ARMS, PRIOR, 0.2)
    fresh, stale = (
        b.simulate(0.5, 0.9, n, None, 60, start=start(), ratio="unclipped", kl_in="loss").value for n in (1, 20)
    )
    np.testing.assert_allclose(stale, fresh, rtol=1e-12)
    frozen = b.simulate(0.5, 0.9, 20, None, 60, start=start(), ratio="none", kl_in="loss").value
    assert np.abs(frozen - fresh).max() > 1e-2


# Sampling


def one_step(b: Bandit, at: np.ndarray, seeds: int, **mode: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean gradient of one sampled step over seeds and its standard error."""
    run = b.simulate(1.0, 0.0, 1, mode.pop("group", 4), 1, np.arange(seeds), start=at, **mode)
    moved = run.logits - at
    return moved.mean(0), moved.std(0) / np.sqrt(seeds)


@pytest.mark.parametrize("binary", [False, True])
def test_leave_one_out_is_unbiased(binary: bool) -> None:
    b, at = Bandit(ARMS, PRIOR, 0.2), start()
    found, error = one_step(b, at, 6000, binary=binary)
    assert (np.abs(found - b.gradient(at)) < 4.5 * error).all()
    assert (error < 0.004).all()


@pytest.mark.parametrize("name", ["none", "centered", "standardized", "mean_normalized", "whitened"])
def test_expectation_by_enumeration(name: str) -> None:
    """All 4³ groups of three arms of one context, their torch advantages and scores, against the sampled mean."""
    b, at, group = Bandit(ARMS[0]), start(1), 3
    policy = b.policy(at)[0]
    expected = np.zeros(4)
    for arms in itertools.product(range(4), repeat=group):
        rewards = torch.tensor([[b.rewards[0, a] for a in arms]], dtype=torch.float64)
        credit = getattr(reference, name)(rewards)[0].tolist()
        score = sum(a * (np.eye(4)[arm] - policy) for a, arm in zip(credit, arms, strict=True)) / group
        expected += np.prod(policy[list(arms)]) * score
    found, error = one_step(b, at, 6000, advantage=name, group=group)
    assert (np.abs(found[0] - expected) < 4.5 * error[0]).all()
    assert (error < 0.03).all()


def test_draws_follow_the_policy() -> None:
    b = Bandit([0.0, 1.0, 2.0, 3.0])
    run = b.simulate(1e-9, 0.0, 3, 16, 3, np.arange(3000), start=[[0.0, 1.0, -1.0, 0.5]])
    seen = run.observed[:, 0]
    spread = float(b.policy([[0.0, 1.0, -1.0, 0.5]])[0] @ (np.arange(4) - run.value[0, 0]) ** 2)
    assert seen.mean() == pytest.approx(run.value[0, 0], abs=4 * np.sqrt(spread / 16 / 3000))
    assert seen.var() == pytest.approx(spread / 16, rel=0.15)
    np.testing.assert_array_equal(run.observed[:, 0], run.observed[:, 2])  # the same rollouts for three steps


def test_refreshes_and_seeds_draw_afresh() -> None:
    """Rewards of successive batches, of the next block of draws, and of neighbouring seeds are uncorrelated."""
    for interval in (1, np.tile([1, 1, 2], 200)):
        run = Bandit([0.0, 1.0, 2.0]).simulate(1e-9, 0.0, interval, 4, 150, np.arange(600))
        seen = run.observed - run.observed.mean()
        power = (seen**2).mean()
        rows = slice(None) if np.ndim(interval) == 0 else interval == 1
        for lag in (1, 63, 64, 65):
            assert abs((seen[rows, lag:-1] * seen[rows, : -1 - lag]).mean()) < 0.03 * power
        assert abs((seen[1:] * seen[:-1]).mean()) < 0.03 * power


@pytest.mark.parametrize("mode", [{}, {"binary": True, "ratio": "clipped"}, {"advantage": "none", "optimizer": "adam"}])
def test_a_run_does_not_depend_on_its_neighbours(monkeypatch: pytest.MonkeyPatch, mode: dict[str, Any]) -> None:
    b = Bandit(ARMS, PRIOR, 0.1)
    seeds, intervals = np.arange(50), np.tile([1, 3, 4, 1, 2], 10)
    together = b.simulate(0.3, 0.5, intervals, 4, 150, seeds, **mode)
    again = b.simulate(0.3, 0.5, intervals, 4, 150, seeds, **mode)
    np.testing.assert_array_equal(together.logits, again.logits)
    monkeypatch.setattr(module, "CACHED", 1)
    apart = b.simulate(0.3, 0.5, intervals[::-1], 4, 150, seeds[::-1], **mode)
    np.testing.assert_allclose(apart.value[::-1], together.value, rtol=1e-9)
    alone = b.simulate(0.3, 0.5, 3, 4, 150, 6, **mode)
    np.testing.assert_allclose(alone.value[0], together.value[6], rtol=1e-9)
    assert np.abs(together.value[0] - together.value[3]).max() > 1e-3  # other seeds, other draws


def test_clip_holds_a_run_back() -> None:
    """Within one refresh a clipped run cannot go far past the ratio 1.2; a frozen or unclipped one can."""
    b = Bandit([0.0, 0.2, 0.4, 1.0])
    moved = {
        ratio: b.simulate(0.5, 0.0, 1000, None, 200, ratio=ratio).value[0, -1]
        for ratio in ("none", "unclipped", "clipped")
    }
    assert moved["clipped"] < 0.55 < 0.9 < moved["unclipped"]
    assert moved["none"] > 0.9


# Dynamics


@pytest.mark.parametrize(("momentum", "lr"), [(0.0, 2.0), (0.9, 0.3)])
def test_threshold_is_where_the_bandit_blows_up(momentum: float, lr: float) -> None:
    b = Bandit([0.1, 0.5, 0.9, 0.3], kl=0.4)
    kappa = b.stiffness()[0]
    last = int(refresh.threshold(lr, momentum, kappa))
    intervals = np.arange(last - 3, last + 5)
    at = b.fixed_point()
    at = at + 1e-4 * np.linalg.eigh(-b.hessian(at)[0])[1][:, -1]
    run = b.simulate(lr, momentum, intervals, None, 300 * (last + 5), start=at, keep_path=True, every=7)
    assert run.path is not None
    distance = np.linalg.norm(run.path - b.fixed_point(), axis=(-2, -1))
    ended = distance[:, -200:].max(-1)
    np.testing.assert_array_equal(ended > 1e-3, intervals > last)
    np.testing.assert_array_equal(ended < 1e-4, intervals <= last)


@pytest.mark.parametrize("group", [4, 32])
def test_stationary_variance_of_a_two_armed_bandit(group: int) -> None:
    """One mode, u = (1, −1)/√2: the variance of one sampled gradient along u (Σ₁/G + Δ/(G(G−1)), exact), held for a
    cycle and put through the cycle map, is the variance that the runs have."""
    b, lr, momentum, interval = Bandit([0.4, 0.6], kl=0.5), 0.1, 0.5, 3
    policy, kappa = b.policy(b.fixed_point())[0], float(b.stiffness()[0])
    direction = np.array([1, -1]) / np.sqrt(2)
    shift = -0.5 * np.log(policy / 0.5)
    chance = np.concatenate([policy * b.rewards[0], policy * (1 - b.rewards[0])])
    paid = np.concatenate([1 + shift, shift])
    score = np.tile(direction - policy @ direction, 2)
    above = paid - chance @ paid
    oracle = chance @ (above * score) ** 2 - (chance @ (above * score)) ** 2
    extra = (chance @ above**2) * (chance @ score**2)
    variance = oracle / group + extra / (group * (group - 1))
    run = b.simulate(lr, momentum, interval, group, 1500, np.arange(500), start=b.fixed_point(), every=60,
                     keep_path=True, binary=True)  # fmt: skip
    assert run.path is not None
    mode = (run.path[:, 4:, 0] - b.fixed_point()[0]) @ direction
    expected = noise.stationary_variance(lr, momentum, kappa, interval, variance)
    assert mode.var() == pytest.approx(expected, rel=0.1)


def test_settings_grid() -> None:
    grid = _settings_grid(lr=[0.1, 0.2], interval=[1, 2, 3])
    assert list(zip(grid["lr"], grid["interval"], strict=True)) == list(itertools.product([0.1, 0.2], [1, 2, 3]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": 0.0}, "lr"),
        ({"momentum": 1.0}, "momentum"),
        ({"interval": 0}, "interval"),
        ({"interval": 2.5}, "interval"),
        ({"group": 0}, "group"),
        ({"steps": 0}, "steps"),
        ({"ratio": "half"}, "ratio"),
        ({"optimizer": "lion"}, "optimizer"),
        ({"advantage": "best"}, "unknown advantage"),
        ({"clip_low": -1.0}, "clip"),
    ],
)
def test_bad_settings(given: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"lr": 0.1, "momentum": 0.0, "interval": 1, "group": 4, "steps": 5}
    with pytest.raises(UserError, match=message):
        Bandit(ARMS).simulate(**{**settings, **given})


def test_bad_bandits() -> None:
    for bad in ([[1.0]], [np.nan, 1.0], np.zeros((2, 2, 2))):
        with pytest.raises(UserError, match="rewards"):
            Bandit(bad)
    with pytest.raises(UserError, match="reference"):
        Bandit(ARMS, [0.5, 0.5, 0.5, 0.5])
    with pytest.raises(UserError, match="kl"):
        Bandit(ARMS, kl=-1.0)
    with pytest.raises(UserError, match="binary"):
        Bandit([0.0, 2.0]).simulate(0.1, 0.0, 1, 4, 5, binary=True)
    with pytest.raises(UserError, match="two rollouts"):
        Bandit(ARMS).simulate(0.1, 0.0, 1, 1, 5)
    with pytest.raises(UserError, match="rewards ≥ 0"):
        Bandit([-1.0, 1.0]).simulate(0.1, 0.0, 1, 4, 5, advantage="mean_normalized")
