"""What recording a run costs: seconds in the writer, in samples of rollouts and in checkpoints, as shares of a step.

    python benchmarks/recording.py [--steps 80]

Runs `tiny` on arithmetic with the default settings and times every call that writes, in the same
process. For comparison, the naive way opens, writes and syncs a file for every line. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pyarrow.parquet  # noqa: F401  imported once per process, so not counted
from transformers.utils import logging

from grposcope.core.files import dumps
from grposcope.lab.train import checkpoint, loop
from grposcope.lab.train.config import TrainConfig
from grposcope.logs.native.writer import RunWriter

spent: dict[str, list[float]] = defaultdict(list)


def timed(place: Any, name: str, kind: str) -> None:
    """Wrap the function `place.name`, so that the seconds of each call go to `spent[kind]`."""
    inner: Callable[..., Any] = getattr(place, name)

    def outer(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return inner(*args, **kwargs)
        finally:
            spent[kind].append(time.perf_counter() - began)

    setattr(place, name, outer)


def naive(rows: list[dict[str, Any]], folder: Path) -> list[float]:
    """Seconds of each row if the file is opened, written and synced for every row."""
    seconds = []
    for row in rows:
        began = time.perf_counter()
        with (folder / "naive.jsonl").open("a") as file:
            file.write(dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    """Measure and print a table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=80)
    steps = parser.parse_args().steps
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for name in ("step", "group", "phase", "evaluation"):
        timed(RunWriter, name, "lines")
    timed(RunWriter, "rollouts", "rollouts")
    timed(loop, "recorded", "rollouts")
    timed(checkpoint, "save", "checkpoints")
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        loop.train(TrainConfig(steps=steps, eval_problems=0, out=str(run)))
        rows = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
        sizes = {f.name: f.stat().st_size for f in run.glob("*.jsonl")}
        sizes["rollouts"] = sum(f.stat().st_size for f in run.glob("rollouts/*"))
        slow = naive(rows, Path(scratch))
    phases = ("seconds_sample", "seconds_grade", "seconds_update")
    step = statistics.median(sum(row[p] for p in phases) for row in rows)
    print("| what | calls | median ms a call | ms a step | share of a step |\n|---|---|---|---|---|")
    table = {}
    for kind, seconds in spent.items():
        share = sum(seconds) / steps / step
        table[kind] = {"calls": len(seconds), "median_s": statistics.median(seconds), "share": share}
        cells = (kind, len(seconds), f"{1e3 * statistics.median(seconds):.2f}", f"{1e3 * sum(seconds) / steps:.2f}")
        print(f"| {' | '.join(map(str, cells))} | {share:.2%} |")
    print(f"| a step line, opened and synced each time | {steps} | {1e3 * statistics.median(slow):.2f} | | |")
    print(dumps({"steps": steps, "median_step_s": step, "bytes": sizes, "recording": table}))


if __name__ == "__main__":
    main()
