"""Size and power of the rule `oscillation`: its two tests on noise, and on swings of steady or changing period.

    python benchmarks/swings.py size [--repeats 1000]     noise of both kinds, no swings
    python benchmarks/swings.py power [--repeats 60]      waves of three shapes, each period drawn anew
    python benchmarks/swings.py few [--repeats 60]        sinusoids of 3 to 10 periods that keep or lose amplitude

Noise is AR(1), or half AR(1) and half white. Swings have variance 1, a mean period of 8 to 20 rows, and each period is
drawn with a log-normal spread; noise has the standard deviation NOISE. Swings count as found if p < LEVEL, about what
Holm's method leaves to one of twelve rules at 5 %. `size` is the basis of `maths.timeseries.spectral_peak.BOUND`.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from labelled_curves import Array, noise

from grposcope.maths.timeseries import periodogram, spectral_peak
from grposcope.signs import swings as oscillation

LEVEL, NOISE = 0.004, 0.5
ROWS = (40, 60, 100, 140, 200, 400)
KINDS = ((0.0, 1.0), (0.3, 1.0), (0.6, 1.0), (0.9, 1.0), (0.6, 0.5), (0.95, 0.5))
"""φ and the share of the variance that is AR(1)."""


def wave(rng: np.random.Generator, n: int, shape: str, spread: float) -> Array:
    """Swings (n,) of variance 1, whose periods are drawn with a log-normal spread."""
    period = rng.uniform(8, 20)
    ends = np.cumsum(period * np.exp(spread * rng.normal(size=n)))
    phase = np.interp(np.arange(n) + ends[0] * rng.random(), [0, *ends], np.arange(n + 1)) % 1
    if shape == "saw":
        return np.asarray(math.sqrt(12) * (phase - 0.5))
    if shape == "square":
        return np.sign(phase - 0.5)
    return np.asarray(math.sqrt(48) * (np.abs(phase - 0.5) - 0.25))


def p_values(y: Array) -> tuple[float, float, float]:
    """P-values of the sinusoid, of swings of any shape, and of both together; 1 where swings explain little or fade."""
    first, second = periodogram.oscillation(y), spectral_peak.oscillation(y)
    assert first is not None
    assert second is not None
    single = (oscillation.lasting(first), oscillation.lasting(second))
    return (*single, min(1.0, 2 * min(single)))


def size(repeats: int) -> dict[str, list[float]]:
    """Print and return the shares of p < 0.05 and p < 0.01 on noise."""
    print(
        "| rows | φ | AR(1) share | sinusoid 5 %, 1 % | any shape 5 %, 1 % | both 5 %, 1 % |\n|---|---|---|---|---|---|"
    )
    shares = {}
    for n in ROWS:
        for phi, share in KINDS:
            rng = np.random.default_rng([n, int(100 * phi), int(100 * share)])
            drawn = (
                math.sqrt(share) * noise(rng, n, phi) + math.sqrt(1 - share) * rng.normal(size=n)
                for _ in range(repeats)
            )
            p = np.array([p_values(y) for y in drawn])
            rates = np.stack([(p < 0.05).mean(0), (p < 0.01).mean(0)], 1)
            shares[f"{n}, {phi:g}, {share:g}"] = rates.ravel().tolist()
            cells = " | ".join(f"{100 * a:.1f}, {100 * b:.1f}" for a, b in rates)
            print(f"| {n} | {phi:g} | {share:g} | {cells} |", flush=True)
    return shares


def power(repeats: int) -> dict[str, list[float]]:
    """Print and return the shares of swings that are found."""
    print("| rows | shape | spread of periods | φ | sinusoid | any shape | both |\n|---|---|---|---|---|---|---|")
    shares = {}
    for n in (100, 200):
        for shape in ("triangle", "square", "saw"):
            for spread in (0.0, 0.15, 0.3):
                for phi in (0.0, 0.9):
                    rng = np.random.default_rng([n, int(100 * phi), int(100 * spread), len(shape)])
                    drawn = (wave(rng, n, shape, spread) + NOISE * noise(rng, n, phi) for _ in range(repeats))
                    rates = (np.array([p_values(y) for y in drawn]) < LEVEL).mean(0)
                    shares[f"{n}, {shape}, {spread:g}, {phi:g}"] = rates.tolist()
                    cells = " | ".join(f"{100 * rate:.0f}" for rate in rates)
                    print(f"| {n} | {shape} | {spread:g} | {phi:g} | {cells} |", flush=True)
    return shares


def few(repeats: int, seed: int) -> dict[str, list[float]]:
    """Print and return the shares of swings of few periods that are found, in white noise.

    The amplitude is that at the start over the standard deviation of the noise; it ends at `kept` of it.
    """
    print("| rows | periods | amplitude kept | amplitude 1 | 1.5 | 2 | 4 |\n|---|---|---|---|---|---|---|")
    shares = {}
    for n in (60, 100, 200):
        for periods in (3, 5, 7, 10):
            for kept in (1.0, 0.5, 0.2):
                rng = np.random.default_rng([seed, n, periods, int(100 * kept)])
                u = np.arange(n) / n
                cells = []
                for amplitude in (1.0, 1.5, 2.0, 4.0):
                    found = 0
                    for _ in range(repeats):
                        swing = kept**u * np.sin(2 * np.pi * (periods * u + rng.random()))
                        found += p_values(amplitude * swing + rng.normal(size=n))[2] < LEVEL
                    cells.append(found / repeats)
                shares[f"{n}, {periods}, {kept:g}"] = cells
                print(f"| {n} | {periods} | {kept:g} | {' | '.join(f'{100 * c:.0f}' for c in cells)} |", flush=True)
    return shares


def main() -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(description="Size and power of the rule `oscillation`.")
    parser.add_argument("what", choices=("size", "power", "few"), help="on noise, on swings, on few of them")
    parser.add_argument("--repeats", type=int, default=100, help="runs per cell (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the noise of `few` (default: 0)")
    given = parser.parse_args()
    if given.what == "few":
        print(json.dumps(few(given.repeats, given.seed)))
    else:
        print(json.dumps((size if given.what == "size" else power)(given.repeats)))


if __name__ == "__main__":
    main()
