"""At which weight does a policy begin to game one of two rewards, and does a probe at the start foretell it?

Two rewards: right, which is verified, and judged, which can be gamed. A policy with one logit chooses an exploit with
probability p, else an honest attempt. An honest attempt is right with probability q; the judge pays 1 with probability
0.9 if it is right, 0.4 if not. The exploit is never right, and the judge always pays 1. Weights: 1 for right, λ for
judged. Groups of 8; the expected gradient of the logit is an exact sum over all groups. Start p = 0.02, learning rate
0.5, 20,000 batches; gaming begins at a weight if p ends above 0.5. The least such λ is bisected between 1/64 and 64.

What was asked for pays the exploit from λ₀ = q/(1 − E[judged | honest]) on, E = 0.9 q + 0.4 (1 − q).

Rules, before the first run. Ways: sum undivided, sum standardized, each standardized and then summed; q = 0.1, 0.3,
0.5, 0.7, 0.9: 15 cells. At each cell's least λ, the exact expectations at the start give the effective weight of
judged, its share E λσ/Σ E λσ by |coefficient × σ| within groups, and per unit, the ratio of Σ c σ²/Σ σ² of judged and
right.
1. One effective weight says where gaming begins if its share at the least λ lies within a factor 1.25 of its median in
   at least 12 of 15 cells.
2. The ratio per unit foretells it if at the least λ it lies within 1.25 × of λ₀, either way, in at least 12 of 15.
3. A way delays gaming if its least λ lies above that of the undivided sum by more than 1.25 × for at least four of the
   five q, and hastens it if below likewise.
Budget: a CPU-minute. A weight that is not in 1/64 … 64 counts as outside (settled after a first run that ended there).

    python experiments/rewards_gaming.py
"""

from __future__ import annotations

from itertools import product
from math import factorial

import numpy as np

from grposcope.maths.aggregation import Aggregation, Components, Floats, combine

GROUP, LR, STEPS, START = 8, 0.5, 20_000, 0.02
KINDS = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 1.0]])  # rewards; the last is the exploit
WAYS = {
    "sum, undivided": Aggregation("sum_then_normalize", "none"),
    "sum, standardized": Aggregation("sum_then_normalize", "group"),
    "standardized, then summed": Aggregation("standardized_components"),
}
RATES = (0.1, 0.3, 0.5, 0.7, 0.9)
COUNTS = np.array([n for n in product(range(GROUP + 1), repeat=5) if sum(n) == GROUP])
DRAWN = np.array([np.repeat(np.arange(5), n) for n in COUNTS])
WAYS_TO_DRAW = np.array([factorial(GROUP) / np.prod([factorial(k) for k in n]) for n in COUNTS])
GIVEN = Components.of_groups(("right", "judged"), KINDS[DRAWN])


def chances(q: float, p: Floats) -> Floats:
    """Probability of each group, for each p, (p, groups)."""
    honest = np.array([q * 0.9, q * 0.1, (1 - q) * 0.4, (1 - q) * 0.6])
    each = np.concatenate([(1 - p)[:, None] * honest, p[:, None]], 1)
    found: Floats = WAYS_TO_DRAW * np.exp(np.log(each) @ COUNTS.T)
    return found


def games(way: Aggregation, weight: float, grid: Floats, chance: Floats) -> bool:
    """Whether p ends above 0.5."""
    made = combine(GIVEN, [1.0, weight], way).advantages.reshape(DRAWN.shape)
    p = 1 / (1 + np.exp(-grid))
    exploit = made * (DRAWN == 4)
    force = (chance * (exploit.mean(1) - p[:, None] * made.mean(1))).sum(1)
    theta = float(np.log(START / (1 - START)))
    for _ in range(STEPS):
        theta = float(np.clip(theta + LR * np.interp(theta, grid, force), grid[0], grid[-1]))
        if theta > 0 or theta == grid[0]:
            break
    return theta > 0


def least(way: Aggregation, q: float, grid: Floats) -> float:
    """The least weight at which gaming begins; NaN where none up to 64 does, 1/64 where that one does."""
    chance = chances(q, 1 / (1 + np.exp(-grid)))
    low, high = 1 / 64, 64.0
    if not games(way, high, grid, chance):
        return float("nan")
    if games(way, low, grid, chance):
        return low
    for _ in range(12):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if games(way, middle, grid, chance) else (middle, high)
    return high


def probed(way: Aggregation, weight: float, q: float) -> tuple[float, float]:
    """Share of the effective weights that judged has at the start, and its ratio per unit to right."""
    if np.isnan(weight):
        return weight, weight
    chance = chances(q, np.array([START]))[0]
    done = combine(GIVEN, [1.0, weight], way)
    effective = chance @ np.abs(done.effective)
    squares = done.deviations**2
    unit = (chance @ (done.coefficients * squares)) / (chance @ squares)
    return float(effective[1] / effective.sum()), float(unit[1] / unit[0])


def main() -> None:
    """Print the table and the verdicts."""
    grid = np.linspace(-9, 9, 361)
    rows = {}
    print("| combined | q | λ₀ | least λ | share of judged there | per unit there |\n|---|---|---|---|---|---|")
    for (name, way), q in product(WAYS.items(), RATES):
        paid = q / (1 - (0.9 * q + 0.4 * (1 - q)))
        found = least(way, q, grid)
        share, unit = probed(way, found, q)
        rows[name, q] = paid, found, share, unit
        print(f"| {name} | {q} | {paid:.2f} | {found:.2f} | {share:.2f} | {unit:.2f} |", flush=True)
    shares = np.array([row[2] for row in rows.values()])
    middle = float(np.nanmedian(shares))
    near = int(((shares / middle <= 1.25) & (middle / shares <= 1.25)).sum())
    told = sum(0.8 <= unit / paid <= 1.25 for paid, _, _, unit in rows.values())
    print(f"\n1. share within 1.25 × of its median {middle:.2f}: {near} of 15 cells ({np.nanmin(shares):.2f} to "
          f"{np.nanmax(shares):.2f})")  # fmt: skip
    print(f"2. per unit within 1.25 × of λ₀: {told} of 15")
    for name in list(WAYS)[1:]:
        ratios = np.array([rows[name, q][1] / rows["sum, undivided", q][1] for q in RATES])
        above, below = (~(ratios <= 1.25)).sum(), (ratios < 0.8).sum()
        span = f"{np.nanmin(ratios):.2f} to {np.nanmax(ratios):.2f}"
        print(f"3. {name}: least λ ÷ that of the undivided sum {span}; above "
              f"1.25, or none, in {above}, below 0.8 in {below} of 5")  # fmt: skip


if __name__ == "__main__":
    main()
