"""Does the best group size move over training, seed by seed, for both kinds of advantages?

Claim    G* does not depend on the iteration (arXiv:2603.01162, Theorem 7). `ustat_universality.py` saw it fall on
         `tiny` in one training run a learning rate; here trainings and draws of prompts are the units.
Command  python experiments/ustat_universality_seeds.py --out runs/universality_seeds    some minutes a seed; resumable
         --runs FOLDER takes the runs trained/fixed-8/SEED of `dynamics_transfer.py --train` and trains nothing
         --task "arithmetic:ops=+-*" for another task; --report prints what is there; --quick proves nothing
Method   `tiny` trained by RLOO, 16 prompts × 8 rollouts a step, 50 steps of AdamW at 4e-4 after a warm-up of 20,
         gradients clipped. Each seed is a training of its own and has 64 prompts of its own, × 16 rollouts, that the
         model is probed with at the start, in the middle and at the end. Leave-one-out: G* = 1 + √(Δ/V_p) with
         Fieller's interval. Standardized: the noise over signal q(G) of `instruments.group_size.recipe_plan`, the least
         among G = 2 … 16.
Test     Over seeds, t intervals of log(G* ÷ G* at the start), two stages, 97.5 % each; the share by which the budget
         must grow if the start's best whole G is kept, for both kinds of advantages.
Verdict  G* moves: "does not hold" for universality if an interval leaves 1 out; "holds" if both lie within 0.8 to 1.25;
         else cannot tell. Staying is cheap if the upper end of the mean cost's interval is below 10 % at both stages.
         Fewer than 8 seeds: "seen".
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from scipy import stats
from ustat_gradients import draw, streamed, write_probe

from grposcope.core.files import dumps, write_json
from grposcope.instruments.gradient.probe_record import read_gram
from grposcope.instruments.group_size import planning, recipe_plan
from grposcope.lab import policies, tasks
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.maths import moments

STAGES = ("start", "middle", "end")


def trained(seed: int, given: argparse.Namespace) -> dict[str, str]:
    """The models of the three stages, trained if they are missing."""
    folder = given.runs / str(seed) if given.runs else given.out / f"run-{seed}"
    if not given.runs and not (folder / "summary.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        train(TrainConfig(
            model="tiny", task=given.task, recipe="rloo", out=str(folder), seed=seed, steps=given.steps, prompts=16,
            group=8, lr=4e-4, schedule="constant", warmup=20, eval_every=0, threads=1, keep_checkpoints=0,
            checkpoint_every=given.steps // 2, rollouts_every=0,
        ))  # fmt: skip
    middle = folder / "checkpoints" / f"step-{given.steps // 2:06d}" / "model"
    return {"start": "tiny", "middle": str(middle), "end": str(folder / "model")}


def probed(seed: int, stage: str, model: str, given: argparse.Namespace) -> moments.Moments:
    """The moments of a stage, probed with the prompts of the seed unless the folder holds them."""
    folder = given.out / f"probe-{seed}-{stage}"
    if not (folder / "probe.json").exists():
        policy, task = policies.load(model), tasks.load(given.task)
        shape = (8, 8) if given.quick else (64, 16)
        rollouts = draw(policy, task, task.problems("train"), shape, torch.Generator().manual_seed(1000 + seed))
        reward = float(rollouts.rewards.mean())
        write_probe(folder, streamed(policy, rollouts), rollouts, model, task, reward=reward)
    held = read_gram(folder)
    return moments.from_gram(held.gram, held.rewards)


def row(seed: int, given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """What is told of the three stages of one seed."""
    models, found, kept = trained(seed, given), {}, {}
    for stage in STAGES:
        m = probed(seed, stage, models[stage], given)
        plan, recipe = planning.optimal_group(m), recipe_plan.standardized(m)
        noise = {g: q for g, q in recipe.noise.items() if math.isfinite(q)}
        own = min(noise, key=noise.__getitem__) if noise else 0
        kept.setdefault("group", planning.optimal_group(m).integer)
        kept.setdefault("recipe", own)
        lost = float(planning.loss(m.pooled, np.array([kept["group"]]), 0.0, 1.0)[0, 0])
        about = json.loads((given.out / f"probe-{seed}-{stage}" / "probe.json").read_text())
        found[stage] = {
            "reward": about["reward"], "best": plan.continuous.value, "low": plan.interval[0],
            "high": plan.interval[1], "lost": lost, "standardized": float(own), "decided": float(recipe.decided),
            "standardized lost": noise.get(kept["recipe"], math.nan) / noise[own] - 1 if own else math.nan,
        }  # fmt: skip
    return found


def interval(values: list[float], level: float = 0.95) -> tuple[float, float, float]:
    """Mean with its t interval, of the values that are numbers."""
    known = [v for v in values if math.isfinite(v)]
    if len(known) < 2:
        return math.nan, -math.inf, math.inf
    half = stats.t.ppf((1 + level) / 2, len(known) - 1) * stats.sem(known)
    return float(np.mean(known)), float(np.mean(known) - half), float(np.mean(known) + half)


def report(rows: list[dict[str, dict[str, float]]], task: str) -> None:
    """Table and verdict."""
    names = ("stage", "mean reward", "G* of each seed [Fieller's 95 %]", "÷ start [97.5 %]", "staying costs [95 %]",
             "standardized, best of each seed", "told", "staying costs [95 %]")  # fmt: skip
    print(f"{task}, {len(rows)} seeds\n| {' | '.join(names)} |\n" + "|---" * len(names) + "|")
    ratios, costs = [], []
    for stage in STAGES:
        own = [r[stage] for r in rows]
        each = ", ".join(f"{o['best']:.2f} [{o['low']:.1f}, {o['high']:.1f}]" for o in own)
        change = interval([math.log(r[stage]["best"] / r["start"]["best"]) for r in rows], 0.975)
        cost, other = interval([o["lost"] for o in own]), interval([o["standardized lost"] for o in own])
        ratio = [math.exp(v) for v in change]
        shown = ["{:.2f} [{:.2f}, {:.2f}]".format(*ratio)]
        shown += ["{:.1%} [{:.1%}, {:.1%}]".format(*c) for c in (cost, other)]
        if stage != "start":
            ratios.append(ratio)
            costs.append((cost, other))
        sizes = ", ".join(f"{o['standardized']:.0f}" for o in own)
        print(f"| {stage} | {np.mean([o['reward'] for o in own]):.3f} | {each} | {shown[0]} | {shown[1]} | {sizes} | "
              f"{sum(o['decided'] for o in own):.0f} | {shown[2]} |")  # fmt: skip
    moved = any(low > 1 or high < 1 for _, low, high in ratios)
    still = all(low >= 0.8 and high <= 1.25 for _, low, high in ratios)
    verdict = "does not hold" if moved else "holds" if still else "cannot tell"
    cheap = [all(pair[k][2] < 0.1 for pair in costs) for k in (0, 1)]
    said = verdict if len(rows) >= 8 else f"seen: {verdict}"
    told = ", ".join(
        f"{name} {'yes' if yes else 'not told'}" for name, yes in zip(("rloo", "grpo"), cheap, strict=True)
    )
    print(f"universality over training, {len(rows)} seeds: {said}; staying is cheap: {told}")
    print(dumps({"verdict": verdict, "ratios": ratios, "costs": costs, "rows": rows}))


def main() -> None:
    """Train, probe, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/universality_seeds"), help="folder of the results")
    parser.add_argument(
        "--runs", type=Path, help="folder of runs named by seed, each with a checkpoint at half its way"
    )
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--report", action="store_true", help="train and probe nothing")
    parser.add_argument("--quick", action="store_true", help="a smoke test at a scale that proves nothing")
    given = parser.parse_args()
    if given.quick:
        given.seeds, given.steps = 2, 4
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed in range(given.seeds):
        if given.runs and not (given.runs / str(seed) / "summary.json").exists():
            continue
        if given.report and not (given.out / f"probe-{seed}-end" / "probe.json").exists():
            continue
        rows.append(row(seed, given))
        write_json(given.out / "rows.json", rows)
        if len(rows) > 1:
            report(rows, given.task)


if __name__ == "__main__":
    main()
