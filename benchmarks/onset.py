"""How well onsets are dated, on made-up curves that know theirs: coverage of the interval, error of the point.

    python benchmarks/onset.py --seeds 0 300

The curves are those of tests/helpers/onset_curves.py: 60 to 500 rows, changes of 3 to 15 standard deviations of the
noise, which is white or AR(1) up to 0.9, normal, heavy-tailed or skewed. The rule, written before the first run: of
every kind with a change, 90 % of the 95 % intervals or more hold the true row; half of the points are within 3 rows of
it where the change is sudden, and within 8 where it is slow; and of every kind without the change that is asked for, at
most 5 % are dated. Shares are of the curves that are dated; how many are is said beside them. The last line is JSON.

Seeds from 50,000 on are kept for the last check: settle nothing on them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import onset_curves

from grposcope.maths.intervals import wilson
from grposcope.maths.timeseries import onset

COVERED, SUDDEN, SLOW, NEEDLESS = 0.9, 3.0, 8.0, 0.05
"""The rule: least coverage, largest median errors in rows, largest share dated without a change."""


def of_changes(kind: str, seeds: Sequence[int]) -> dict[str, object]:
    """How the onsets of curves of a kind with a change are dated."""
    curves = [onset_curves.made(kind, seed) for seed in seeds]
    seen = [(curve, onset.onset(curve.values, curve.direction, curve.course)) for curve in curves]
    dated = [(curve, at) for curve, at in seen if at is not None]
    rows = [(curve.slow, at.row - (curve.row or 0), at.low <= (curve.row or 0) <= at.high, at.high - at.low)
            for curve, at in dated]  # fmt: skip
    errors = {slow: [abs(error) for was, error, *_ in rows if was == slow] for slow in (False, True)}
    medians = {slow: float(np.median(of)) if of else None for slow, of in errors.items()}
    held = sum(holds for *_, holds, _ in rows)
    return {
        "kind": kind, "curves": len(curves), "dated": len(dated), "covered": held / max(len(dated), 1),
        "interval": wilson(held / len(dated), len(dated)) if dated else None,
        "sudden": medians[False], "slow": medians[True], "early": sum(error < -10 for _, error, *_ in rows),
        "width": float(np.median([width for *_, width in rows] or [0])),
        "kept": held >= len(dated) * COVERED and (medians[False] or 0) <= SUDDEN and (medians[True] or 0) <= SLOW,
    }  # fmt: skip


def of_unchanged(kind: str, seeds: Sequence[int]) -> dict[str, object]:
    """How many curves of a kind without a change are dated."""
    curves = [onset_curves.made(kind, seed) for seed in seeds]
    dated = sum(onset.onset(curve.values, curve.direction, curve.course) is not None for curve in curves)
    return {"kind": kind, "curves": len(curves), "dated": dated, "kept": dated <= NEEDLESS * len(curves)}


def table(rows: Sequence[dict[str, object]]) -> str:
    """The results as a Markdown table."""
    lines = ["| curves | dated | 95 % interval holds the row | median error, sudden | slow | median length | rule |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in rows:
        sudden, slow = (("" if row.get(name) is None else f"{row[name]:.1f}") for name in ("sudden", "slow"))
        covered = f"{row['covered']:.1%}" if "covered" in row else ""
        width = f"{row['width']:.0f}" if "width" in row else ""
        kind = str(row["kind"]).replace("_", " ")
        lines.append(f"| {kind} | {row['dated']} of {row['curves']} | {covered} | {sudden} | {slow} | {width} | "
                     f"{'kept' if row['kept'] else 'broken'} |")  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 300))
    parser.add_argument("--only", nargs="*", default=())
    given = parser.parse_args()
    seeds = range(*given.seeds)
    if not seeds:
        parser.error("--seeds FIRST END: the end must be above the first")
    rows = [of_changes(kind, seeds) for kind in onset_curves.CHANGES if not given.only or kind in given.only]
    rows += [of_unchanged(kind, seeds) for kind in onset_curves.UNCHANGED if not given.only or kind in given.only]
    print(table(rows))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
