"""What `--probe-every` costs: the same run with and without probes, in turn, in one process.

    python benchmarks/probe_every.py [--pairs 5] [--steps 40] [--every 10]

Runs `tiny` on arithmetic with the default settings of `grposcope train` (32 × 8 rollouts), evaluation included,
`--pairs` times each way, the first of a pair in turn, and compares CPU time, which others on the machine disturb
least. Late in a run most groups are dead and a step costs less: `--model` may name a trained model. The
weights must end the same. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from transformers.utils import logging

from grposcope.core.files import dumps
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train


def timed(folder: Path, every: int, given: argparse.Namespace) -> tuple[float, float]:
    """CPU seconds of a run, and the share of its wall-clock time that its probes take."""
    settings = TrainConfig(model=given.model, steps=given.steps, probe_every=every, threads=1, out=str(folder))
    began, wall = time.process_time(), time.perf_counter()
    train(settings)
    spent, whole = time.process_time() - began, time.perf_counter() - wall
    rows = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    return spent, sum(row.get("seconds_probe", 0.0) for row in rows) / whole


def main() -> None:
    """Measure and print a table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--model", default="tiny")
    given = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    train(TrainConfig(steps=1, eval_problems=0, threads=1, probe_every=1, out=tempfile.mkdtemp() + "/warm"))
    ratios, shares, seconds = [], [], []
    for pair in range(given.pairs):
        with tempfile.TemporaryDirectory() as scratch:
            cost = {}
            for every in (0, given.every) if pair % 2 else (given.every, 0):
                cost[every] = timed(Path(scratch) / f"run{every}", every, given)
            weights = [(Path(scratch) / f"run{e}" / "model" / "model.safetensors").read_bytes() for e in cost]
            assert weights[0] == weights[1], "the probes changed the run"
        ratios.append(cost[given.every][0] / cost[0][0] - 1)
        shares.append(cost[given.every][1])
        seconds.append((cost[0][0], cost[given.every][0]))
    plain, probed = (statistics.median(pair[i] for pair in seconds) for i in range(2))
    print(f"| {given.pairs} pairs, {given.steps} steps | without | --probe-every {given.every} | extra, median (all) |")
    print("|---|---|---|---|")
    every_ratio = ", ".join(f"{r:.1%}" for r in sorted(ratios))
    print(f"| CPU s | {plain:.1f} | {probed:.1f} | {statistics.median(ratios):.1%} ({every_ratio}) |")
    print(f"| share of the time in probes, as recorded | | {statistics.median(shares):.1%} | |")
    print(dumps({"extra": ratios, "median": statistics.median(ratios), "in_probes": shares, "seconds": seconds}))


if __name__ == "__main__":
    main()
