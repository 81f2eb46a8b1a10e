"""Would sixteen trainings a group size tell whether one G is best at every checkpoint? The power, before any run.

Claim    §5.2 of arXiv:2603.01162: one group size is best throughout a training (its tables have one run a cell).
Command  python experiments/ustat_best_group_power.py          seconds; nothing is trained
Design   `tiny` on `arithmetic`, 256 rollouts a step, G = 2, 4, 8, 16, 32, the same seeds in all arms, held-out pass@1
         at six checkpoints. Rule: one G "is best" if at every checkpoint its mean lies within one standard error, of
         the paired difference, of the largest; "none is" if every G is behind another by more than what Bonferroni's
         correction over 6 × 4 one-sided t tests allows at one checkpoint or more; else cannot tell.
Assumed  from five seeds of `ustat_training.py` (experiments/ustat.md): paired differences have a deviation of 0.020
         over seeds (95 %: 0.012 to 0.057); neighbouring checkpoints correlate by 0.7. Worlds: `one`, G = 4 ahead by
         the deficits measured at the end (0.017, 0, 0.077, 0.136, 0.247), which grow in proportion to the steps;
         `moves`, the same but for a lead of 0.02 of G = 2 in the first two checkpoints and of G = 8 in the last two.
Cost     a run of 300 steps is some 110 s of a free core with its evaluations: 5 × 16 runs are 2.4 hours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from grposcope.core.files import dumps

GROUPS, CHECKPOINTS, REPEATS = (2, 4, 8, 16, 32), 6, 2000
DEFICITS = np.array([0.017, 0.0, 0.077, 0.136, 0.247])
CORRELATION = 0.7


def truth(world: str) -> NDArray:
    """Mean pass@1 less that of G = 4, (checkpoints, groups)."""
    grown = np.arange(1, CHECKPOINTS + 1)[:, None] / CHECKPOINTS
    means = -DEFICITS * grown
    if world == "moves":
        means[:2, 0] = 0.02
        means[-2:, 2] = 0.02
    return means


def verdict(values: NDArray) -> str:
    """The rule on pass@1, (seeds, checkpoints, groups)."""
    seeds = len(values)
    means = values.mean(0)
    behind = means.max(1)[:, None] - means
    best = means.argmax(1)
    at = np.arange(CHECKPOINTS)
    errors = (values[:, at, best][..., None] - values).std(0, ddof=1) / np.sqrt(seeds)
    if (behind <= errors).all(0).any():
        return "one is best"
    level = 0.05 / (CHECKPOINTS * (len(GROUPS) - 1))
    limit = stats.t.ppf(1 - level, seeds - 1)
    return "none is best" if (behind > limit * errors).any(0).all() else "cannot tell"


def power(world: str, seeds: int, deviation: float) -> dict[str, float]:
    """Share of each verdict. deviation: of a paired difference over seeds; an arm has 1/√2 of it."""
    rng = np.random.default_rng(0)
    steps = np.abs(np.subtract.outer(np.arange(CHECKPOINTS), np.arange(CHECKPOINTS)))
    root = np.linalg.cholesky(CORRELATION**steps) * deviation / np.sqrt(2)
    counts: dict[str, int] = dict.fromkeys(("one is best", "none is best", "cannot tell"), 0)
    for _ in range(REPEATS):
        noise = np.einsum("ij,sjg->sig", root, rng.standard_normal((seeds, CHECKPOINTS, len(GROUPS))))
        counts[verdict(truth(world) + noise)] += 1
    return {name: count / REPEATS for name, count in counts.items()}


def main() -> None:
    """A table of powers."""
    print("| world | seeds | deviation | one is best | none is best | cannot tell |\n|---|---|---|---|---|---|")
    rows = []
    for world in ("one", "moves"):
        for seeds in (5, 16, 32):
            for deviation in (0.02, 0.04):
                found = power(world, seeds, deviation)
                rows.append({"world": world, "seeds": seeds, "deviation": deviation, **found})
                cells = " | ".join(f"{share:.0%}" for share in found.values())
                print(f"| {world} | {seeds} | {deviation:g} | {cells} |")
    print(dumps(rows))


if __name__ == "__main__":
    main()
