"""Does the best group size stay where it is, whatever the budget, the iteration and the learning rate?

Claim    G* depends on neither the rollout budget, nor the iteration, nor the learning rate (arXiv:2603.01162,
         Theorem 7, which also reports that it moves with the task).
Command  python experiments/ustat_universality.py --out runs/ustat_universality    half an hour on one core; resumable
         --only RATE trains at one learning rate and probes it, then stops, so that a queue can take it in pieces
Method   `tiny` on `arithmetic`. Train with RLOO at three learning rates, keep the model at the middle and the end,
         and probe it with the same prompts as at the start: G* with its bootstrap interval. The draws of prompts are
         the same in every probe, so G* ÷ G* at the start has an interval of its own in which the choice of prompts
         cancels. Budgets: the best P and G of a full search at 128, 512, 2,048 rollouts from the same moments, and
         probes of other sizes at the start.
Verdict  by the intervals of the ratios to the start, widened for their number (Bonferroni): does not hold if one
         leaves 1 out, holds if all lie within a factor of two, else cannot tell. One run a learning rate: the
         intervals are those of these models, not of other seeds of training.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from ustat_gradients import draw, streamed, write_probe

from grposcope.core.files import dumps
from grposcope.instruments.gradient.probe_record import read_gram
from grposcope.instruments.group_size import planning
from grposcope.lab import policies, tasks
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.maths import moments, resampling


def probe(folder: Path, model: str, arguments: argparse.Namespace, shape: tuple[int, int]) -> moments.Moments:
    """The moments of one model, which is probed unless the folder holds a probe."""
    if not (folder / "probe.json").exists():
        policy, task = policies.load(model), tasks.load(arguments.task)
        generator = torch.Generator().manual_seed(arguments.seed)
        rollouts = draw(policy, task, task.problems("train"), shape, generator)
        reward = float(rollouts.rewards.mean())
        write_probe(folder, streamed(policy, rollouts), rollouts, model, task, reward=reward)
    held = read_gram(folder)
    return moments.from_gram(held.gram, held.rewards)


def row(name: str, folder: Path, probed: moments.Moments, start: moments.Moments, comparisons: int) -> dict:
    """G* of one probe, and its ratio to that of the starting model."""
    plan = planning.optimal_group(probed)
    batches = {n: planning.allocate(probed, n) for n in (128, 512, 2048)}
    drawn, before = (planning.optimum(m.bootstrap, 0.0, 1.0) for m in (probed, start))
    ratios = np.divide(drawn, before, out=np.full_like(drawn, np.nan), where=np.isfinite(before))
    paired = probed is not start and len(drawn) == len(before) and probed.prompts == start.prompts
    wide = resampling.interval(ratios, 1 - 0.05 / comparisons) if paired else (math.nan, math.nan)
    kept = np.array([planning.optimal_group(start).integer])
    staying = [planning.loss(m, kept, 0.0, 1.0)[:, 0] for m in (probed.pooled, probed.bootstrap)]
    return {
        "name": name, "shape": (probed.prompts, probed.group),
        "reward": json.loads((folder / "probe.json").read_text())["reward"],
        "best": plan.continuous.value, "se": plan.continuous.se, "low": plan.interval[0], "high": plan.interval[1],
        "near": plan.near, "sigma1": probed.sigma1, "delta": probed.delta, "prompt_variance": probed.prompt_variance,
        "allocations": {n: (b.prompts, b.group) for n, b in batches.items()},
        "ratio": plan.continuous.value / float(planning.optimum(start.pooled, 0.0, 1.0)[0]),
        "ratio_interval": resampling.interval(ratios) if paired else (math.nan, math.nan),
        "staying": float(staying[0][0]), "staying_interval": resampling.interval(staying[1]),
        "wide": wide, "moved": paired and not wide[0] <= 1 <= wide[1],
    }  # fmt: skip


def trained(rate: float, arguments: argparse.Namespace) -> dict[str, str]:
    """Folders of the models at the middle and the end of training at this learning rate, trained if missing."""
    folder = arguments.out / f"lr{rate:g}"
    tries = 0
    while folder.exists() and not (folder / "summary.json").exists():  # left unfinished, so it is made again
        tries += 1
        folder = folder.with_name(f"lr{rate:g}-again{tries}")
    if not folder.exists():
        train(TrainConfig(
            model=arguments.model, task=arguments.task, recipe="rloo", out=str(folder), seed=arguments.seed,
            steps=arguments.steps, prompts=32, group=8, lr=rate, schedule="constant", eval_every=0, threads=1,
            checkpoint_every=arguments.steps // 2, keep_checkpoints=0, rollouts_every=0,
        ))  # fmt: skip
    middle = folder / "checkpoints" / f"step-{arguments.steps // 2:06d}" / "model"
    return {f"step {arguments.steps // 2}": str(middle), f"step {arguments.steps}": str(folder / "model")}


def table(rows: list[dict]) -> str:
    """All probes as a Markdown table."""
    lines = ["| model | P × G | mean reward | Σ₁ | Δ | V_p | G* [95 %] | loses at most 5 % | ÷ start [95 %] | "
             "the start's G needs more budget | P × G bought by 128, 512, 2,048 |", "|---" * 11 + "|"]  # fmt: skip
    for r in rows:
        bought = ", ".join(f"{p} × {g}" for p, g in r["allocations"].values())
        noise_terms = " | ".join(f"{r[k].value:.3g} ± {r[k].se:.2g}" for k in ("sigma1", "delta", "prompt_variance"))
        best = f"{r['best']:.3g} [{r['low']:.3g}, {r['high']:.3g}]"
        low, high = r["ratio_interval"]
        stays = f"{r['staying']:+.1%} [{', '.join(f'{v:.1%}' for v in r['staying_interval'])}]"
        ratio = "" if math.isnan(low) else f"{r['ratio']:.2f} [{low:.2f}, {high:.2f}]"
        lines.append(
            f"| {r['name']} | {r['shape'][0]} × {r['shape'][1]} | {r['reward']:.3f} | {noise_terms} | "
            f"{best} | {r['near'][0]} to {r['near'][1]} | {ratio} | {stays} | {bought} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Train, probe, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 2e-4, 4e-4])
    parser.add_argument("--only", type=float, help="train at this learning rate and probe it, then stop; 0: the start")
    parser.add_argument("--steps", type=int, default=120, help="the end of training; the middle is half of it")
    parser.add_argument("--probe", type=int, nargs=2, default=(64, 16))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    prompts, group = arguments.probe
    rates = arguments.rates if arguments.only is None else [arguments.only] if arguments.only else []
    comparisons = 2 * len(arguments.rates) + 1

    rows = []
    start = probe(arguments.out / "probe-start", arguments.model, arguments, (prompts, group))
    sizes = {"start": (prompts, group), "start, half the prompts": (prompts // 2, group),
             "start, half the group": (prompts, group // 2)}  # fmt: skip
    for name, shape in sizes.items() if not arguments.only else ():
        folder = arguments.out / ("probe-" + name.replace(", ", "-").replace(" ", "-"))
        probed = start if name == "start" else probe(folder, arguments.model, arguments, shape)
        rows.append(row(name, folder, probed, start, comparisons))
        print(dumps(rows[-1]), flush=True)
    for rate in rates:
        for name, model in trained(rate, arguments).items():
            folder = arguments.out / f"probe-lr{rate:g}-{name.replace(' ', '')}"
            probed = probe(folder, model, arguments, (prompts, group))
            rows.append(row(f"learning rate {rate:g}, {name}", folder, probed, start, comparisons))
            print(dumps(rows[-1]), flush=True)
    print(table(rows))
    compared = [r for r in rows if not math.isnan(r["wide"][0])]
    moved = [r["name"] for r in compared if r["moved"]]
    spread = max(r["best"] for r in rows) / min(r["best"] for r in rows)
    near = compared and all(r["wide"][0] >= 0.5 and r["wide"][1] <= 2 for r in compared)
    verdict = "does not hold" if moved else "holds" if near else "cannot tell"
    print(f"verdict: {verdict}; moved: {moved}; largest ÷ smallest G* {spread:.2f}")
    print(dumps({"verdict": verdict, "moved": moved, "spread": spread, "rows": rows}))


if __name__ == "__main__":
    main()
