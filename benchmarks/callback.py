"""What the TRL callback costs: its own time over the time of a step, and steps with it against steps without.

    python benchmarks/callback.py [--rounds 5] [--steps 150] [--completions]

A random Llama of 2 layers is trained by GRPOTrainer on letters: steps of a tenth of a second, which those of real runs
exceed by far, so that the cost of writing and judging shows at its worst. With --completions, TRL writes single rewards
down (log_completions), and the callback reads them. Each round trains twice from the same seed, with the callback and
without, in alternating order. `share` is the processor time in the callback's own events while steps are made, over
the processor time of these steps, and `share_wall` the same by the clock, which a busy machine inflates; `begin` and
`end` are its seconds before the first step and after the last, which come once a run. `ratio` is the median step with
the callback over the median step without, per round. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))

import tiny_trl
from transformers import TrainerCallback
from transformers.utils import logging

from grposcope.engines.trl import GRPOscopeCallback


def timed(callback: GRPOscopeCallback) -> list[float]:
    """Wrap every event of the callback, so that it adds its processor seconds to the entry of the returned list."""
    spent = [0.0]

    def around(event: Any) -> Any:
        def run(*given: Any, **more: Any) -> None:
            began = time.process_time()
            event(*given, **more)
            spent[0] += time.process_time() - began

        return run

    for name in ("train_begin", "step_begin", "step_end", "log", "save", "train_end"):
        setattr(callback, f"on_{name}", around(getattr(callback, f"on_{name}")))
    return spent


class Clock(TrainerCallback):
    """Records when each step begins, and what the other callback had cost by then."""

    def __init__(self, other: GRPOscopeCallback | None):
        self.other = other
        self.begins: list[float] = []
        self.costs: list[float] = []
        self.cpu: list[tuple[float, float]] = []
        self.spent = timed(other) if other is not None else [0.0]

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.begins.append(time.perf_counter())
        self.costs.append(self.other.seconds if self.other is not None else 0.0)
        self.cpu.append((time.process_time(), self.spent[0]))


def train(callback: GRPOscopeCallback | None, steps: int, completions: bool) -> Clock:
    """Train for `steps` steps and return the clock; TRL calls `callback`, if there is one, before the clock."""
    clock = Clock(callback)
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [clock] if callback is None else [callback, clock]
        options = {"max_steps": steps, "log_completions": completions, "learning_rate": 0.0}
        tiny_trl.trainer(Path(folder), callbacks, **options).train()
    return clock


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Cost of the TRL callback, paired.")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs (default: 5)")
    parser.add_argument("--steps", type=int, default=150, help="steps of a run (default: 150)")
    parser.add_argument("--completions", action="store_true", help="with log_completions")
    given = parser.parse_args()
    logging.set_verbosity_error()
    train(None, 5, given.completions)  # warms up imports and caches
    rows = []
    for k in range(given.rounds):
        callback, clocks = GRPOscopeCallback(), {}
        for which in (False, True) if k % 2 else (True, False):
            clocks[which] = train(callback if which else None, given.steps, given.completions)
        medians = {}
        for which, clock in clocks.items():
            parts = [b - a for a, b in zip(clock.begins[2:], clock.begins[3:], strict=False)]
            medians[which] = statistics.median(parts)
        seen = clocks[True]
        row = {
            "step": medians[False],
            "ratio": medians[True] / medians[False],
            "share": (seen.cpu[-1][1] - seen.cpu[0][1]) / (seen.cpu[-1][0] - seen.cpu[0][0]),
            "share_wall": (seen.costs[-1] - seen.costs[0]) / (seen.begins[-1] - seen.begins[0]),
            "per_step": (seen.cpu[-1][1] - seen.cpu[0][1]) / (given.steps - 1),
            "cpu_step": (seen.cpu[-1][0] - seen.cpu[0][0]) / (given.steps - 1),
            "begin": seen.costs[0],
            "end": callback.seconds - seen.costs[-1],
        }
        rows.append(row)
        print(", ".join(f"{name} {value:.5f}" for name, value in row.items()), flush=True)
    result = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    for name in ("share", "ratio"):
        values = [row[name] for row in rows]
        print(f"{name}: median {result[name]:.4f}, {min(values):.4f} to {max(values):.4f} over {len(values)} rounds")
    print(json.dumps({**vars(given), **result}))


if __name__ == "__main__":
    main()
