"""What several rewards and constraints cost a training step: their share of its time, and runs with and without.

Sums with two rewards under two constraints against the same two rewards as one function, standardized advantages, on
the shipped model: 32 prompts × 8, 8 steps a run, five pairs. The share is the time in the aggregation, the penalties,
the measurement of the constraints and in combining and recording the groups' rewards, by wrapping these functions; the
pairs compare the steps' medians and contain the second call of a reward function.

    python benchmarks/rewards_cost.py OUT
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.lab.objectives import objective
from grposcope.lab.tasks import load
from grposcope.lab.train import loop
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.constrain import RunConstraints
from grposcope.logs.native.writer import RunWriter

REWARDS = """
def right(completions, answer, **_):
    return [float(a in c) for a, c in zip(answer, completions)]
def form(completions, **_):
    return [min(c.count("="), 2) / 2 for c in completions]
def both(completions, answer, **_):
    return [float(a in c) + 0.25 * min(c.count("="), 2) for a, c in zip(answer, completions)]
"""
SPENT: list[float] = []


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, its seconds added to SPENT."""

    def wrapped(*given: Any, **more: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*given, **more)
        finally:
            SPENT.append(time.perf_counter() - began)

    return wrapped


def run(folder: Path, place: Path, several_rewards: bool) -> tuple[float, float]:
    """Median seconds of a step after the first two, and the wrapped functions' share of the run's steps."""
    more: dict[str, Any] = {"reward": f"{place}/pay.py:both"}
    if several_rewards:
        more = {"reward": f"{place}/pay.py:right,form=0.5", "aggregation": "standardized_components",
                "constraint": "length<=12;form>=0.9"}  # fmt: skip
    SPENT.clear()
    loop.train(TrainConfig(
        task=f"jsonl:{place}/sums.jsonl", prompts=32, group=8, max_tokens=24, steps=8, eval_problems=0, threads=1,
        rollouts_every=0, checkpoint_every=0, out=str(folder), **more,
    ))  # fmt: skip
    rows = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    parts = ("seconds_sample", "seconds_grade", "seconds_update")
    seconds = np.array([sum(row[part] for part in parts) for row in rows])
    return float(np.median(seconds[2:])), sum(SPENT) / float(seconds.sum())


def main() -> None:
    """Print shares and ratios."""
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    (place / "pay.py").write_text(REWARDS)
    sums = [
        json.dumps({"prompt": one.prompt, "answer": one.answer}) for one in load("arithmetic").problems("train")[:400]
    ]
    (place / "sums.jsonl").write_text("\n".join(sums))
    RunConstraints.penalties = timed(RunConstraints.penalties)  # type: ignore[method-assign]
    RunConstraints.learn = timed(RunConstraints.learn)  # type: ignore[method-assign]
    objective._combined = timed(objective._combined)
    loop._of_components = timed(loop._of_components)
    RunWriter.group = timed(RunWriter.group)  # type: ignore[method-assign]
    shares, plain, ratios = [], [], []
    for i in range(5):
        order = (True, False) if i % 2 else (False, True)
        found = {which: run(place / f"{i}-{which}", place, which) for which in order}
        shares.append(found[True][1])
        plain.append(found[False][1])
        ratios.append(found[True][0] / found[False][0])
    for name, values in (("share with", shares), ("share without", plain), ("step, ratio", ratios)):
        print(f"{name}: {np.mean(values):.4f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}, "
              f"{min(values):.4f} to {max(values):.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
