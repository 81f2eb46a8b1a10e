"""Speed of `maths.moments.from_gram` and of `grposcope plan` against slow reference code, in turn in one process.

    python benchmarks/ustat.py

    from_gram at P = 64, G = 16 with 1,000 bootstrap draws                            goal: ≤ 1 s on one core
    16 prompts at G = 12 against loops over pairs, triples and quadruples (tests/reference)   goal: ≥ 100 ×
    plan on a probe of 64 × 16, from shell to answer                                  goal: ≤ 2 s

The time to start Python and import numpy is printed next to that of `plan`. Wall and CPU times are medians over
rounds; on a shared machine the CPU time is the one to compare with a goal. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import resource
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

from grposcope.instruments.gradient.probe_record import ProbeGram, write_gram
from grposcope.maths import moments
from reference import ustat_loops

PLAN = (
    "import argparse, sys; from grposcope.commands import generic; "
    "from grposcope.instruments.group_size import command as plan; "
    "parser = argparse.ArgumentParser(); generic.declare(parser, plan.Flags); "
    "plan.run(parser.parse_args([sys.argv[1]]))"
)


def cpu() -> float:
    """CPU time of this process and the ones it started, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def seconds(action: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU time of one call."""
    wall, used = time.perf_counter(), cpu()
    action()
    return time.perf_counter() - wall, cpu() - used


def example(prompts: int, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Gram matrix of random scores, and binary rewards (P, G) that depend on them."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(prompts, group, 64)) + rng.normal(size=(prompts, 1, 64))
    rewards = (scores[..., 0] + rng.normal(size=(prompts, group)) > 0.5).astype(float)
    flat = scores.reshape(-1, 64)
    return flat @ flat.T, rewards


def looped(gram: np.ndarray, rewards: np.ndarray) -> list[tuple[float, float, float]]:
    """Moments of every prompt by the slow reference code of tests/reference."""
    size = rewards.shape[1]
    blocks = [gram[p * size : (p + 1) * size, p * size : (p + 1) * size] for p in range(len(rewards))]
    return [ustat_loops.from_gram(block, row) for block, row in zip(blocks, rewards, strict=True)]


def run(*command: str) -> None:
    """Run Python with these arguments; it must succeed."""
    subprocess.run([sys.executable, *command], check=True, capture_output=True)


def main() -> None:
    """Measure all parts in turn, three rounds, and print the medians."""
    full, small = example(64, 16), example(16, 12)
    times: dict[str, list[tuple[float, float]]] = {}

    def note(name: str, value: tuple[float, float]) -> None:
        times.setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory() as scratch:
        write_gram(Path(scratch), ProbeGram(*full, np.zeros(full[1].shape, bool)))
        for _ in range(3):
            note("from_gram, 64 × 16, 1,000 draws", seconds(lambda: moments.from_gram(*full)))
            note("closed forms, 16 × 12", seconds(lambda: moments.from_gram(*small, replicates=0)))
            note("loops, 16 × 12", seconds(lambda: looped(*small)))
            note("plan, through its own parser", seconds(lambda: run("-c", PLAN, scratch)))
            note("python with numpy", seconds(lambda: run("-c", "import numpy")))
            note("grposcope plan", seconds(lambda: run("-m", "grposcope.cli", "plan", scratch))) if listed() else None
    pairs = zip(times["loops, 16 × 12"], times["closed forms, 16 × 12"], strict=True)
    ratios = [loops[1] / closed[1] for loops, closed in pairs]
    medians = {
        name: [statistics.median(column) for column in zip(*values, strict=True)] for name, values in times.items()
    }
    print("| what | wall, median s | CPU, median s |\n|---|---|---|")
    for name, (wall, used) in medians.items():
        print(f"| {name} | {wall:.3f} | {used:.3f} |")
    ratio = statistics.median(ratios)
    print(f"loops ÷ closed forms in CPU time, median of pairs: {ratio:.0f}")
    met = {"from_gram ≤ 1 s": medians["from_gram, 64 × 16, 1,000 draws"][1] <= 1, "≥ 100 × the loops": ratio >= 100}
    if "grposcope plan" in medians:
        met["plan ≤ 2 s"] = medians["grposcope plan"][1] <= 2
    print("goals: " + ", ".join(f"{goal}: {'met' if is_met else 'NOT met'}" for goal, is_met in met.items()))
    print(json.dumps({"seconds": times, "ratios": ratios, "goals": met}))


def listed() -> bool:
    """Whether the command line has `plan`."""
    done = subprocess.run([sys.executable, "-m", "grposcope.cli", "plan", "--help"], capture_output=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
