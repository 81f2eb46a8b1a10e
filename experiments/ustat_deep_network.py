"""Does one modest probe predict the error of a network's gradient at every group size?

Claim    The MSE of the leave-one-out gradient is (1/P)[V_p + Σ₁/G + Δ/(G(G−1))] (arXiv:2603.01162, Theorem 2,
         sharpened to an equality): moments of one probe of 64 × 16 rollouts predict it for every P and G.
Command  python experiments/ustat_deep_network.py --out runs/ustat_deep_network        about 25 minutes on one core
Method   `tiny` on `arithmetic`. Reference: two independent halves a, b of 12,288 rollouts each. Every batch ĝ is
         independent of both, so the mean of ⟨ĝ − a, ĝ − b⟩ is the MSE without the reference's own error.
         Three further probes, averaged with the first, tell the error of one probe from that of the theory.
Verdict  holds for one probe if every measured MSE lies in its 95 % interval and within 10 % of its prediction; the
         same is asked of the mean of all probes.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from numpy.typing import NDArray
from ustat_gradients import draw, gradient, gram

from grposcope import policies, tasks
from grposcope.runs.store import dumps, write_json
from grposcope.ustat import gram_file, moments, mse, planning

GROUPS = (2, 4, 8, 16, 32)
BUDGETS = (64, 256)


def measured(
    units: int, group: int, tools: tuple, halves: tuple[NDArray, NDArray], seed: int
) -> dict[int, list[float]]:
    """⟨ĝ − a, ĝ − b⟩ of every batch, by budget: a unit is 256 rollouts, or four batches of 64."""
    small, large = BUDGETS
    found: dict[int, list[float]] = {small: [], large: []}
    generator = torch.Generator().manual_seed(1000 * seed + group)
    for _ in range(units):
        rollouts = draw(*tools, (large // group, group), generator)
        parts = torch.arange(large // group).split(small // group)
        gradients = [gradient(tools[0], rollouts.take(part)) for part in parts]
        for each in gradients:
            found[small].append(float((each - halves[0]) @ (each - halves[1])))
        whole = np.mean(gradients, axis=0)
        found[large].append(float((whole - halves[0]) @ (whole - halves[1])))
    return found


def write_probe(folder: Path, tools: tuple, shape: tuple[int, int], seed: int, model: str) -> None:
    """One probe of `shape` = (P, G), in the format that `grposcope plan` reads."""
    rollouts = draw(*tools, tuple(shape), torch.Generator().manual_seed(seed))
    matrix, layers = gram(tools[0], rollouts)
    truncated = rollouts.truncated.reshape(shape).numpy()
    gram_file.write(folder, matrix, rollouts.rewards.numpy(), truncated, np.stack(list(layers.values())), list(layers))
    about = {"format": 1, "model": model, "task": tools[1].name, "prompts": shape[0], "group": shape[1], "seed": seed}
    write_json(folder / "probe.json", about)


def compared(probes: list[moments.Moments], prompts: int, group: int, values: list[float]) -> dict:
    """One cell: the measured mean with its standard error beside the predictions."""
    first, spread = probes[0], float(np.std(values, ddof=1) / np.sqrt(len(values)))
    predicted, measured = mse.leave_one_out(first, prompts, group), float(np.mean(values))
    low, high = first.interval(lambda s: (mse.second_moment(s, group) - s.mean2) / prompts)
    every = [mse.leave_one_out(m, prompts, group).value for m in probes]
    oracles = [mse.oracle(m, prompts, group).value for m in probes]
    mean, oracle = float(np.mean(every)), float(np.mean(oracles))
    return {
        "group": group, "budget": prompts * group, "batches": len(values), "measured": measured,
        "measured_se": spread, "predicted": predicted.value, "predicted_se": predicted.se, "low": low, "high": high,
        "ratio": measured / predicted.value, "mean_of_probes": mean, "ratio_of_mean": measured / mean,
        "mean_of_probes_se": float(np.std(every, ddof=1) / np.sqrt(len(every))) if len(every) > 1 else float("nan"),
        "oracle_ratio": measured / oracle, "oracle_ratio_predicted": mean / oracle,
        "inside": low <= measured <= high, "close": abs(measured / predicted.value - 1) <= 0.1,
        "close_mean": abs(measured / mean - 1) <= 0.1,
    }  # fmt: skip


def main() -> None:
    """Measure, predict, compare; results are kept as they come."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--units", type=int, default=100, help="batches of 256 rollouts per group size")
    parser.add_argument("--reference", type=int, default=1536, help="groups of 8 in each half of the reference")
    parser.add_argument("--probe", type=int, nargs=2, default=(64, 16), help="prompts and group of the probe")
    parser.add_argument("--probes", type=int, default=4, help="independent probes; the first is the one in question")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    policy, task = policies.load(arguments.model), tasks.load(arguments.task)
    tools, began = (policy, task, task.problems("train")), time.perf_counter()

    probes = []
    for index in range(arguments.probes):
        folder = arguments.out / f"probe{index}"
        if not (folder / "probe.json").exists():
            write_probe(folder, tools, arguments.probe, arguments.seed + index, arguments.model)
        held = gram_file.read(folder)
        probes.append(moments.from_gram(held.gram, held.rewards))
        print(
            f"probe {index}: G* = {planning.optimal_group(probes[-1]).continuous}, {time.perf_counter() - began:.0f} s",
            flush=True,
        )

    halves = []
    for half in range(2):
        generator = torch.Generator().manual_seed(10**6 + 2 * arguments.seed + half)
        total, done = 0.0, 0
        while done < arguments.reference:
            rollouts = draw(*tools, (64, 8), generator)
            total, done = total + gradient(policy, rollouts), done + 64
        halves.append(total * 64 / done)
    print(f"reference of {2 * 8 * done:,} rollouts: {time.perf_counter() - began:.0f} s", flush=True)

    rows = []
    for group in GROUPS:
        cells = measured(arguments.units, group, tools, (halves[0], halves[1]), arguments.seed)
        for budget, values in cells.items():
            rows.append(compared(probes, budget // group, group, values))
            print(rows[-1], f"{time.perf_counter() - began:.0f} s", flush=True)
        write_json(arguments.out / "rows.json", rows)
    print(
        "| G | rollouts | batches | measured MSE | one probe [95 %] | ÷ it | ÷ mean of probes | ÷ oracle (predicted) |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for r in rows:
        print(
            f"| {r['group']} | {r['budget']} | {r['batches']} | {r['measured']:.4g} ± {r['measured_se']:.2g} | "
            f"{r['predicted']:.4g} [{r['low']:.4g}, {r['high']:.4g}] | {r['ratio']:.3f} | {r['ratio_of_mean']:.3f} | "
            f"{r['oracle_ratio']:.3f} ({r['oracle_ratio_predicted']:.3f}) |"
        )
    plan = planning.optimal_group(probes[0])
    print(f"G* of the first probe: {plan.continuous}, 95 % interval {plan.interval}")
    inside, close, close_mean = (sum(r[key] for r in rows) for key in ("inside", "close", "close_mean"))
    print(f"verdict: {inside} of {len(rows)} cells inside the interval of one probe, {close} within 10 % of it, "
          f"{close_mean} within 10 % of the mean of {len(probes)} probes")  # fmt: skip
    settings = {k: str(v) for k, v in vars(arguments).items()}
    print(
        dumps(
            {
                "cells": len(rows),
                "inside": inside,
                "close": close,
                "close_mean": close_mean,
                "rows": rows,
                "settings": settings,
            }
        )
    )


if __name__ == "__main__":
    main()
