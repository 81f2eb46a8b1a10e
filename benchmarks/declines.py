"""Size and power of the rule `reward decline`, by what is known of the noise.

    python benchmarks/declines.py size [--repeats 300] [--seed 0]     rewards that are drawn to no change
    python benchmarks/declines.py power [--repeats 100] [--seed 0]    rewards that fall

Every row is a mean over rollouts: noise of standard deviation NOISE by sampling, plus what the policy or the prompts
wander. "known": the log says the rollouts per row, `× 4` and `÷ 4` four times too many and too few.
Rates are of p < 0.05 and of p < 0.005, about what Holm's method leaves to one of ten rules. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from labelled_curves import Array, noise

from grposcope.core.run import Meta, Run, no_evaluations, no_groups
from grposcope.faults.reward import reward_decline
from grposcope.signs.quantities import Quantities

NOISE, MEAN, PROMPTS, GROUP = 0.08, 0.7, 8, 4
LEVELS = (0.05, 0.005)
CLAIMS = {"unknown": 0.0, "known": 1.0, "× 4": 4.0, "÷ 4": 0.25}
"""Rollouts per row that the log says, over those that there are; 0: it says none."""

Maker = Callable[[np.random.Generator, int], Array]


def arma(rng: np.random.Generator, n: int) -> Array:
    """ARMA(2, 1) of variance 1 with a damped cycle of ten rows."""
    drawn = rng.normal(size=n + 100)
    y = np.zeros(n + 100)
    for t in range(2, n + 100):
        y[t] = 1.13 * y[t - 1] - 0.49 * y[t - 2] + drawn[t] + 0.4 * drawn[t - 1]
    return y[100:] / 2.66


def walk(q: float) -> Maker:
    """A random walk with steps of q times the noise."""
    return lambda rng, n: NOISE * (rng.normal(size=n) + q * np.cumsum(rng.normal(size=n)))


def epochs(rng: np.random.Generator, n: int) -> Array:
    """Prompts in the same order in each of three epochs, whose difficulty drifts along the data."""
    once = noise(rng, -(-n // 3), 0.9)
    return NOISE * (rng.normal(size=n) + 0.5 * np.tile(once, 3)[:n])


def drifting(rng: np.random.Generator, n: int) -> Array:
    """White noise whose standard deviation falls by half along the run."""
    return NOISE * np.linspace(4 / 3, 2 / 3, n) * rng.normal(size=n)


def binomial(rng: np.random.Generator, n: int) -> Array:
    """Means of 0/1 rewards of PROMPTS groups, with success rates that differ between prompts."""
    rate = rng.beta(3 * MEAN, 3 * (1 - MEAN), size=(n, PROMPTS))
    return rng.binomial(GROUP, rate).mean(1) / GROUP - MEAN


NULLS: dict[str, Maker] = {
    "white": lambda rng, n: NOISE * rng.normal(size=n),
    "binomial": binomial,
    "spread halves": drifting,
    **{f"AR(1) {phi:g}": lambda rng, n, phi=phi: NOISE * noise(rng, n, phi) for phi in (0.3, 0.6, 0.9)},
    **{
        f"white + AR(1) {phi:g}": lambda rng, n, phi=phi: NOISE * (rng.normal(size=n) + 0.5 * noise(rng, n, phi))
        for phi in (0.6, 0.9)
    },
    "white + ARMA": lambda rng, n: NOISE * (rng.normal(size=n) + 0.5 * arma(rng, n)),
    "epochs": epochs,
    **{f"white + walk {q:g}": walk(q) for q in (0.05, 0.125, 0.25, 0.5)},
}

DECLINES: dict[str, Callable[[Array], Array]] = {
    "line 0.88 to 0.55": lambda u: 0.88 - 0.33 * u,
    "line 0.88 to 0.70": lambda u: 0.88 - 0.18 * u,
    "half-way 0.88 to 0.55": lambda u: 0.88 - 0.33 * np.clip(2 * u - 1, 0, 1),
    "drop at 0.6, 0.88 to 0.55": lambda u: 0.88 - 0.33 * (u > 0.6),
    "0.4 to 0.75 to 0.45": lambda u: 0.4 + 0.35 * np.minimum(u / 0.5, 1) - 0.3 * np.clip(2 * u - 1, 0, 1),
}


def run(reward: Array, claim: float, variance: float) -> Run:
    """A log of 0.4 spread in total; the rollouts per row are those that make the sampling variance, times `claim`."""
    n = len(reward)
    spread = np.full(n, math.sqrt(variance * PROMPTS * GROUP))
    settings = {"group": GROUP, "prompts": claim * PROMPTS} if claim else {}
    table = {"step": np.arange(1.0, n + 1), "reward": reward, "reward_std_batch": spread}
    meta = Meta(Path("made"), "trl", "made", "finished")
    return Run(meta, {"engine": "trl", "settings": settings}, table, no_groups(), no_evaluations())


def rates(
    make: Callable[[np.random.Generator], Array], rows: int, claim: float, seed: int, repeats: int
) -> list[float]:
    """Shares of p below each of LEVELS."""
    rng = np.random.default_rng([seed, rows, 17])
    p = [reward_decline.FAULT.log.check(Quantities(run(make(rng), claim, NOISE**2))).p for _ in range(repeats)]
    return [float((np.array(p) < level).mean()) for level in LEVELS]


def table(rows: tuple[int, ...], makers: dict[str, Maker], seed: int, repeats: int) -> dict[str, list[float]]:
    """Print and return the shares of all cells."""
    print(f"| rows | reward | {' | '.join(f'{name}: 5 %, 0.5 %' for name in CLAIMS)} |\n|{'---|' * (2 + len(CLAIMS))}")
    document = {}
    for n in rows:
        for name, make in makers.items():
            cells = []
            for what, claim in CLAIMS.items():
                found = rates(lambda rng, make=make, n=n: make(rng, n), n, claim, seed, repeats)
                document[f"{n}, {name}, {what}"] = found
                cells.append(", ".join(f"{100 * share:.1f}" for share in found))
            print(f"| {n} | {name} | {' | '.join(cells)} |", flush=True)
    return document


def falling(shape: Callable[[Array], Array]) -> Maker:
    """A reward that falls, with white noise."""
    return lambda rng, n: shape((np.arange(n) + 0.5) / n) + NOISE * rng.normal(size=n)


def main() -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(description="Size and power of the rule `reward decline`.")
    parser.add_argument("what", choices=("size", "power"), help="without a change, or with a fall")
    parser.add_argument("--repeats", type=int, default=300, help="runs per cell (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="of the noise (default: 0)")
    given = parser.parse_args()
    if given.what == "size":
        makers = {name: lambda rng, n, make=make: MEAN + make(rng, n) for name, make in NULLS.items()}
        document = table((40, 100), makers, given.seed, given.repeats)
    else:
        makers = {name: falling(shape) for name, shape in DECLINES.items()}
        document = table((40, 100), makers, given.seed, given.repeats)
    print(json.dumps(document))


if __name__ == "__main__":
    main()
