"""Experiment: does the fluctuation about the mean curve of a network fall as 1/G?

Claim    arXiv:2606.30789: the group size is a temperature; the stationary fluctuation is ∝ 1/G. In softmax bandits the
         exponent is −1.07 for G ≥ 8 (`dynamics_bandit.py`); here in a network.
Command  python experiments/dynamics_temperature.py --out runs/dynamics_temperature        a minute on one core;
         resumable --report prints what is there; --quick --out FOLDER proves nothing
Method   The tanh network of `dynamics_threshold.py`, four prompts of eight answers that pay 1 by chance, a KL of weight
         0.3 inside the reward, leave-one-out advantages, fresh rollouts in every step, β = 0.5 and ηκ = 0.05 of the
         stiffest direction. 64 runs start at the plateau; after 1,500 steps, variance over runs at ten times 50 steps
         apart, of log π (mean over answers by π, what moves all runs alike taken off) and of the expected reward. Eight
         networks.
Verdict  holds if the t interval over networks of the exponent for G = 8 … 64 lies within −1 ± 0.1, for both variances;
         does not hold if one lies outside; else cannot tell. Beside it the exponent over G = 2 … 64.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from dynamics_threshold import Setting, World
from numpy.typing import NDArray
from scipy import stats

from grposcope.core.files import dumps, write_json

GROUPS, NAMES = (2, 4, 8, 16, 32, 64), ("log π", "expected reward")


def studied(seed: int, runs: int, steps: int) -> dict:
    """Variances over runs for every group size."""
    world = World(Setting("network", 8, 0.3, 0.5, 0.05, 8, True), seed)
    flat = (np.sqrt(world.here / 4)[..., None] * world.scores()).reshape(32, -1)
    lr = 0.05 / (0.3 * float(np.linalg.svd(flat, compute_uv=False)[0] ** 2))
    return {"seed": seed, "variances": {g: variances(world, lr, g, runs, steps) for g in GROUPS}}


def variances(world: World, lr: float, group: int, runs: int, steps: int) -> list[float]:
    """Variance over runs of log π and of the expected reward."""
    rng = np.random.default_rng([group, runs])
    theta, velocity, found = np.repeat(world.plateau[None], runs, 0), 0.0, []
    for step in range(steps + 500):
        logp = world.logp(theta)
        if step >= steps and step % 50 == 0:
            found.append(spread(world, logp))
        chances = np.exp(logp)
        counts = rng.multinomial(group, chances / chances.sum(-1, keepdims=True))
        total = rng.binomial(counts, world.rewards) - world.setting.kl * counts * (logp - world.reference)
        weights = (total - counts * total.sum(-1, keepdims=True) / group) / (group - 1) / len(world.rewards)
        velocity = world.setting.momentum * velocity + world.policy.pull(theta, weights)
        theta = theta + lr * velocity
    return np.mean(found, 0).tolist()


def spread(world: World, logp: NDArray) -> tuple[float, float]:
    """Variances over runs (the first axis of logp) at one time."""
    moved = (world.here * logp.var(0, ddof=1)).sum(-1).mean()
    return float(moved), float((np.exp(logp) * world.rewards).sum(-1).mean(-1).var(ddof=1))


def report(folder: Path) -> None:
    """Table and verdict; the last line is JSON."""
    worlds = [json.loads(p.read_text())["variances"] for p in sorted(folder.glob("network-*.json"))]
    if len(worlds) < 2:
        print("fewer than two networks")
        return
    values = np.array([[w[str(g)] for g in GROUPS] for w in worlds])  # (networks, G, kinds)
    print("| variance × G, ÷ that at G = 64 | " + " | ".join(f"G = {g}" for g in GROUPS) + " |\n" + "|---" * 7 + "|")
    inside, outside, found = [], [], {}
    scaled = values * np.array(GROUPS)[None, :, None]
    for k, name in enumerate(NAMES):
        ratios = scaled[:, :, k] / scaled[:, -1:, k]
        print(f"| {name} | " + " | ".join(f"{r.mean():.2f} ± {stats.sem(r):.2f}" for r in ratios.T) + " |")
        for first in (2, 0):
            slopes = np.polyfit(np.log(GROUPS[first:]), np.log(values[:, first:, k]).T, 1)[0]
            half = float(stats.t.ppf(0.975, len(slopes) - 1) * stats.sem(slopes))
            low, high = float(slopes.mean()) - half, float(slopes.mean()) + half
            found[f"{name}, G ≥ {GROUPS[first]}"] = (float(slopes.mean()), low, high)
            if first:
                inside.append(low >= -1.1 and high <= -0.9)
                outside.append(low > -0.9 or high < -1.1)
    for name, (middle, low, high) in found.items():
        print(f"exponent of {name}: {middle:.3f} [{low:.3f}, {high:.3f}]")
    verdict = "holds" if all(inside) else "does not hold" if any(outside) else "cannot tell"
    print(f"verdict, {len(worlds)} networks: {verdict}")
    print(dumps({"verdict": verdict, "exponents": found}))


def main() -> None:
    """Make what is missing, then report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/dynamics_temperature"), help="folder of the results")
    parser.add_argument("--networks", type=int, default=8)
    parser.add_argument("--report", action="store_true", help="simulate nothing")
    parser.add_argument("--quick", action="store_true", help="a smoke test at a scale that proves nothing")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in range(2 if given.quick else given.networks):
        path = given.out / f"network-{seed}.json"
        if not given.report and not path.exists():
            write_json(path, studied(seed, 16 if given.quick else 64, 100 if given.quick else 1500))
    report(given.out)


if __name__ == "__main__":
    main()
