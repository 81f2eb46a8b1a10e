"""Worlds of prompts whose best group size is known exactly, and probes drawn from them, for `plan_coverage.py`.

A world is a finite population of prompts. Rewards are 0 or 1 with the prompt's own success rate; given the reward,
the scores of rollouts are independent draws with known mean and scatter. That is all that any moment of a
group's gradient depends on, so the truth is a sum over the population, at any group size and for any advantage that
is a function of the group's rewards. Seven families, of four structures:

    classes     success rates of a Beta law, lognormal gradient scales, Gaussian scores around two class means
    alike       the same with prompts of similar difficulty and direction, so that G* is large
    uneven      the same with extreme success rates and gradients of very unequal size
    heavy       classes whose gradients and scatters have lognormal scales of σ = 1.2, so that few prompts carry most
    softmax     a softmax policy over 24 answers with features: scores are φ(answer) − E φ, so that their mean,
                length and scatter depend on the outcome and on the success rate
    mixture     most prompts never (or always) solved, the others at one of three rates; scores with heavy tails
                (Student t, 5 degrees of freedom), short ones where the answer is right
    opposed     tasks in four clusters whose gradients partly oppose one another, so that ‖E g‖² is small against
                V_p; gradients are larger where success is rare
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

POPULATION = 3000


@dataclass(frozen=True)
class World:
    """A population of N prompts.

    success (N,). plus, minus (N, D): mean scores of successes and failures; plus_scatter, minus_scatter (N,): traces
    of their covariances. features (N, A, D) and chances (N, A): of the answers of a softmax policy, None elsewhere;
    right (N, A): which are right. tail: degrees of freedom of Student scores, 0 for Gaussian ones.
    """

    success: NDArray
    plus: NDArray
    minus: NDArray
    plus_scatter: NDArray
    minus_scatter: NDArray
    tail: int = 0
    features: NDArray | None = None
    chances: NDArray | None = None
    right: NDArray | None = None

    def draw(self, prompts: int, group: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
        """Scores (P, G, D) and rewards (P, G) of a probe."""
        who = rng.integers(len(self.success), size=prompts)
        if self.features is not None and self.chances is not None and self.right is not None:
            ladder = np.cumsum(self.chances[who], -1)
            answers = (rng.random((prompts, group, 1)) * ladder[:, None, -1:] > ladder[:, None]).sum(-1)
            return self.features[who[:, None], answers], self.right[who[:, None], answers].astype(float)
        rewards = (rng.random((prompts, group)) < self.success[who, None]).astype(float)
        up, size = rewards[..., None] > 0, self.plus.shape[1]
        scatter = np.where(rewards > 0, self.plus_scatter[who, None], self.minus_scatter[who, None])
        noise = rng.standard_normal((prompts, group, size)) * np.sqrt(scatter / size)[..., None]
        if self.tail:
            chi = rng.chisquare(self.tail, (prompts, group, 1))
            noise *= np.sqrt((self.tail - 2) / chi)
        return np.where(up, self.plus[who, None], self.minus[who, None]) + noise, rewards

    def moments(self, group: int, scale: NDArray) -> tuple[float, float]:
        """E‖ĝ‖² and ‖E ĝ‖² of a group whose gradient is scale[K] (s̄₊ − s̄₋) at K successes, scale (G + 1,)."""
        k = np.arange(1, group)
        p = self.success[:, None]
        chance = special.binom(group, k) * p**k * (1 - p) ** (group - k)
        apart = self.plus - self.minus
        scatter = self.plus_scatter[:, None] / k + self.minus_scatter[:, None] / (group - k)
        second = (chance * scale[1:-1] ** 2 * ((apart**2).sum(-1)[:, None] + scatter)).sum(-1).mean()
        mean = ((chance * scale[1:-1]).sum(-1)[:, None] * apart).mean(0)
        return float(second), float(mean @ mean)

    def best(self) -> float:
        """G* = 1 + √(Δ/V_p) of leave-one-out."""
        spread = self.success * (1 - self.success)
        g = spread[:, None] * (self.plus - self.minus)
        none, mean = (g**2).sum(-1).mean(), g.mean(0)
        second = [self.moments(n, leave_one_out(n))[0] for n in (2, 3)]
        both, one = second[0], (second[1] - second[0] / 3) * 1.5
        return 1 + float(np.sqrt(2 * (both - 2 * one + none) / (none - mean @ mean)))

    def error(self, group: int, scale: NDArray, keep_dead: bool = True) -> float:
        """Rollouts × noise over signal, G (E‖ĝ‖²/‖E ĝ‖² − 1); with dead groups replaced unless they are kept."""
        second, mean2 = self.moments(group, scale)
        dead = float((self.success**group + (1 - self.success) ** group).mean())
        return group * (second / mean2 - (1 if keep_dead else 1 / (1 - dead)))


def leave_one_out(group: int) -> NDArray:
    """Scale of s̄₊ − s̄₋ in the leave-one-out gradient for K = 0 … G successes."""
    k = np.arange(group + 1)
    return np.asarray(k * (group - k) / (group * (group - 1)))


def standardized(group: int, ddof: int = 1, eps: float = 1e-4) -> NDArray:
    """The same for advantages that are divided by the group's standard deviation + eps."""
    q = np.arange(group + 1) / group
    return np.asarray(q * (1 - q) / (np.sqrt(q * (1 - q) * group / (group - ddof)) + eps))


