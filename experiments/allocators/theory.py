"""The draw of problems and the group sizes that make the gradient's error least for a number of rollouts.

M problems are drawn with chances q_x, each counts p_x/q_x, and gets G_x rollouts; with leave-one-out gradients, whose
second moments are a_x(G), and N = M Σ q_x G_x rollouts in expectation,

    N · MSE = (A − ‖g‖²) · Σ_x q_x G_x        A = Σ_x p_x² a_x(G_x)/q_x

is least where G_x minimises a_x(G)(G + c) and q_x ∝ p_x √(a_x(G_x)/(G_x + c)), c = ‖g‖² E_q G/(A − ‖g‖²): the cost, in
rollouts, of drawing one more problem. The gradient is unbiased for any q_x > 0 and any G_x fixed before the rewards are
seen. Equal problems give back G* = 1 + √(Δ/V_p) of arXiv:2603.01162; the rest is a method of this project, no
publication. `floor` mixes p into q, so that no weight exceeds 1/floor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Group sizes that the draw chooses from."""


@dataclass(frozen=True)
class Draw:
    """Chances of C problems and their group sizes, (C,) each. noise: N · MSE, in the units of a."""

    chances: Floats
    sizes: Ints
    noise: float

    @property
    def rollouts(self) -> float:
        """Rollouts that one drawn problem gets in expectation, E_q G."""
        return float(self.chances @ self.sizes)


def noise(second: Floats, share: Floats, chances: Floats, sizes: NDArray, mean_squared: float) -> float:
    """N · MSE of a draw: second moments a_x(G_x) (C,), shares p (C,), chances q (C,), sizes (C,), ‖g‖²."""
    return float(((share**2 * second / chances).sum() - mean_squared) * (chances @ sizes))


def own_sizes(second: Floats, sizes: Ints, share: Floats, mean_squared: float, floor: float = 0.0) -> Draw:
    """The optimal draw with a group size for each problem, out of `sizes` (S,); second (C, S): a_x(G).

    share: p (C,), what each problem counts for, of sum 1.
    """
    c = 0.0
    for _ in range(200):
        which = (second * (sizes + c)).argmin(1)
        a, g = np.take_along_axis(second, which[:, None], 1)[:, 0], sizes[which]
        q = _mixed(share * np.sqrt(np.maximum(a, 0) / (g + c)), share, 0.0)
        spread = float((share**2 * a / q).sum()) - mean_squared
        new = mean_squared * float(q @ g) / spread if spread > 0 else 1e6
        if abs(new - c) <= 1e-9 * (1 + c):
            break
        c = new
    chances = _mixed(q, share, floor)
    return Draw(chances, g, noise(a, share, chances, g, mean_squared))


def one_size(second: Floats, sizes: Ints, share: Floats, mean_squared: float, floor: float = 0.0) -> Draw:
    """The optimal draw where all groups have one size out of `sizes`: q_x ∝ p_x √a_x(G)."""
    best: Draw | None = None
    for a, size in zip(second.T, sizes, strict=True):
        chances = _mixed(share * np.sqrt(np.maximum(a, 0)), share, floor)
        all_of_it = np.full(len(share), size)
        draw = Draw(chances, all_of_it, noise(a, share, chances, all_of_it, mean_squared))
        best = draw if best is None or draw.noise < best.noise else best
    assert best is not None
    return best


def uniform(second: Floats, sizes: Ints, share: Floats, mean_squared: float) -> Draw:
    """The best single group size where problems are drawn by their shares."""
    draws = [
        Draw(share, np.full(len(share), size), noise(a, share, share, np.full(len(share), size), mean_squared))
        for a, size in zip(second.T, sizes, strict=True)
    ]
    return min(draws, key=lambda draw: draw.noise)


def _mixed(weights: Floats, share: Floats, floor: float) -> Floats:
    """Chances ∝ weights, a part `floor` of them by share; by share alone where all weights are 0."""
    total = weights.sum()
    chances = weights / total if total > 0 else share
    return np.asarray(np.maximum((1 - floor) * chances + floor * share, 1e-12))


def systematic(expected: Floats, start: float) -> Ints:
    """How often each of C items is drawn, (C,) whole, for expected counts (C,) of a whole sum: one random start.

    Item x is drawn ⌊e_x⌋ or ⌈e_x⌉ times, and e_x times in expectation over a start uniform in [0, 1): below e_x = 1 it
    is drawn without replacement, with inclusion probability e_x. Which items are drawn together depends on their order.
    """
    ends = np.cumsum(expected)
    ends[-1] = round(ends[-1])  # rounding errors must not lose or add a draw
    return np.diff(np.floor(np.concatenate([[0.0], ends]) + start)).astype(np.int64)
