"""Time and memory of diagnosing a long log from its file: up to 100,000 rows × 40 metrics as JSON lines of verl.

    python benchmarks/labelled_scale.py [--rows 1000 10000 100000] [--repeats 5]

Every repeat is a fresh process that reads the file and diagnoses the run. Printed are medians of CPU seconds
and seconds on the clock of reading and of diagnosing, first call included, without the imports, and the largest peak
memory of the process. `exponent`: slope of log CPU seconds over log rows between the two longest. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from labelled_curves import make, noise
from labelled_files import verl

METRICS = 40

ONE = """
import json, sys, time
import numpy, pyarrow.json, scipy.fft, scipy.ndimage, scipy.special
from grposcope.instruments.diagnosis import diagnose
from grposcope.logs import read
marks = [(time.process_time(), time.perf_counter())]
run = read(sys.argv[1])
marks.append((time.process_time(), time.perf_counter()))
findings = diagnose(run)
marks.append((time.process_time(), time.perf_counter()))
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps({"marks": marks, "peak": peak, "rows": run.steps, "columns": len(run.table)}))
"""


def write(folder: Path, rows: int) -> Path:
    """Write a healthy run, φ = 0.6, as JSON lines of verl, filled up to METRICS metrics with further keys."""
    path = verl(folder, make("healthy", 0, 0.6, rows), 0)
    rng, first = np.random.default_rng(0), json.loads(path.open().readline())["data"]
    extra = np.array([noise(rng, rows, 0.6) for _ in range(METRICS - len(first))])
    lines = []
    for i, line in enumerate(path.read_text().splitlines()):
        row = json.loads(line)
        row["data"].update({f"timing_s/part_{k}": float(column[i]) for k, column in enumerate(extra)})
        lines.append(json.dumps(row, separators=(",", ":")))
    path.write_text("\n".join(lines) + "\n")
    return path


def main() -> None:
    """Write the logs, time reading and diagnosing them, and print the table."""
    parser = argparse.ArgumentParser(description="Time and memory of reading and diagnosing long logs.")
    parser.add_argument("--rows", type=int, nargs="+", default=(1_000, 10_000, 100_000))
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    results: dict[int, dict[str, Any]] = {}
    print("| rows | file, MB | read, CPU s (clock) | diagnose, CPU s (clock) | together, CPU s | peak, MiB |")
    print("|---|---|---|---|---|---|")
    for rows in given.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder), rows)
            runs = []
            for _ in range(given.repeats):
                done = subprocess.run(
                    [sys.executable, "-c", ONE, str(path)], capture_output=True, text=True, check=True
                )
                runs.append(json.loads(done.stdout))
            size = path.stat().st_size / 1e6
        parts = [
            [[b[k] - a[k] for a, b in zip(r["marks"], r["marks"][1:], strict=False)] for k in (0, 1)] for r in runs
        ]
        cpu = [statistics.median(p[0][j] for p in parts) for j in (0, 1)]
        clock = [statistics.median(p[1][j] for p in parts) for j in (0, 1)]
        both, peak = statistics.median(sum(p[0]) for p in parts), max(r["peak"] for r in runs)
        results[rows] = {"cpu": cpu, "clock": clock, "together": both, "peak_mib": peak, "mb": size}
        cells = [f"{c:.2f} ({t:.2f})" for c, t in zip(cpu, clock, strict=True)]
        print(f"| {rows:,} | {size:.1f} | {' | '.join(cells)} | {both:.2f} | {peak:.0f} |", flush=True)
    exponent = math.nan
    if len(results) > 1:
        (n1, a), (n2, b) = list(results.items())[-2:]
        exponent = math.log(b["together"] / a["together"]) / math.log(n2 / n1)
        print(f"\nexponent {exponent:.2f}")
    print(json.dumps({"results": results, "exponent": exponent}))


if __name__ == "__main__":
    main()
