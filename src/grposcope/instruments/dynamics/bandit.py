"""Softmax bandits: the smallest policies in which the dynamics of GRPO can be tested, batched over runs.

A bandit has C contexts with K arms each and a logit per arm: π = softmax(θ). It climbs the mean over
contexts of J = Σ π_k r_k − λ KL(π ‖ π_ref), whose gradient is

    F_k = π_k (f_k − Σ π f)/C,     f_k = r_k − λ log(π_k/π_ref,k)      (exact, `group=None`).

Sampled, a group of G arms with counts n and advantages A gives w_k = n_k A_k/G and the gradient
(w − (Σw) π)/C. Rollouts are drawn every `interval` steps and kept. What the kept w does in between is the
importance-ratio mode: `none` keeps w (a force frozen at the refresh, since Σw = 0), `unclipped` multiplies
w_k by ρ_k = π_k/π_old,k (in expectation the current gradient), `clipped` drops the arms PPO's clip holds.
With `kl_in="reward"` the KL is a part of the reward and as old as the rollouts; with "loss" its exact
gradient is always current. The optimiser is heavy ball, or Adam with β₁ = momentum.

Every run has a random stream of its own, made from its seed: its result does not depend on what else is
in the batch, nor on the order. Equal seeds in different settings share their draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics import count_advantages

Array = NDArray[np.float64]

CACHED = 32768
"""Logits per piece of the batch: pieces whose arrays stay in the cache run several times faster."""
LARGEST_GROUP = 2**16 - 1
"""Most rollouts of a group: counts are kept in 16 bits."""
DRAWN, TILE = 64, 64
"""Refreshes for which a run draws its uniforms at once, and runs whose draws are turned at once."""


@dataclass(frozen=True)
class _Simulation:
    """Result of a batch of R runs. `steps` (S,) are the recorded steps, 0 first.

    value (R, S) is the expected reward Σ π r, averaged over contexts; observed (R, S) the mean reward of the
    rollouts in use after each step (the value itself in exact mode). logits (R, C, K) are the last ones;
    path (R, S, C, K) all recorded ones if asked for. lr, momentum, interval and seeds are (R,).
    """

    steps: NDArray[np.int64]
    value: Array
    observed: Array
    logits: Array
    path: Array | None
    lr: Array
    momentum: Array
    interval: NDArray[np.int64]
    seeds: NDArray[np.int64]


@dataclass(frozen=True)
class _SweepSettings:
    """Settings that the runs of one call of `Bandit.simulate` share.

    group: rollouts per context and refresh, or None for the exact expected gradient.
    start: logits, (C, K) or (R, C, K), None for those of the reference.
    advantage: a name of `advantages.FORMULAS`, with its ddof and advantage_eps.
    binary: an arm pays 1 with probability r_k, else 0.
    every: record each so many steps.
    """

    group: int | None
    start: ArrayLike | None = None
    advantage: str = "leave_one_out"
    ratio: Literal["none", "unclipped", "clipped"] = "none"
    clip_low: float = 0.2
    clip_high: float = 0.2
    optimizer: Literal["sgd", "adam"] = "sgd"
    beta2: float = 0.999
    eps: float = 1e-8
    kl_in: Literal["reward", "loss"] = "reward"
    binary: bool = False
    ddof: int | None = None
    advantage_eps: float | None = None
    every: int = 1
    keep_path: bool = False


class Bandit:
    """Arms with mean rewards (K,) or (C, K), a reference policy of the same shape (uniform), a KL weight."""

    def __init__(self, rewards: ArrayLike, reference: ArrayLike | None = None, kl: float = 0.0):
        self.rewards = np.atleast_2d(np.asarray(rewards, dtype=np.float64))
        if self.rewards.ndim != 2 or self.rewards.shape[1] < 2 or not np.isfinite(self.rewards).all():
            raise UserError("rewards must be finite numbers of shape (arms,) or (contexts, arms), at least two arms")
        contexts, arms = self.rewards.shape
        base = np.full((contexts, arms), 1 / arms) if reference is None else np.asarray(reference, dtype=np.float64)
        base = np.broadcast_to(base, (contexts, arms))
        if not ((base > 0).all() and np.allclose(base.sum(-1), 1)):
            raise UserError("reference must hold probabilities above 0 that add up to 1 over the arms")
        if not kl >= 0:
            raise UserError(f"kl {kl:g} must be at least 0")
        self.reference, self.kl = base, float(kl)

    def policy(self, logits: ArrayLike) -> Array:
        """π = softmax over the last axis, (..., C, K)."""
        theta = np.asarray(logits, dtype=np.float64)
        weights = np.exp(theta - theta.max(-1, keepdims=True))
        return np.asarray(weights / weights.sum(-1, keepdims=True))

    def value(self, logits: ArrayLike) -> Array:
        """Expected reward, averaged over contexts, (...)."""
        return np.asarray((self.policy(logits) * self.rewards).sum(-1).mean(-1))

    def gradient(self, logits: ArrayLike) -> Array:
        """∇J, (..., C, K)."""
        policy = self.policy(logits)
        payoff = self._payoff(policy)
        return policy * (payoff - (policy * payoff).sum(-1, keepdims=True)) / len(self.rewards)

    def hessian(self, logits: ArrayLike) -> Array:
        """∂F_k/∂θ_j at logits (C, K), a block per context: (C, K, K). At the fixed point −λ(diag π − ππᵀ)/C."""
        policy = self.policy(logits)
        payoff = self._payoff(policy)
        above = payoff - (policy * payoff).sum(-1, keepdims=True)
        moved = policy[:, :, None] * (np.eye(policy.shape[-1]) - policy[:, None, :])
        pulled = policy[:, :, None] * (policy * above)[:, None, :]
        return ((above[:, :, None] - self.kl) * moved - pulled) / len(self.rewards)

    def fixed_point(self) -> Array:
        """The logits (C, K) of π* ∝ π_ref e^{r/λ}, centred; needs kl > 0."""
        if not self.kl:
            raise UserError("without a KL term a softmax bandit has no interior fixed point; set kl above 0")
        logits = np.log(self.reference) + self.rewards / self.kl
        return np.asarray(logits - logits.mean(-1, keepdims=True))

    def stiffness(self, logits: ArrayLike | None = None) -> Array:
        """κ: the eigenvalues of −∂F/∂θ at `logits` (default: the fixed point), decreasing, (C·(K−1),).

        The flat direction of a softmax, all logits together, is left out.
        """
        blocks = -self.hessian(self.fixed_point() if logits is None else logits)
        values = []
        for block in blocks:
            eigenvalues = np.linalg.eigvalsh((block + block.T) / 2)
            values.append(np.delete(eigenvalues, np.abs(eigenvalues).argmin()))
        return np.sort(np.concatenate(values))[::-1]

    def simulate(
        self,
        lr: ArrayLike,
        momentum: ArrayLike,
        interval: ArrayLike,
        group: int | None,
        steps: int,
        seeds: ArrayLike = 0,
        **shared: Any,
    ) -> _Simulation:
        """Run R runs at once; lr, momentum, interval and seeds broadcast to (R,).

        group and `shared` are the fields of `_SweepSettings`. UserError for settings that cannot work.
        """
        settings = _SweepSettings(group, **shared)
        every, start = settings.every, settings.start
        rates, betas, intervals, streams = (np.atleast_1d(np.asarray(a)) for a in (lr, momentum, interval, seeds))
        rates, betas, intervals, streams = np.broadcast_arrays(rates, betas, intervals, streams)
        self._check(settings, rates, betas, intervals, steps, every)
        runs, (contexts, arms) = len(rates), self.rewards.shape
        begin = np.log(self.reference) if start is None else np.asarray(start, dtype=np.float64)
        logits = np.array(np.broadcast_to(begin, (runs, contexts, arms)))
        recorded = np.arange(0, steps + 1, every)
        value, observed = np.empty((2, len(recorded), runs))  # a record is a row, written in one go
        path = np.empty((len(recorded), runs, contexts, arms)) if settings.keep_path else None
        size = max(16, CACHED // (contexts * arms))
        for first in range(0, runs, size):
            rows = slice(first, min(first + size, runs))
            piece = _Piece(self, settings, logits[rows], rates[rows], betas[rows], intervals[rows], streams[rows])
            part = None if path is None else path[:, rows]
            logits[rows] = piece.run(steps, every, value[:, rows], observed[:, rows], part)
        return _Simulation(recorded, value.T, observed.T, logits, None if path is None else path.swapaxes(0, 1),
                          rates.astype(float), betas.astype(float), intervals.astype(np.int64),
                          streams.astype(np.int64))  # fmt: skip

    def _payoff(self, policy: Array) -> Array:
        return np.asarray(self.rewards - self.kl * np.log(policy / self.reference) if self.kl else self.rewards)

    def _check(self, s: _SweepSettings, lr: Array, momentum: Array, interval: Array, steps: int, every: int) -> None:
        if not ((lr > 0) & np.isfinite(lr)).all():
            raise UserError("lr must be above 0 and finite")
        if not ((momentum >= 0) & (momentum < 1)).all():
            raise UserError("momentum must be at least 0 and below 1")
        if not ((interval >= 1) & (interval == np.floor(interval))).all():
            raise UserError("interval must be a whole number of optimiser steps, at least 1")
        if steps < 1 or every < 1:
            raise UserError("steps and every must be at least 1")
        if s.group is not None and not 1 <= s.group <= LARGEST_GROUP:
            raise UserError(f"group {s.group} must be from 1 to {LARGEST_GROUP}, or None for the exact gradient")
        if s.binary and not ((self.rewards >= 0) & (self.rewards <= 1)).all():
            raise UserError("binary rewards are probabilities: rewards must be between 0 and 1")
        allowed = {"ratio": ("none", "unclipped", "clipped"), "optimizer": ("sgd", "adam"), "kl_in": ("reward", "loss")}
        for name, choices in allowed.items():
            if getattr(s, name) not in choices:
                raise UserError(f"{name} {getattr(s, name)!r} must be one of {', '.join(choices)}")
        count_advantages.formula(s.advantage)
        if s.clip_low < 0 or s.clip_high < 0:
            raise UserError("clip_low and clip_high must not be negative")


class _Piece:
    """Some runs of a batch, as arrays with the runs last: (C, K, R)."""

    def __init__(self, bandit: Bandit, s: _SweepSettings, logits: Array, lr: Array, momentum: Array, interval: Array,
                 seeds: Array):  # fmt: skip
        self.bandit, self.s = bandit, s
        self.theta = np.ascontiguousarray(np.moveaxis(logits, 0, -1))
        shape = contexts, arms, runs = self.theta.shape
        self.velocity, self.force, self.policy, self.scratch = (np.zeros(shape) for _ in range(4))
        self.second = np.zeros(shape) if s.optimizer == "adam" else None
        self.lr, self.momentum = lr.astype(float), momentum.astype(float)
        self.interval = interval.astype(int)
        self.together = bool((interval == interval[0]).all())
        self.value, self.observed = np.zeros((2, runs))
        self.worth = np.zeros((contexts, runs))
        self.rate = self.lr / contexts
        self.rewards, self.log_reference = bandit.rewards[:, :, None], np.log(bandit.reference)[:, :, None]
        self.totals = np.stack([np.ones_like(bandit.rewards), bandit.rewards], 1)  # (C, 2, K)
        self.outcomes = arms * (2 if s.binary else 1)
        # Weights since the refresh, times η/C; gains and losses are separate, since a clip treats them differently.
        self.gain, self.loss = np.zeros((2, *shape))
        self.old: Array | None = np.ones(shape) if s.ratio != "none" else None
        self.sums_to_zero = s.group is None or count_advantages.FORMULAS[s.advantage].sums_to_zero
        if s.group is not None:
            extra = {"ddof": s.ddof, "eps": s.advantage_eps}
            self.advantage = count_advantages.formula(s.advantage, **{k: v for k, v in extra.items() if v is not None})
            self.random = [np.random.Generator(np.random.PCG64(int(seed))) for seed in seeds]
            self.uniforms = np.empty((DRAWN, contexts * s.group, runs))

    def run(self, steps: int, every: int, value: Array, observed: Array, path: Array | None) -> Array:
        """Take all steps, filling value and observed (S, R) and path (S, R, C, K); returns the logits (R, C, K)."""
        self._evaluate()
        for step in range(steps):
            due = slice(None) if self.together else np.flatnonzero(step % self.interval == 0)
            if (step % self.interval[0] == 0) if self.together else len(due):  # type: ignore[arg-type]
                self._refresh(step, due)
            if step == 0:
                self._record(0, value, observed, path)
            self._step(step)
            self._evaluate()
            if (step + 1) % every == 0:
                self._record((step + 1) // every, value, observed, path)
        return np.moveaxis(self.theta, -1, 0)

    def _evaluate(self) -> None:
        """The policy and its value at the present logits."""
        np.subtract(self.theta, self.theta.max(1, keepdims=True), out=self.policy)
        np.exp(self.policy, out=self.policy)
        total, paid = np.moveaxis(self.totals @ self.policy, 1, 0)
        inverse = 1 / total
        self.policy *= inverse[:, None]
        self.worth = paid * inverse
        self.value = self.worth.mean(0)

    def _record(self, row: int, value: Array, observed: Array, path: Array | None) -> None:
        value[row] = self.value
        observed[row] = self.value if self.s.group is None else self.observed
        if path is not None:
            path[row] = np.moveaxis(self.theta, -1, 0)

    def _refresh(self, step: int, due: slice | NDArray[np.int64]) -> None:
        """Draw new rollouts for the runs `due` and keep their weights per arm."""
        policy, payoff, worth = self.policy[..., due], self.rewards, self.worth[:, None, due]
        if self.bandit.kl and self.s.kl_in == "reward":
            payoff = payoff - self.bandit.kl * (np.log(policy) - self.log_reference)
            worth = (policy * payoff).sum(1, keepdims=True)
        if self.s.group is None:
            weights = payoff - worth
            weights *= policy
            gain, loss = weights, None
        else:
            gain, loss = self._sampled(step, due, policy, payoff)
        if self.s.ratio == "clipped" and loss is None:
            gain, loss = np.maximum(gain, 0), np.minimum(gain, 0)
        gain *= self.rate[due]
        self.gain[..., due] = gain
        if loss is not None:
            loss *= self.rate[due]
            self.loss[..., due] = loss
        if self.old is not None:
            self.old[..., due] = policy

    def _sampled(
        self, step: int, due: slice | NDArray[np.int64], policy: Array, payoff: Array
    ) -> tuple[Array, Array | None]:
        """Weights n A/G per arm from one group per context; gains and losses apart where the clip needs it."""
        group = self.s.group
        assert group is not None
        arms = policy.shape[1]
        chances = np.concatenate([policy * self.rewards, policy * (1 - self.rewards)], 1) if self.s.binary else policy
        counts = self._draw(step, due, chances, group)
        values = np.concatenate([payoff - self.rewards + 1, payoff - self.rewards], 1) if self.s.binary else payoff
        plain = np.repeat([1.0, 0.0], arms)[None, :, None] if self.s.binary else self.rewards
        self.observed[due] = np.einsum("cor,co->r", counts, np.broadcast_to(plain, counts.shape)[..., 0]) / (
            group * len(counts)
        )
        weights = self.advantage(values, counts, group) * counts
        weights /= group
        if self.s.ratio != "clipped":
            return (weights[:, :arms] + weights[:, arms:] if self.s.binary else weights), None
        gain, loss = np.maximum(weights, 0), np.minimum(weights, 0)
        if self.s.binary:
            return gain[:, :arms] + gain[:, arms:], loss[:, :arms] + loss[:, arms:]
        return gain, loss

    def _draw(self, step: int, due: slice | NDArray[np.int64], chances: Array, group: int) -> Array:
        """Counts of `group` draws per context from `chances` (C, O, R), by inversion of each run's own uniforms."""
        contexts, outcomes, runs = chances.shape
        rows = np.arange(len(self.random))[due]
        turn = (step // self.interval[rows]) % DRAWN
        self._refill(rows[turn == 0])
        picked = self.uniforms[turn[0]] if self.together else self.uniforms[turn, :, rows].T
        uniforms = picked.reshape(contexts, group, 1, runs)
        edges = chances[:, :-1].copy()
        for k in range(1, outcomes - 1):
            edges[:, k] += edges[:, k - 1]
        below = np.zeros((contexts, outcomes + 1, runs), np.uint8 if group < 256 else np.uint16)
        below[:, -1] = group  # how many uniforms lie below each edge
        inside = np.empty(edges.shape, np.bool_)
        for i in range(group):
            np.less(uniforms[:, i], edges, out=inside)
            below[:, 1:-1] += inside
        return np.subtract(below[:, 1:], below[:, :-1], dtype=np.float64)

    def _refill(self, rows: NDArray[np.int64]) -> None:
        """The next DRAWN refreshes of uniforms for some runs, turned to runs last a tile at a time."""
        for first in range(0, len(rows), TILE):
            some = rows[first : first + TILE]
            tile = np.empty((len(some), self.uniforms.shape[0] * self.uniforms.shape[1]))
            for row, run in zip(tile, some, strict=True):
                self.random[run].random(out=row)
            where = slice(some[0], some[-1] + 1) if self.together else some
            self.uniforms[:, :, where] = tile.T.reshape(*self.uniforms.shape[:2], len(some))

    def _step(self, step: int) -> None:
        """One optimiser step with what the refresh left. All forces carry the factor η."""
        force, scratch = self.force, self.scratch
        weights = self.gain
        if self.old is not None:
            ratio = np.divide(self.policy, self.old, out=scratch)
            if self.s.ratio == "clipped":
                weights = ratio * np.where(ratio <= 1 + self.s.clip_high, self.gain, 0)
                weights += ratio * np.where(ratio >= 1 - self.s.clip_low, self.loss, 0)
            else:
                weights = ratio * self.gain
        if self.old is not None or not self.sums_to_zero:
            np.multiply(self.policy, weights.sum(1, keepdims=True), out=scratch)
            weights = np.subtract(weights, scratch, out=force)
        if self.bandit.kl and self.s.kl_in == "loss":
            excess = np.log(self.policy) - self.log_reference
            excess -= (self.policy * excess).sum(1, keepdims=True)
            weights = weights - self.bandit.kl * self.rate * self.policy * excess
        self.velocity *= self.momentum
        if self.second is None:
            self.velocity += weights
            self.theta += self.velocity
            return
        self.velocity += (1 - self.momentum) * weights
        self.second *= self.s.beta2
        self.second += (1 - self.s.beta2) * weights * weights
        spread = np.sqrt(self.second / (1 - self.s.beta2 ** (step + 1))) + self.s.eps * self.lr
        self.theta += self.lr / (1 - self.momentum ** (step + 1)) * self.velocity / spread
