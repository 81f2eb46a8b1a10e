"""How often a flat reward is recognised as flat, by number of rows, size of a change, and autocorrelation.

    python benchmarks/labelled_power.py [--repeats 100]

Two questions about a reward that lies at 0.4 ± 0.03 (AR(1)) and changes by D over the run, margin 0.1:
"path": every fifth of what the run did lies within the margin of its beginning (`maths.timeseries.level`, the rule's
test);
"mean": so does the mean of the process (`maths.timeseries.change`, where wandering counts as noise). Shares of runs for
which the answer is yes at p < 0.004, the level that Holm leaves to one of twelve rules. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from labelled_curves import noise

from grposcope.maths.timeseries import change, level
from grposcope.maths.timeseries.change import EARLY

MARGIN, LEVEL, SD = 0.1, 0.004, 0.03


def still(y: np.ndarray) -> tuple[bool, bool]:
    """Whether the path, and whether the mean, stays within the margin of its beginning in every later fifth."""
    curve, path, mean = change.fit(y), 0.0, 0.0
    for first in (0.2, 0.4, 0.6, 0.8):
        span = (first, first + 0.2)
        for side in (MARGIN, -MARGIN):
            of_path = level.change(y, EARLY, span, minus=side)
            of_mean = curve.change(last=span, minus=side)
            path = max(path, of_path.p_down if side > 0 else of_path.p_up)
            mean = max(mean, of_mean.p_down if side > 0 else of_mean.p_up)
    return path < LEVEL, mean < LEVEL


def main() -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(description="Power of the rule `no learning`.")
    parser.add_argument("--repeats", type=int, default=100, help="runs per cell (default: 100)")
    repeats = parser.parse_args().repeats
    document: dict[str, Any] = {}
    print("| φ | rows | change D | path, % | mean, % |\n|---|---|---|---|---|")
    for phi, rows in [(0.6, 200), *((0.9, n) for n in (50, 100, 200, 400, 800, 1600, 3200))]:
        for rise in (0.0, 0.1, 0.15, 0.2):
            rng = np.random.default_rng([20_000, rows, int(100 * rise)])
            ramp = 0.4 + rise * np.minimum(np.arange(rows) / (0.4 * rows), 1)
            shares = np.mean([still(ramp + SD * noise(rng, rows, phi)) for _ in range(repeats)], axis=0)
            document[f"{phi:g}, {rows}, {rise:g}"] = shares.tolist()
            print(f"| {phi:g} | {rows} | {rise:g} | {100 * shares[0]:.0f} | {100 * shares[1]:.0f} |", flush=True)
    print(json.dumps(document))


if __name__ == "__main__":
    main()
