"""Speed of `ustat.moments.from_gram` and of `grposcope plan`, beside their slow twins, in turn in one process.

    python benchmarks/ustat.py

`from_gram` at P = 64, G = 16 with 1,000 bootstrap draws; 16 prompts at G = 12 against loops over their pairs,
triples and quadruples (the twin of the tests); and `plan` on a probe of 64 × 16 from shell to answer, with what
starting Python and importing numpy takes beside it. Medians. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from grposcope.ustat import gram_file, moments
from reference import ustat_loops

PLAN = (
    "import argparse, sys; from grposcope.commands import plan; top = argparse.ArgumentParser(); "
    "plan.add(top.add_subparsers()); a = top.parse_args(['plan', sys.argv[1]]); a.run(a)"
)


def seconds(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def example(prompts: int, group: int) -> tuple[np.ndarray, np.ndarray]:
    """A Gram and binary rewards that depend on the scores."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(prompts, group, 64)) + rng.normal(size=(prompts, 1, 64))
    rewards = (scores[..., 0] + rng.normal(size=(prompts, group)) > 0.5).astype(float)
    flat = scores.reshape(-1, 64)
    return flat @ flat.T, rewards


def looped(gram: np.ndarray, rewards: np.ndarray) -> list[tuple[float, float, float]]:
    """The slow twin on every prompt."""
    size = rewards.shape[1]
    blocks = [gram[p * size : (p + 1) * size, p * size : (p + 1) * size] for p in range(len(rewards))]
    return [ustat_loops.from_gram(block, row) for block, row in zip(blocks, rewards, strict=True)]


def run(*command: str) -> None:
    """A command that must succeed."""
    subprocess.run([sys.executable, *command], check=True, capture_output=True)


def main() -> None:
    """Measure in turn and print."""
    full, small = example(64, 16), example(16, 12)
    times: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        times.setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory() as scratch:
        gram_file.write(Path(scratch), *full)
        for _ in range(3):
            note("from_gram, 64 × 16, 1,000 draws", seconds(lambda: moments.from_gram(*full)))
            note("closed forms, 16 × 12", seconds(lambda: moments.from_gram(*small, replicates=0)))
            note("loops, 16 × 12", seconds(lambda: looped(*small)))
            note("plan, through its own parser", seconds(lambda: run("-c", PLAN, scratch)))
            note("python with numpy", seconds(lambda: run("-c", "import numpy")))
            note("grposcope plan", seconds(lambda: run("-m", "grposcope.cli", "plan", scratch))) if listed() else None
    ratios = [a / b for a, b in zip(times["loops, 16 × 12"], times["closed forms, 16 × 12"], strict=True)]
    print("| what | median s | least s |\n|---|---|---|")
    for name, values in times.items():
        print(f"| {name} | {statistics.median(values):.4f} | {min(values):.4f} |")
    print(f"loops ÷ closed forms, median of pairs: {statistics.median(ratios):.0f}")
    print(json.dumps({"seconds": times, "ratios": ratios}))


def listed() -> bool:
    """Whether the command line has `plan`."""
    done = subprocess.run([sys.executable, "-m", "grposcope.cli", "plan", "--help"], capture_output=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
