"""Does the best group size stay where it is, whatever the budget, the iteration and the learning rate?

Claim    G* depends on neither the rollout budget, nor the iteration, nor the learning rate (arXiv:2603.01162,
         Theorem 7, which also reports that it moves with the task).
Command  python experiments/ustat_universality.py --out runs/ustat_universality     about an hour on one core; resumable
Method   `tiny` on `arithmetic`. Train with RLOO at three learning rates, keep the model at the start, the middle and
         the end, and probe each: G* with its bootstrap interval. Budgets: the best whole G of a full search over P and
         G at 128, 512, 2,048 rollouts from the same moments, and probes of different size of the starting model.
Verdict  holds if all intervals of G* over iterations and learning rates share a point (budgets leave it by algebra).
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from ustat_gradients import draw, gram

from grposcope import policies, tasks
from grposcope.runs.store import dumps, write_json
from grposcope.training.config import TrainConfig
from grposcope.training.loop import train
from grposcope.ustat import gram_file, moments, planning


def probed(folder: Path, model: str, arguments: argparse.Namespace, shape: tuple[int, int]) -> dict:
    """G* and its interval for one model, measured once and kept."""
    if not (folder / "gram.npz").exists():
        policy, task = policies.load(model), tasks.load(arguments.task)
        generator = torch.Generator().manual_seed(arguments.seed)
        rollouts = draw(policy, task, task.problems("train"), shape, generator)
        matrix, _ = gram(policy, rollouts)
        gram_file.write(folder, matrix, rollouts.rewards.numpy(), rollouts.truncated.reshape(shape).numpy())
        write_json(
            folder / "probe.json",
            {"format": 1, "model": model, "task": task.name, "prompts": shape[0], "group": shape[1]},
        )
    held = gram_file.read(folder)
    found = moments.from_gram(held.gram, held.rewards)
    plan = planning.optimal_group(found)
    batches = {n: planning.allocate(found, n) for n in (128, 512, 2048)}
    return {
        "reward": float(held.rewards.mean()), "best": plan.continuous.value, "se": plan.continuous.se,
        "low": plan.interval[0], "high": plan.interval[1], "near": plan.near, "sigma1": found.sigma1.value,
        "delta": found.delta.value, "prompt_variance": found.prompt_variance.value,
        "allocations": {n: (b.prompts, b.group) for n, b in batches.items()},
    }  # fmt: skip


def trained(rate: float, steps: int, arguments: argparse.Namespace) -> str:
    """The model after `steps` steps at this learning rate, trained once; its folder."""
    folder = arguments.out / f"lr{rate:g}-steps{steps}"
    if not (folder / "summary.json").exists():
        train(TrainConfig(
            model=arguments.model, task=arguments.task, recipe="rloo", out=str(folder), seed=arguments.seed,
            steps=steps, prompts=32, group=8, lr=rate, schedule="constant", eval_every=0, threads=1,
        ))  # fmt: skip
    return str(folder / "model")


def main() -> None:
    """Train, probe, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 2e-4, 4e-4])
    parser.add_argument("--steps", type=int, default=240, help="the end of training; the middle is half of it")
    parser.add_argument("--probe", type=int, nargs=2, default=(64, 16))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    prompts, group = arguments.probe
    rows = []

    def show(name: str, model: str, shape: tuple[int, int]) -> None:
        folder = arguments.out / ("probe-" + name.replace(" ", "-").replace("×", "x"))
        rows.append({"name": name, "shape": shape, **probed(folder, model, arguments, shape)})
        print(json.dumps(json.loads(dumps(rows[-1]))), flush=True)

    show("start", arguments.model, (prompts, group))
    show("start, half the prompts", arguments.model, (prompts // 2, group))
    show("start, half the group", arguments.model, (prompts, group // 2))
    for rate in arguments.rates:
        for steps in (arguments.steps // 2, arguments.steps):
            show(f"lr {rate:g}, step {steps}", trained(rate, steps, arguments), (prompts, group))
    print("| probe | P × G | mean reward | Σ₁ | Δ | V_p | G* [95 %] | within 5 % | P × G at 128, 512, 2,048 rollouts |")
    print("|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        bought = ", ".join(f"{p} × {g}" for p, g in r["allocations"].values())
        found = f"{r['sigma1']:.4g} | {r['delta']:.4g} | {r['prompt_variance']:.4g}"
        print(f"| {r['name']} | {r['shape'][0]} × {r['shape'][1]} | {r['reward']:.3f} | {found} | "
              f"{r['best']:.3g} [{r['low']:.3g}, {r['high']:.3g}] | "
              f"{r['near'][0]} to {r['near'][1]} | {bought} |")  # fmt: skip
    low, high = max(r["low"] for r in rows), min(r["high"] for r in rows)
    spread = max(r["best"] for r in rows) / min(r["best"] for r in rows)
    known = all(not math.isnan(r["low"]) for r in rows)
    verdict = "cannot tell" if not known else "holds" if low <= high else "does not hold"
    print(f"verdict: {verdict}; largest ÷ smallest G* {spread:.2f}")
    print(dumps({"verdict": verdict, "spread": spread, "rows": rows}))


if __name__ == "__main__":
    main()
