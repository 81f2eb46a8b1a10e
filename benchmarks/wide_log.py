"""What `diagnose` takes of a wide log: 100,000 rows x 400 keys of prime-rl with 12 environments; seconds and memory.

    python benchmarks/wide_log.py [--rows 100000] [--keys 400] [--environments 12] [--repeats 1] [--file PATH]

Each repeat is a fresh process of `grposcope diagnose FILE --json`, from the shell to the verdict; its wall-clock and
CPU seconds and peak memory are printed, and beside them what the parsers alone take for the lines, in this process:
`json.loads`, and `orjson.loads` where it is installed. --file keeps the log there, 2 GB at full size; one that is there
is used again. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]

METRICS = ("agent/reward/mean", "agent/num_output_tokens/mean", "agent/is_truncated/mean", "agent/solved_some",
           "agent/reward/min", "agent/reward/max", "agent/solved_none", "agent/solved_all")  # fmt: skip


def keys(count: int, environments: int) -> list[str]:
    """The keys of a row: those of the whole and of each environment, the update, and times up to `count`."""
    pools = ["agg", *(f"env-{k:02d}" for k in range(environments))]
    found = ["step", *(f"train/{pool}/all/{name}" for pool in pools for name in METRICS)]
    found += ["optim/grad_norm", "optim/lr", "loss/mean", "entropy/all/mean", "mismatch_kl/all/mean"]
    found += [f"entropy/{pool}/mean" for pool in pools[1:]]
    return found[:count] + [f"time/part_{k:03d}/p90" for k in range(count - len(found))]


def write(path: Path, rows: int, names: list[str]) -> None:
    """Write the log of a run that learns slowly."""
    random = np.random.default_rng(0)
    with path.open("w") as file:
        for first in range(0, rows, 1000):
            size = min(1000, rows - first)
            values = (
                0.3 + 0.2 * np.arange(first, first + size)[:, None] / rows + 0.05 * random.random((size, len(names)))
            )
            for k, name in enumerate(names):
                if name.endswith("num_output_tokens/mean"):
                    values[:, k] *= 2000
                elif name.endswith("reward/min"):
                    values[:, k] = 0
                elif name.endswith("reward/max"):
                    values[:, k] = 1
            for k, row in enumerate(values.tolist()):
                row[0] = first + k + 1
                file.write(json.dumps(dict(zip(names, row, strict=True))) + "\n")


def parsed(path: Path, loads: Callable[[bytes], object]) -> float:
    """CPU seconds of parsing every line, nothing kept."""
    began = time.process_time()
    with path.open("rb") as file:
        for line in file:
            loads(line)
    return time.process_time() - began


def diagnosed(path: Path) -> dict[str, float]:
    """Wall-clock and CPU seconds and peak memory in GB of `grposcope diagnose` in a fresh process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [sys.executable, "-m", "grposcope", "diagnose", str(path), "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": cpu, "gigabytes": after.ru_maxrss / 1e6}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=400)
    parser.add_argument("--environments", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--no-parsers", action="store_true", help="do not time the parsers alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path = given.file or Path(scratch) / "metrics.jsonl"
        if not path.is_file():
            write(path, given.rows, keys(given.keys, given.environments))
        found = [diagnosed(path) for _ in range(given.repeats)]
        for one in found:
            print(f"diagnose: {one['wall']:.1f} s, {one['cpu']:.1f} s of CPU, {one['gigabytes']:.2f} GB")
        document: dict[str, object] = {"bytes": path.stat().st_size, "diagnose": found}
        if not given.no_parsers:
            for name, loads in {"json": json.loads, **({"orjson": orjson.loads} if orjson else {})}.items():
                document[name] = parsed(path, loads)
                print(f"{name}.loads alone: {document[name]:.1f} s of CPU")
    print(json.dumps(document))


if __name__ == "__main__":
    main()
