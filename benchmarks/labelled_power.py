"""Can a flat reward be told from one that changes a little? Over rows, size of the change and autocorrelation.

    python benchmarks/labelled_power.py [--repeats 100]

Two questions about a reward that lies at 0.4 ± 0.03 (AR(1)) and changes by D over the run, margin 0.1:
"path": every fifth of what the run did lies within the margin of its beginning (`timeseries.level`, the rule's test);
"mean": so does the mean of the process (`timeseries.change`, where wandering counts as noise). Shares of runs for which
the answer is yes at p < 0.004, the level that Holm leaves to one of twelve rules. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from labelled_curves import noise

from grposcope.timeseries import change as trends
from grposcope.timeseries import level
from grposcope.timeseries.change import EARLY

MARGIN, LEVEL, SD = 0.1, 0.004, 0.03


def still(y: np.ndarray) -> tuple[bool, bool]:
    """Whether the path and the mean are within the margin in every fifth."""
    curve, path, mean = trends.fit(y), 0.0, 0.0
    for first in (0.2, 0.4, 0.6, 0.8):
        span = (first, first + 0.2)
        for side in (MARGIN, -MARGIN):
            own = level.change(y, EARLY, span, minus=side)
            drawn = curve.change(last=span, minus=side)
            path = max(path, own.p_down if side > 0 else own.p_up)
            mean = max(mean, drawn.p_down if side > 0 else drawn.p_up)
    return path < LEVEL, mean < LEVEL


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description="Power of the rule `no learning`.")
    parser.add_argument("--repeats", type=int, default=100, help="runs per cell (default: 100)")
    repeats = parser.parse_args().repeats
    document: dict[str, Any] = {}
    print("| φ | rows | change D | path, % | mean, % |\n|---|---|---|---|---|")
    for phi, rows in [(0.6, 200), *((0.9, n) for n in (50, 100, 200, 400, 800, 1600, 3200))]:
        for change in (0.0, 0.1, 0.15, 0.2):
            rng = np.random.default_rng([20_000, rows, int(100 * change)])
            ramp = 0.4 + change * np.minimum(np.arange(rows) / (0.4 * rows), 1)
            found = np.mean([still(ramp + SD * noise(rng, rows, phi)) for _ in range(repeats)], axis=0)
            document[f"{phi:g}, {rows}, {change:g}"] = found.tolist()
            print(f"| {phi:g} | {rows} | {change:g} | {100 * found[0]:.0f} | {100 * found[1]:.0f} |", flush=True)
    print(json.dumps(document))


if __name__ == "__main__":
    main()
