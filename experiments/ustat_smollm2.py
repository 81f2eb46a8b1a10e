"""Which group size does a real language model want, and how wide is the answer?

Claim    One probe gives G* of SmolLM2-135M with an interval (arXiv:2603.01162 reports 32 to 128 for larger models).
Command  python experiments/ustat_smollm2.py --out runs/ustat_smollm2       about an hour on one core; resumable
Method   SmolLM2-135M-Instruct on one-step arithmetic it partly solves. A gradient has 135 M numbers, so scores are kept
         as count sketches of `width` numbers (each coordinate is added, with a random sign, to a random place):
         inner products of sketches have the right mean, and an error of about ‖a‖‖b‖/√width, printed as a check.
Verdict  the interval itself; informative if it excludes half of 2 … 64.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from torch import Tensor
from ustat_gradients import draw, product

from grposcope import policies, tasks
from grposcope.policies import Policy
from grposcope.records import Rollouts
from grposcope.runs.store import dumps, write_json
from grposcope.training.logprobs import token_logprobs
from grposcope.ustat import gram_file, moments, planning


def sketches(policy: Policy, rollouts: Rollouts, width: int, seed: int, path: Path) -> Tensor:
    """Count sketches of every score, (B, width) float32; kept in `path` as they come."""
    generator = torch.Generator().manual_seed(seed)
    parameters = [p for p in policy.model.parameters() if p.requires_grad]
    places = [torch.randint(width, (p.numel(),), generator=generator, dtype=torch.int32) for p in parameters]
    signs = [torch.randint(2, (p.numel(),), generator=generator, dtype=torch.int8) * 2 - 1 for p in parameters]
    count = rollouts.rewards.numel()
    store = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(count, width))
    began = time.perf_counter()
    for row in range(count):
        logp, _ = token_logprobs(policy.model, rollouts, torch.tensor([row]))
        sketch = torch.zeros(width)
        gradients = torch.autograd.grad(logp.sum(), parameters)
        for gradient, place, sign in zip(gradients, places, signs, strict=True):
            sketch.index_add_(0, place, gradient.reshape(-1).float() * sign)
        store[row] = sketch.numpy()
        if row == 0:
            true = sum(float(g.double().square().sum()) for g in gradients)
            print(
                f"first score: ‖s‖² {true:.6g}, of its sketch {float(sketch.double().square().sum()):.6g}", flush=True
            )
        if row % 50 == 49:
            print(f"{row + 1} of {count} scores, {time.perf_counter() - began:.0f} s", flush=True)
    return torch.from_numpy(np.array(store))


def main() -> None:
    """Probe and plan."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--task", default="arithmetic:steps=1,largest=5,limit=9,ops=+,size=40")
    parser.add_argument("--probe", type=int, nargs=2, default=(48, 16))
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--width", type=int, default=1 << 18)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = arguments.out / "probe"
    folder.mkdir(parents=True, exist_ok=True)
    shape = tuple(arguments.probe)
    if not (folder / "gram.npz").exists():
        policy, task = policies.load(arguments.model), tasks.load(arguments.task)
        generator = torch.Generator().manual_seed(arguments.seed)
        rollouts = draw(policy, task, task.problems("train"), shape, generator, arguments.max_tokens)
        rewards = rollouts.rewards.numpy()
        print(f"mean reward {rewards.mean():.3f}, dead groups {np.mean(np.ptp(rewards, axis=1) == 0):.3f}", flush=True)
        matrix = product(sketches(policy, rollouts, arguments.width, arguments.seed, arguments.out / "sketches.npy"))
        gram_file.write(folder, matrix, rewards, rollouts.truncated.reshape(shape).numpy())
        about = {"format": 1, "model": arguments.model, "task": task.name, "prompts": shape[0], "group": shape[1],
                 "sketch": arguments.width}  # fmt: skip
        write_json(folder / "probe.json", about)
    held = gram_file.read(folder)
    found = moments.from_gram(held.gram, held.rewards)
    plan = planning.optimal_group(found)
    print(f"Σ₁ {found.sigma1}, Δ {found.delta}, V_p {found.prompt_variance}")
    print(f"G* = {plan.continuous}, 95 % interval [{plan.interval[0]:.3g}, {plan.interval[1]:.3g}]")
    print("| G | more budget needed | 95 % interval |\n|---|---|---|")
    for point in plan.curve:
        low, high = point.loss_interval
        print(f"| {point.group} | {point.loss:+.1%} | [{low:+.1%}, {high:+.1%}] |")
    inside = [g for g in (2, 4, 8, 16, 32, 64) if plan.interval[0] <= g <= plan.interval[1]]
    print(
        f"verdict: {'informative' if len(inside) <= 3 else 'too wide to choose'}; sizes inside the interval: {inside}"
    )
    print(dumps({"plan": plan, "sigma1": found.sigma1, "delta": found.delta, "prompt_variance": found.prompt_variance}))


if __name__ == "__main__":
    main()
