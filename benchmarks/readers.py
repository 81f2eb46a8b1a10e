"""What reading a log costs: JSON lines of 100,000 rows × 40 metrics against the parsers alone, time and memory.

    python benchmarks/readers.py [--rows 100000] [--metrics 40] [--repeats 5]

"The parser alone" is each of these on every line or piece, one thread, nothing kept: `json.loads` of the standard
library, which `grposcope.logs.read` itself uses; Arrow's JSON reader; and `orjson.loads`, the fastest general one,
where it is installed. Each repeat times them and `read` on the same file, one after the other, in CPU seconds of the
process; medians and paired ratios are printed. Reading should take at most twice as long as `json.loads` alone. Files:
verl's file logger; flat lines; flat lines with a NaN in each, which orjson refuses; and flat lines with a text in each.
Peak memory is that of a fresh process that reads the file, less that of one that only imports. The last line is JSON.
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
import pyarrow.compute
import pyarrow.json

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]

from grposcope.logs import read
from grposcope.logs.formats.log_file import LogFile

PEAK = """
import sys
from grposcope.logs import read
if len(sys.argv) > 1:
    read(sys.argv[1])
print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024)
"""


STYLES = ("verl", "flat", "flat with NaN", "flat with text")


def write(path: Path, rows: int, metrics: int, style: str) -> None:
    """Write a log in one of STYLES."""
    draws = np.random.default_rng(0).normal(size=(rows, metrics))
    keys = ["critic/score/mean", "actor/grad_norm", *(f"timing_s/part_{k}" for k in range(metrics - 3))]
    with path.open("w") as file:
        for step in range(rows):
            values = dict(zip(keys, draws[step].tolist(), strict=False))
            if style == "flat with NaN":
                values["actor/grad_norm"] = float("nan")
            row = {"step": step + 1, "data": values} if style == "verl" else {"step": step + 1, **values}
            if style == "flat with text":
                row["time"] = f"2026-01-01 {step // 3600:02d}:{step // 60 % 60:02d}:{step % 60:02d}"
            file.write(json.dumps(row, separators=(",", ":") if style == "verl" else None) + "\n")


def by_json(path: Path) -> None:
    """Parse every line with the standard library and keep nothing."""
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def by_orjson(path: Path) -> None:
    """Parse every line with orjson and keep nothing."""
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)


def by_arrow(path: Path) -> None:
    """Parse every piece with Arrow on one thread and keep nothing."""
    for _, piece in LogFile(path).pieces():
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(piece) + 1)
        pyarrow.json.read_json(pa.BufferReader(piece), read_options=options)


def seconds(work: Callable[[Path], object], path: Path) -> tuple[float, float]:
    """CPU seconds and wall-clock seconds of one call."""
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
    """Write the logs, time reading them, and print the results."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--metrics", type=int, default=40)
    options.add_argument("--repeats", type=int, default=5)
    given = options.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for style in STYLES:
            path = Path(folder) / "log.jsonl"
            write(path, given.rows, given.metrics, style)
            read(path)  # imports
            works: dict[str, Callable[[Path], object]] = {"json": by_json, "arrow": by_arrow, "read": read}
            if orjson is not None and "NaN" not in style:
                works["orjson"] = by_orjson
            times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
            for _ in range(given.repeats):
                for name, work in works.items():
                    times[name].append(seconds(work, path))
            cpu = {name: statistics.median(t[0] for t in spent) for name, spent in times.items()}
            wall = statistics.median(t[1] for t in times["read"])
            row = {
                "style": style,
                "megabytes": round(path.stat().st_size / 1e6, 1),
                **{f"{name}_cpu_s": round(value, 2) for name, value in cpu.items()},
                "read_clock_s": round(wall, 2),
                **{f"against_{name}": ratio(times["read"], times[name]) for name in works if name != "read"},
                "memory_mib": round(peak(str(path)) - peak(), 0),
            }
            results.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()))
    print(json.dumps({"rows": given.rows, "metrics": given.metrics, "results": results}))


if __name__ == "__main__":
    main()
