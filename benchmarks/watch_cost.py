"""CPU time of `grposcope watch` on a run of five files, over a minute of following.

A run in the style of prime-rl: files of the trainer, the orchestrator, two environments and the evaluations, with ROWS
steps in them before the watch begins. A further step is written every SECONDS, its rows in five writes spread over the
step. CPU seconds are those of the watching process from the first screen on (without the start of Python), and, beside
them, from its start. Run: `python benchmarks/watch_cost.py [ROWS SECONDS]`; one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from engine_logs import prime_orchestrator, prime_trainer

MINUTE = 60.0
"""Seconds of following that are measured."""

OF_A_FILE = {"math": "train/math/", "code": "train/code/", "eval": "eval/"}
"""File -> the beginning of the keys that it has instead of the orchestrator's."""


def rows(step: int) -> dict[str, list[Mapping[str, Any]]]:
    """File -> its rows of one step."""
    files: dict[str, list[Mapping[str, Any]]] = {"trainer": list(prime_trainer(step)), "orchestrator": []}
    for row in prime_orchestrator(step):
        at = {key: row[key] for key in ("step", "time")}
        parts = {name: {k: v for k, v in row.items() if k.startswith(start)} for name, start in OF_A_FILE.items()}
        rest = {k: v for k, v in row.items() if not k.startswith(tuple(OF_A_FILE.values()))}
        for name, part in parts.items():
            if part:
                files.setdefault(name, []).append({**at, **part})
        files["orchestrator"] += [rest] if len(rest) > len(at) else []
    return files


def append(path: Path, new: Sequence[Mapping[str, Any]]) -> None:
    """Write rows at the end of a file of JSON lines."""
    with path.open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in new))


def cpu(process: psutil.Process) -> float:
    """CPU seconds of a process so far."""
    times = process.cpu_times()
    return times.user + times.system


def main(argv: Sequence[str]) -> None:
    """Measure, and print one line."""
    before, seconds = (int(argv[1]), float(argv[2])) if len(argv) > 2 else (300, 20.0)
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run"
        run.mkdir()
        for step in range(1, before + 1):
            for file, new in rows(step).items():
                append(run / f"{file}.jsonl", new)
        command = [sys.executable, "-u", "-m", "grposcope", "watch", str(run)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process = psutil.Process(child.pid)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(2.0)
        start, began, step = cpu(process), time.monotonic(), before
        while time.monotonic() - began < MINUTE:
            step += 1
            for file, new in rows(step).items():
                append(run / f"{file}.jsonl", new)
                time.sleep(min(seconds / 5, max(MINUTE - (time.monotonic() - began), 0)))
        wall, spent = time.monotonic() - began, cpu(process) - start
        sizes = sum(path.stat().st_size for path in run.iterdir())
        child.terminate()
        child.communicate()
    print(json.dumps({
        "rows_before": before, "seconds_per_step": seconds, "steps_written": step - before, "megabytes": sizes / 1e6,
        "cpu_seconds": spent, "wall_seconds": wall, "share_of_a_core": spent / wall, "cpu_seconds_at_start": start,
    }))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv)
