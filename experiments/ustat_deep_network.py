"""Does one modest probe predict the error of a network's gradient at every group size?

Claim    The MSE of the leave-one-out gradient is (1/P)[V_p + Σ₁/G + Δ/(G(G−1))] (arXiv:2603.01162, Theorem 2,
         sharpened to an equality): moments of one probe predict it for every P and G.
Command  python experiments/ustat_deep_network.py --out runs/ustat_deep_network    about an hour on one core; resumable
         --only GROUP measures one group size and stops, so that a queue can take it in pieces
Method   `tiny` on `arithmetic`. Reference: two independent halves a, b of 12,288 rollouts each. Every batch ĝ is
         independent of both, so the mean of ⟨ĝ − a, ĝ − b⟩ is the MSE without the reference's own error.
         The modest probe has 256 prompts × 16 rollouts, a sixth of the reference, drawn as four independent parts of
         64 × 16: its moments are the averages of theirs. The parts alone tell what a probe of 64 × 16 can promise.
Verdict  holds if every measured MSE lies in the probe's 95 % interval and within 10 % of its prediction.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from numpy.typing import NDArray
from ustat_gradients import draw, gradient, gram, pooled, write_probe

from grposcope.core.files import dumps, write_json
from grposcope.instruments.gradient.probe_record import read_gram
from grposcope.instruments.group_size import mse, planning
from grposcope.lab import policies, tasks
from grposcope.maths import moments

GROUPS = (2, 4, 8, 16, 32)
BUDGETS = (64, 256)


def measured(
    units: int, group: int, tools: tuple, halves: tuple[NDArray, NDArray], seed: int
) -> dict[int, list[float]]:
    """⟨ĝ − a, ĝ − b⟩ of every batch, by budget: a unit is one batch of 256 rollouts, or four of 64."""
    small, large = BUDGETS
    products: dict[int, list[float]] = {small: [], large: []}
    generator = torch.Generator().manual_seed(1000 * seed + group)
    for _ in range(units):
        rollouts = draw(*tools, (large // group, group), generator)
        parts = torch.arange(large // group).split(small // group)
        gradients = [gradient(tools[0], rollouts.take(part)) for part in parts]
        for each in gradients:
            products[small].append(float((each - halves[0]) @ (each - halves[1])))
        whole = np.mean(gradients, axis=0)
        products[large].append(float((whole - halves[0]) @ (whole - halves[1])))
    return products


def reference(half: int, arguments: argparse.Namespace, tools: tuple) -> NDArray:
    """One half of the reference gradient, (D,); measured once and kept."""
    path = arguments.out / f"reference{half}.npy"
    if not path.exists():
        generator = torch.Generator().manual_seed(10**6 + 2 * arguments.seed + half)
        parts = [gradient(tools[0], draw(*tools, (64, 8), generator)) for _ in range(arguments.reference // 64)]
        np.save(path, np.mean(parts, axis=0))
    return np.load(path)


def cells(group: int, arguments: argparse.Namespace, tools: tuple) -> list[dict]:
    """Measured MSE of this group size, a row per budget; measured once and kept."""
    path = arguments.out / f"group{group}.json"
    if not path.exists():
        halves = (reference(0, arguments, tools), reference(1, arguments, tools))
        products = measured(arguments.units, group, tools, halves, arguments.seed)
        rows = [
            {"group": group, "budget": budget, "batches": len(values), "measured": float(np.mean(values)),
             "measured_se": float(np.std(values, ddof=1) / np.sqrt(len(values)))}
            for budget, values in products.items()
        ]  # fmt: skip
        write_json(path, rows)
    return json.loads(path.read_text())


def compared(cell: dict, probe: moments.Moments) -> dict:
    """The cell, with the error that this probe predicts and how the measured one compares."""
    group, prompts = cell["group"], cell["budget"] // cell["group"]
    predicted, oracle = mse.leave_one_out(probe, prompts, group), mse.oracle(probe, prompts, group)
    low, high = probe.interval(lambda s: (mse.second_moment(s, group) - s.mean2) / prompts)
    error = (
        cell["measured"]
        / predicted.value
        * float(np.hypot(cell["measured_se"] / cell["measured"], predicted.se / predicted.value))
    )
    return cell | {
        "predicted": predicted.value, "predicted_se": predicted.se, "low": low, "high": high,
        "ratio": cell["measured"] / predicted.value, "ratio_se": error,
        "oracle_ratio": cell["measured"] / oracle.value, "oracle_ratio_predicted": predicted.value / oracle.value,
        "inside": low <= cell["measured"] <= high, "close": abs(cell["measured"] / predicted.value - 1) <= 0.1,
    }  # fmt: skip


def table(rows: list[dict]) -> str:
    """The cells as a Markdown table."""
    lines = ["| G | rollouts | batches | measured MSE | predicted ± s.e. [95 %] | measured ÷ predicted | "
             "÷ oracle, measured (predicted) |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in rows:
        lines.append(
            f"| {r['group']} | {r['budget']} | {r['batches']} | {r['measured']:.4g} ± {r['measured_se']:.2g} | "
            f"{r['predicted']:.4g} ± {r['predicted_se']:.2g} [{r['low']:.4g}, {r['high']:.4g}] | "
            f"{r['ratio']:.3f} ± {r['ratio_se']:.3f} | {r['oracle_ratio']:.3f} ({r['oracle_ratio_predicted']:.3f}) |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, predict, compare; results are kept as they come."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--units", type=int, default=100, help="batches of 256 rollouts per group size")
    parser.add_argument("--reference", type=int, default=1536, help="groups of 8 in each half of the reference")
    parser.add_argument("--probe", type=int, nargs=2, default=(64, 16), help="prompts and group of a part of the probe")
    parser.add_argument("--probes", type=int, default=4, help="independent parts of the probe")
    parser.add_argument("--groups", type=int, nargs="+", default=list(GROUPS), help="group sizes to compare")
    parser.add_argument("--only", type=int, help="measure this group size, then stop")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    policy, task = policies.load(arguments.model), tasks.load(arguments.task)
    tools, began = (policy, task, task.problems("train")), time.perf_counter()
    if arguments.only:
        print(dumps(cells(arguments.only, arguments, tools)), f"{time.perf_counter() - began:.0f} s")
        return

    parts = []
    for index in range(arguments.probes):
        folder = arguments.out / f"probe{index}"
        if not (folder / "probe.json").exists():
            seed = arguments.seed + index
            rollouts = draw(*tools, tuple(arguments.probe), torch.Generator().manual_seed(seed))
            matrix, layers = gram(policy, rollouts)
            write_probe(folder, matrix, rollouts, arguments.model, task, layers, seed=seed)
        held = read_gram(folder)
        parts.append(moments.from_gram(held.gram, held.rewards, seed=index))
    probe = pooled(parts)
    every = [cell for group in arguments.groups for cell in cells(group, arguments, tools)]
    rows, alone = (
        [compared(cell, probe) for cell in every],
        [[compared(cell, part) for cell in every] for part in parts],
    )

    size, group = arguments.probe
    print(f"the probe, {arguments.probes * size} × {group}:\n{table(rows)}")
    inside, close = (sum(r[key] for r in rows) for key in ("inside", "close"))
    for index, (part, own) in enumerate(zip(parts, alone, strict=True)):
        plan = planning.optimal_group(part)
        print(f"part {index} alone, {size} × {group}: {sum(r['inside'] for r in own)} of {len(own)} inside, "
              f"{sum(r['close'] for r in own)} within 10 %; "
              f"G* {plan.continuous.value:.3g} [{plan.interval[0]:.3g}, {plan.interval[1]:.3g}]")  # fmt: skip
    best = probe.estimate(lambda s: planning.optimum(s, 0.0, 1.0))
    low, high = probe.interval(lambda s: planning.optimum(s, 0.0, 1.0))
    print(f"G* of the whole probe: {best}, 95 % interval [{low:.3g}, {high:.3g}]")
    holds = inside == close == len(rows)
    print(f"verdict: {'holds' if holds else 'does not hold'}; {inside} of {len(rows)} cells inside the interval, "
          f"{close} within 10 %")  # fmt: skip
    settings = {k: str(v) for k, v in vars(arguments).items()}
    print(dumps({"holds": holds, "inside": inside, "close": close, "rows": rows, "parts": alone,
                 "best": best, "interval": [low, high], "settings": settings}))  # fmt: skip


if __name__ == "__main__":
    main()
