"""Seconds that an autopilot takes of a run, beside those of its steps.

    python benchmarks/autopilot.py [--steps 200] [--prompts 16] [--group 8] [--pairs 5]

Two runs of `tiny` with the same seed, alone and watched, in turn, on one thread; and the own time of a pilot for
batches of that size, after 100, 1,000 and 5,000 of them, whose level stays or rises. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from grposcope.core.estimate import Estimate
from grposcope.instruments.autopilot.pilot import Pilot
from grposcope.instruments.autopilot.policy import AutopilotPolicy
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train


def run(steps: int, prompts: int, group: int, mode: str) -> float:
    """Seconds of a run without evaluations and checkpoints, its start included."""
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(steps=steps, prompts=prompts, group=group, eval_problems=0, checkpoint_every=0, threads=1,
                             rollouts_every=0, autopilot=mode, out=str(Path(folder) / "run"))  # fmt: skip
        began = time.perf_counter()
        train(config)
        return time.perf_counter() - began


def pilot(batches: int, prompts: int, group: int, rising: bool) -> float:
    """Seconds of a batch, a gradient norm and a look, the median of the last 50 of so many."""
    draw, one, taken = np.random.default_rng(0), Pilot(AutopilotPolicy()), []
    for step in range(1, batches + 1):
        level = 0.1 + 0.8 * step / batches if rising else 0.5
        rewards = (draw.random((prompts, group)) < level).astype(float)
        cut = np.zeros((prompts, group))
        began = time.perf_counter()
        one.batch(step, rewards, cut)
        one.update(1.0)
        one.alarm(step)
        taken.append(time.perf_counter() - began)
        if step % 20 == 0:
            one.evaluation(step, Estimate(level, 0.03, 200))
    return statistics.median(taken[-50:])


def main() -> None:
    """Print both, and the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args()
    size = given.steps, given.prompts, given.group
    pairs = [(run(*size, "off"), run(*size, "advise")) for _ in range(given.pairs)]
    step = statistics.median(alone for alone, _ in pairs) / given.steps
    ratio = statistics.median(watched / alone for alone, watched in pairs)
    print(f"a step of {given.prompts} x {given.group} rollouts: {1e3 * step:.1f} ms; watched / alone {ratio:.3f}")
    found = {"step_ms": 1e3 * step, "ratio": ratio, "ratios": sorted(watched / alone for alone, watched in pairs)}
    for rising in (False, True):
        for batches in (100, 1000, 5000):
            own = pilot(batches, given.prompts, given.group, rising)
            name = f"{'rising' if rising else 'level'} after {batches:,}"
            found[name] = own / step
            print(f"the pilot, {name} batches: {1e3 * own:.2f} ms, {100 * own / step:.2f} % of a step")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
