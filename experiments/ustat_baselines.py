"""Are the predicted errors of other gradients right on a network, and which baseline is best there?

Claim    V is the best constant baseline only where Cov(r, ‖s‖²) = 0 (arXiv:2606.29238); the MSE of each gradient
         follows from one probe (`instruments.group_size.mse`), the standardized one with its bias included.
Command  python experiments/ustat_baselines.py --probe runs/ustat_deep_network/probe0      about ten minutes on one core
Method   `tiny` on `arithmetic`, batches of 8 × 8 rollouts. Every batch gives one gradient of each kind; over blocks of
         batches, E‖ĝ‖² and (from pairs of batches) ‖E ĝ‖² and ‖E ĝ − E g‖² are unbiased. Standard errors over blocks.
Verdict  holds if every measured error is within two standard errors (both sides') of its prediction.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from ustat_gradients import draw, gradient

from grposcope.core.files import dumps
from grposcope.instruments.gradient.probe_record import read_gram
from grposcope.instruments.group_size import mse
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import advantages
from grposcope.maths import moments

KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "no baseline": advantages.none,
    "leave-one-out": advantages.leave_one_out,
    "centered": advantages.centered,
    "standardized": advantages.standardized,
}
FORMULAS = {"no baseline": mse.reinforce, "leave-one-out": mse.leave_one_out, "centered": mse.centered,
            "standardized": mse.standardized}  # fmt: skip


def block(size: int, shape: tuple[int, int], tools: tuple, generator: torch.Generator) -> dict[str, float]:
    """Unbiased MSE around E g of every kind of gradient, from `size` batches."""
    sums: dict[str, NDArray | float] = {}
    squares = dict.fromkeys((*KINDS, *(f"{kind} off" for kind in KINDS)), 0.0)
    for _ in range(size):
        rollouts = draw(*tools, shape, generator)
        gradients = {kind: gradient(tools[0], rollouts, advantage) for kind, advantage in KINDS.items()}
        gradients |= {f"{kind} off": gradients[kind] - gradients["leave-one-out"] for kind in KINDS}
        for name, vector in gradients.items():
            sums[name] = sums.get(name, 0.0) + vector
            squares[name] += float(vector @ vector)

    def square_of_mean(name: str) -> float:
        return (float(sums[name] @ sums[name]) - squares[name]) / (size * (size - 1))

    return {kind: squares[kind] / size - square_of_mean(kind) + square_of_mean(f"{kind} off") for kind in KINDS}


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--probe", type=Path, required=True, help="a probe of the model")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--shape", type=int, nargs=2, default=(8, 8), help="prompts and group of a batch")
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--size", type=int, default=15, help="batches in a block")
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    held = read_gram(arguments.probe)
    probe = moments.from_gram(held.gram, held.rewards)
    policy, task = policies.load(arguments.model), tasks.load(arguments.task)
    tools, generator = (policy, task, task.problems("train")), torch.Generator().manual_seed(arguments.seed)
    shape = tuple(arguments.shape)
    measured = [block(arguments.size, shape, tools, generator) for _ in range(arguments.blocks)]
    rows = []
    print("| gradient | measured MSE | predicted from the probe | measured ÷ predicted | z |\n|---|---|---|---|---|")
    for kind in KINDS:
        values = np.array([m[kind] for m in measured])
        mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
        predicted = FORMULAS[kind](probe, *shape)
        z = (mean - predicted.value) / float(np.hypot(error, predicted.se))
        rows.append({"gradient": kind, "measured": mean, "se": error, "predicted": predicted, "z": z})
        print(f"| {kind} | {mean:.4g} ± {error:.2g} | {predicted.value:.4g} ± {predicted.se:.2g} | "
              f"{mean / predicted.value:.3f} | {z:+.1f} |")  # fmt: skip
    holds = all(abs(r["z"]) <= 2 for r in rows)
    oracle, best = mse.oracle(probe, *shape), mse.optimal_baseline(probe, *shape)
    tilt = probe.estimate(lambda s: s.tilt / np.sqrt(s.norm))
    print(f"predicted: oracle {oracle}, best constant baseline {best}; Cov(r, ‖s‖²)/√E‖s‖² = {tilt}")
    print(f"verdict: {'holds' if holds else 'does not hold'}")
    print(dumps({"holds": holds, "rows": rows, "oracle": oracle, "optimal": best}))


if __name__ == "__main__":
    main()
