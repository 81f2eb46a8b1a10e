"""Which group size does a real language model want, and how wide is the answer?

Claim    One probe gives G* of SmolLM2-135M with an interval (arXiv:2603.01162 reports 32 to 128 for larger models).
Command  python experiments/ustat_smollm2.py --out runs/ustat_smollm2    about forty minutes on one core; resumable
         --only PART measures one part and stops, so that a queue can take it in pieces
Method   SmolLM2-135M-Instruct on one-step arithmetic it partly solves, prompts drawn with replacement from the task's
         few problems. Parts of `--probe` prompts × rollouts, each with its exact Gram over all 134.5 M parameters; the
         parts are independent, so their moments are averaged and their prompts resampled together.
Verdict  the interval itself; informative if it excludes half of 2, 4, 8, 16, 32, 64.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from ustat_gradients import draw, pooled, streamed, write_probe

from grposcope.core.files import dumps
from grposcope.instruments.gradient.probe_record import ProbeGram, read_gram
from grposcope.instruments.group_size import planning
from grposcope.instruments.group_size.planning import _interval
from grposcope.lab import policies, tasks
from grposcope.maths import moments

GROUPS = (2, 4, 8, 16, 32, 64)


def part(index: int, arguments: argparse.Namespace) -> ProbeGram:
    """One independent part of the probe, which is measured unless its folder holds it."""
    folder = arguments.out / f"part{index}"
    shape = tuple(arguments.probe)
    if not (folder / "probe.json").exists():
        began = time.perf_counter()
        policy, task = policies.load(arguments.model), tasks.load(arguments.task)
        generator = torch.Generator().manual_seed(1000 * arguments.seed + index)
        rollouts = draw(policy, task, task.problems("train"), shape, generator, arguments.max_tokens)
        drawn = time.perf_counter() - began
        write_probe(folder, streamed(policy, rollouts), rollouts, arguments.model, task)
        print(f"part {index}: drawn in {drawn:.0f} s, all in {time.perf_counter() - began:.0f} s", flush=True)
    return read_gram(folder)


def main() -> None:
    """Probe all parts, and print the moments and G* with their intervals."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--task", default="arithmetic:steps=1,largest=5,limit=9,ops=+,size=40")
    parser.add_argument("--probe", type=int, nargs=2, default=(32, 8), help="prompts and group of a part")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--only", type=int, help="measure this part, then stop")
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.only is not None:
        part(arguments.only, arguments)
        return
    files = [part(index, arguments) for index in range(arguments.parts)]
    probe = pooled([moments.from_gram(f.gram, f.rewards, seed=i) for i, f in enumerate(files)])
    rewards, cut = np.concatenate([f.rewards for f in files]), np.concatenate([f.truncated for f in files])
    print(f"{len(rewards)} prompts × {rewards.shape[1]}: mean reward {rewards.mean():.3f}, dead groups "
          f"{np.mean(np.ptp(rewards, axis=1) == 0):.3f}, truncated {cut.mean():.3f}")  # fmt: skip
    named = {"Σ₁": lambda s: s.sigma1, "Δ": lambda s: s.delta, "V_p": lambda s: s.prompt_variance,
             "‖E g‖²": lambda s: s.mean2, "‖E s‖²/E‖s‖²": lambda s: s.score2 / s.norm}  # fmt: skip
    for name, quantity in named.items():
        low, high = probe.interval(quantity)
        print(f"{name}: {probe.estimate(quantity)} [{low:.4g}, {high:.4g}]")
    best, interval = probe.estimate(lambda s: planning.optimum(s, 0.0, 1.0)), _interval(probe)
    print(f"G* = {best}, 95 % interval [{interval[0]:.3g}, {interval[1]:.3g}]")
    print("| G | more budget needed | 95 % interval |\n|---|---|---|")
    lost = planning.loss(probe.pooled, np.array(GROUPS), 0.0, 1.0)[0]
    rows = []
    for index, group in enumerate(GROUPS):
        low, high = probe.interval(lambda s, i=index: planning.loss(s, np.array(GROUPS), 0.0, 1.0)[:, i])
        rows.append({"group": group, "loss": float(lost[index]), "low": low, "high": high})
        print(f"| {group} | {lost[index]:+.1%} | [{low:+.1%}, {high:+.1%}] |")
    inside = [g for g in GROUPS if interval[0] <= g <= interval[1]]
    verdict = "informative" if np.isfinite(interval[0]) and len(inside) <= 3 else "too wide to choose"
    print(f"verdict: {verdict}; sizes inside the interval: {inside}")
    print(dumps({"verdict": verdict, "best": best, "interval": interval, "rows": rows, "inside": inside,
                 "moments": {name: probe.estimate(q) for name, q in named.items()}}))  # fmt: skip


if __name__ == "__main__":
    main()