def _rates(mean: float, weight: float) -> NDArray:
    """Quantiles of a Beta law with this mean and a + b, (N,)."""
    levels = (np.arange(POPULATION) + 0.5) / POPULATION
    return np.clip(special.betaincinv(weight * mean, weight * (1 - mean), levels), 0, 1)


def classes(
    mean: float, rng: np.random.Generator, weight: float = 2.0, shared: float = 0.4, spread: float = 0.4
) -> World:
    """The family `classes`: shared is the share of a prompt's direction that all prompts have in common."""
    size = 48
    p = rng.permutation(_rates(mean, weight))
    common, own = rng.standard_normal(size), rng.standard_normal((POPULATION, size))
    direction = (np.sqrt(shared) * common + np.sqrt(1 - shared) * own) / np.sqrt(size)
    apart = direction * rng.lognormal(0.0, spread, (POPULATION, 1)) * 1.5
    noise = 16.0 * rng.lognormal(0.0, 0.4, POPULATION)
    return World(p, (1 - p)[:, None] * apart, -p[:, None] * apart, noise, noise)


def softmax(mean: float, rng: np.random.Generator, weight: float = 8.0, size: int = 24, answers: int = 24) -> World:
    """The family `softmax`: a quarter of the answers are right and share a feature, others have their own."""
    p = rng.permutation(_rates(mean, weight))
    right = np.arange(answers) < answers // 4
    logits = 1.2 * rng.standard_normal((POPULATION, answers))
    weights = np.exp(logits)
    for side, mass in ((right, p), (~right, 1 - p)):
        weights[:, side] *= (mass / weights[:, side].sum(-1))[:, None]
    features = rng.standard_normal((answers, size)) + 0.5 * rng.standard_normal((POPULATION, answers, size))
    features[:, right] += 0.8 * (rng.standard_normal(size) + 0.7 * rng.standard_normal((POPULATION, 1, size)))
    scores = features - (weights[..., None] * features).sum(1, keepdims=True)
    means, scatters = [], []
    for side in (right, ~right):
        part = weights[:, side] / np.maximum(weights[:, side].sum(-1, keepdims=True), 1e-300)
        mean_score = (part[..., None] * scores[:, side]).sum(1)
        means.append(mean_score)
        scatters.append((part * (scores[:, side] ** 2).sum(-1)).sum(-1) - (mean_score**2).sum(-1))
    return World(p, *means, *scatters, 0, scores, weights, np.broadcast_to(right, weights.shape))


