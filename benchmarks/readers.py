"""What reading a log costs: JSON lines of 100,000 rows × 40 metrics against the parsers alone, time and memory.

    python benchmarks/readers.py [--rows 100000] [--metrics 40] [--repeats 5]

Each repeat times `json.loads` and Arrow on every line or piece and `grposcope.runs.read` on the file, one
after the other, in CPU seconds of the process; medians and ratios are printed. Peak memory is that of a fresh
process that reads the file, less that of one that only imports. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.json

from grposcope.runs import read
from grposcope.runs.text import Source

PEAK = """
import sys
from grposcope.runs import read, sniff
if len(sys.argv) > 1:
    read(sys.argv[1])
print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024)
"""


def write(path: Path, rows: int, metrics: int, style: str, nan: bool) -> None:
    """A log: verl's file logger ("verl") or flat JSON lines ("flat"), with a NaN in every line if asked for."""
    draws = np.random.default_rng(0).normal(size=(rows, metrics))
    keys = ["critic/score/mean", "actor/grad_norm", *(f"timing_s/part_{k}" for k in range(metrics - 3))]
    with path.open("w") as file:
        for step in range(rows):
            values = dict(zip(keys, draws[step].tolist(), strict=False))
            if nan:
                values["actor/grad_norm"] = float("nan")
            row = {"step": step + 1, "data": values} if style == "verl" else {"step": step + 1, **values}
            file.write(json.dumps(row, separators=(",", ":") if style == "verl" else None) + "\n")


def by_json(path: Path) -> None:
    """Every line through the standard library, and nothing kept."""
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def by_arrow(path: Path) -> None:
    """Every piece through Arrow on one thread, and nothing kept."""
    for _, piece in Source(path).pieces():
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(piece) + 1)
        pyarrow.json.read_json(pa.BufferReader(piece), read_options=options)


def seconds(work: Callable[[Path], object], path: Path) -> tuple[float, float]:
    """CPU seconds and seconds on the clock."""
    began, clock = time.process_time(), time.perf_counter()
    work(path)
    return time.process_time() - began, time.perf_counter() - clock


def ratio(these: list[tuple[float, float]], those: list[tuple[float, float]]) -> float:
    """Median of the paired ratios of CPU seconds."""
    return round(statistics.median(one[0] / other[0] for one, other in zip(these, those, strict=True)), 2)


def peak(*arguments: str) -> float:
    """Peak resident memory of a fresh process, MiB."""
    done = subprocess.run([sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Write, time, print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--metrics", type=int, default=40)
    options.add_argument("--repeats", type=int, default=5)
    given = options.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for style, nan in (("verl", False), ("flat", False), ("flat", True)):
            path = Path(folder) / "log.jsonl"
            write(path, given.rows, given.metrics, style, nan)
            read(path)  # imports
            times: dict[str, list[tuple[float, float]]] = {"json": [], "arrow": [], "read": []}
            for _ in range(given.repeats):
                times["json"].append(seconds(by_json, path))
                times["arrow"].append(seconds(by_arrow, path))
                times["read"].append(seconds(read, path))
            cpu = {name: statistics.median(t[0] for t in found) for name, found in times.items()}
            wall = statistics.median(t[1] for t in times["read"])
            row = {
                "style": style + (" with NaN" if nan else ""),
                "megabytes": round(path.stat().st_size / 1e6, 1),
                **{f"{name}_cpu_s": round(value, 2) for name, value in cpu.items()},
                "read_clock_s": round(wall, 2),
                **{f"against_{name}": ratio(times["read"], times[name]) for name in ("json", "arrow")},
                "memory_mib": round(peak(str(path)) - peak(), 0),
            }
            results.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()))
    print(json.dumps({"rows": given.rows, "metrics": given.metrics, "results": results}))


if __name__ == "__main__":
    main()
