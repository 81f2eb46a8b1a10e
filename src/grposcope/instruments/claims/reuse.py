"""[U] arXiv:2603.01162, Theorem 12: what the updates since the rollouts were drawn do to the gradient.

With rollouts of π_old the gradient at θ is Σ_y π_old(y) E[A | y] Σ_t c_t s_t(y), over completions y, with A the
advantage in a group of π_old's rollouts and c_t what a method puts on each token: 1 without a ratio, π/π_old of the
token with a token ratio, and of the whole completion (full weights) without bias. The bias is the difference to these.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from grposcope.instruments.claims.claim import Derived, Drawing, Tell
from grposcope.instruments.claims.enumerated_policy import Array

DISTANCES = np.geomspace(1e-3, 3e-2, 5)
"""‖θ − θ_old‖ of the updates."""

RATIOS: dict[str, Callable[[Array], Array]] = {
    "no ratio": np.ones_like,
    "token ratio": lambda ratios: ratios,
}
"""What multiplies each token, from its own ratios (N, 2)."""


def _tables(features: Array, theta: Array) -> tuple[Array, Array]:
    """Chances of the two tokens of every completion (9, 2) and their scores (9, 2, D): the second behind the first."""
    chances, scores = [], []
    logits = features @ theta
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    own = features - np.einsum("sa,sad->sd", p, features)[:, None]
    for first, second in itertools.product(range(3), repeat=2):
        chances.append((p[0, first], p[1 + first, second]))
        scores.append((own[0, first], own[1 + first, second]))
    return np.array(chances), np.array(scores)


def _advantage(success: float, group: int) -> tuple[float, float]:
    """E[A | r] of a standardized advantage (ddof 0) for r = 0 and 1, the others drawn with this success rate."""
    rows = []
    for own in (0.0, 1.0):
        total = 0.0
        for others in itertools.product((0.0, 1.0), repeat=group - 1):
            r = np.array((own, *others))
            if r.std() > 0:
                chance = float(np.prod(np.where(r[1:] == 1, success, 1 - success)))
                total += chance * float((own - r.mean()) / r.std())
        rows.append(total)
    return rows[0], rows[1]


def _bias(features: Array, old: Array, step: Array, right: Array, ratio: Callable[[Array], Array]) -> float:
    """‖bias‖² of the gradient at old + step, on rollouts of old in groups of four; right (9,): rewards, 0 or 1."""
    drawn, _ = _tables(features, old)
    now, scores = _tables(features, old + step)
    chance = drawn.prod(1)
    advantages = np.asarray(_advantage(float(chance @ right), 4))[right.astype(int)]
    ratios = now / drawn
    off = ratio(ratios) - ratios.prod(1, keepdims=True)
    return float((np.einsum("n,n,nt,ntd->d", chance, advantages, off, scores) ** 2).sum())


def between_updates(tell: Tell) -> Derived:
    """The slope of ln ‖bias‖² on ln ‖θ − θ_old‖, in nine worlds."""
    slopes: dict[str, list[float]] = {name: [] for name in RATIOS}
    points: list[tuple[str, float, float, float]] = []
    for seed in range(9):
        rng = np.random.default_rng(seed)
        features, old = rng.normal(size=(4, 3, 4)), rng.normal(size=4)
        right, direction = np.eye(9)[rng.choice(9, 2, replace=False)].sum(0), rng.normal(size=4)
        direction /= np.linalg.norm(direction)
        for name, ratio in RATIOS.items():
            squares = [_bias(features, old, distance * direction, right, ratio) for distance in DISTANCES]
            slopes[name].append(float(np.polyfit(np.log(DISTANCES), np.log(squares), 1)[0]))
            if seed == 0:
                points += [(name, float(d), value, 0.0) for d, value in zip(DISTANCES, squares, strict=True)]
    good = all(abs(slope - 2) < 0.1 for each in slopes.values() for slope in each)
    shown = " and ".join(f"{min(each):.2f} to {max(each):.2f} with {name}" for name, each in slopes.items())
    return Derived(
        "holds" if good else "does not hold",
        f"‖bias‖² grows as ‖θ − θ_old‖ to the power {shown}; with full weights there is no bias",
        "nine policies of two tokens, standardized advantages of four, every completion enumerated",
        Drawing("‖θ − θ_old‖", "‖bias‖²", points, log=True),
    )