def mixture(mean: float, rng: np.random.Generator, size: int = 64) -> World:
    """The family `mixture`: three rates beside prompts that are never solved (always, for means above a half)."""
    rates = np.array([0.1, 0.35, 0.7]) if mean <= 0.5 else np.array([0.3, 0.65, 0.9])
    centre = float(rates.mean())
    live = mean / centre if mean <= 0.5 else (1 - mean) / (1 - centre)
    if live > 1:  # beyond what these rates reach: all prompts are live, and shifted
        rates, live = np.clip(rates + (mean - centre), 0.02, 0.98), 1.0
    p = rng.permutation(np.tile(rates, POPULATION // 3))
    p[rng.permutation(POPULATION)[round(live * POPULATION) :]] = 0.0 if mean <= 0.5 else 1.0
    kinds = rng.standard_normal((6, size)) / np.sqrt(size)
    apart = 2.0 * (0.5 * kinds[0] + kinds[rng.integers(1, 6, POPULATION)])
    length = rng.lognormal(0.0, 0.6, POPULATION)
    plus, minus = 6.0 * length, 30.0 * length
    return World(p, (1 - p)[:, None] * apart, -p[:, None] * apart, plus, minus, tail=5)


def opposed(mean: float, rng: np.random.Generator, weight: float = 1.0, size: int = 40) -> World:
    """The family `opposed`: four clusters of tasks; ‖s̄₊ − s̄₋‖ grows as success becomes rare."""
    p = rng.permutation(_rates(mean, weight))
    base = rng.standard_normal((4, size))
    clusters = (base - 0.85 * base.mean(0)) / np.sqrt(size)
    larger = np.minimum(1 / np.sqrt(np.maximum(p * (1 - p), 1e-12)), 6.0)
    apart = clusters[rng.integers(4, size=POPULATION)] * larger[:, None]
    noise = 12.0 * np.ones(POPULATION)
    return World(p, (1 - p)[:, None] * apart, -p[:, None] * apart, noise, 1.5 * noise)


def alike(mean: float, rng: np.random.Generator) -> World:
    """`classes` with prompts of similar difficulty that pull the same way: V_p is small, and G* large."""
    return classes(mean, rng, weight=12.0, shared=0.75)


def uneven(mean: float, rng: np.random.Generator) -> World:
    """`classes` with most prompts nearly always or never solved, and gradients of very unequal size."""
    return classes(mean, rng, weight=0.6, spread=0.8)


def heavy(mean: float, rng: np.random.Generator) -> World:
    """`classes` of similar difficulty whose gradients, and the noise of whose scores, are of very unequal size."""
    world = classes(mean, rng, weight=4.0, shared=0.6, spread=1.2)
    scatter = world.plus_scatter * rng.lognormal(0.0, 1.2, POPULATION)
    return replace(world, plus_scatter=scatter, minus_scatter=scatter)


def two_sizes(mean: float, rng: np.random.Generator) -> World:
    """`classes` of which one prompt in twelve has scores four times as long."""
    return _scaled(
        classes(mean, rng, weight=3.0, shared=0.5, spread=0.3), np.where(rng.random(POPULATION) < 1 / 12, 4, 1)
    )


def pareto(mean: float, rng: np.random.Generator) -> World:
    """`classes` whose scores have lengths of a Pareto law with tail exponent 3."""
    return _scaled(classes(mean, rng, weight=3.0, shared=0.5, spread=0.3), 1 + rng.pareto(3, POPULATION))


def gamma(mean: float, rng: np.random.Generator) -> World:
    """`classes` whose scores have lengths of a gamma law of shape 20."""
    return _scaled(classes(mean, rng, weight=3.0, shared=0.5, spread=0.3), rng.gamma(20, 1 / 20, POPULATION))


def longer_when_hard(mean: float, rng: np.random.Generator) -> World:
    """`classes` whose scores are up to half as long again where prompts are hard."""
    world = classes(mean, rng, weight=3.0, shared=0.5, spread=0.3)
    return _scaled(world, 1.5 - 0.5 * world.success)


def clusters(mean: float, rng: np.random.Generator) -> World:
    """`classes` with a direction for each of three tasks of different frequency in place of one for all."""
    world, size = classes(mean, rng, weight=3.0, shared=0.0, spread=0.3), 48
    own = rng.standard_normal((3, size))[rng.choice(3, POPULATION, p=[0.6, 0.3, 0.1])] / np.sqrt(size)
    plus = world.plus + (1 - world.success)[:, None] * own
    return replace(world, plus=plus, minus=world.minus - world.success[:, None] * own)


def few_answers(mean: float, rng: np.random.Generator) -> World:
    """`softmax` over eight answers with features of twelve dimensions."""
    return softmax(mean, rng, weight=5.0, size=12, answers=8)


def weibull(mean: float, rng: np.random.Generator) -> World:
    """`classes` whose scores have lengths of a Weibull law of shape 6."""
    return _scaled(classes(mean, rng, weight=5.0, shared=0.6, spread=0.2), rng.weibull(6, POPULATION))


def three_rates(mean: float, rng: np.random.Generator) -> World:
    """`mixture` with normal scores of one length, and right answers half as scattered."""
    world = mixture(mean, rng)
    scatter = np.full(POPULATION, 24.0)
    return replace(world, plus_scatter=scatter / 2, minus_scatter=scatter, tail=0)


def quiet_when_sure(mean: float, rng: np.random.Generator) -> World:
    """`classes` whose scores are shorter the surer the outcome is, by a factor of two at most."""
    world = classes(mean, rng, weight=2.5, shared=0.3, spread=0.3)
    return _scaled(world, 0.5 + 2 * world.success * (1 - world.success))


def wide_features(mean: float, rng: np.random.Generator) -> World:
    """`softmax` over sixteen answers with features of 96 dimensions."""
    return softmax(mean, rng, weight=3.0, size=96, answers=16)


def lognormal(mean: float, rng: np.random.Generator) -> World:
    """`classes` whose scores have lognormal lengths of σ = 0.9."""
    return _scaled(classes(mean, rng, weight=3.0, shared=0.5, spread=0.3), rng.lognormal(0.0, 0.9, POPULATION))


def rare_direction(mean: float, rng: np.random.Generator) -> World:
    """`classes` of which one prompt in twenty has class means five times as far apart, at the same scatter."""
    world = classes(mean, rng, weight=3.0, shared=0.4, spread=0.3)
    times = np.where(rng.random(POPULATION) < 1 / 20, 5.0, 1.0)[:, None]
    return replace(world, plus=world.plus * times, minus=world.minus * times)


def _scaled(world: World, length: NDArray) -> World:
    """The world with the scores of each prompt `length` (N,) times as long."""
    times, square = length[:, None], length**2
    return replace(world, plus=world.plus * times, minus=world.minus * times,
                   plus_scatter=world.plus_scatter * square, minus_scatter=world.minus_scatter * square)  # fmt: skip


LOOKED_AT = {
    "two_sizes": two_sizes,
    "pareto": pareto,
    "gamma": gamma,
    "longer_when_hard": longer_when_hard,
    "clusters": clusters,
    "few_answers": few_answers,
}
"""Further worlds that the thresholds of a warning were chosen on, with FAMILIES; two heavy ones and four mild ones, in
which no few prompts carry the gradient."""

HELD_OUT = {
    "lognormal": lognormal,
    "rare_direction": rare_direction,
    "weibull": weibull,
    "three_rates": three_rates,
    "quiet_when_sure": quiet_when_sure,
    "wide_features": wide_features,
}
"""Worlds that no threshold was chosen on; the last four are mild. Written before anything was measured on them."""

FAMILIES = {
    "classes": classes,
    "alike": alike,
    "uneven": uneven,
    "heavy": heavy,
    "softmax": softmax,
    "mixture": mixture,
    "opposed": opposed,
}
