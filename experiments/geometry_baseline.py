"""Where is the group mean the right baseline, and where is it not?

    grposcope train --seed 0 --steps 160 --eval-problems 0 --checkpoint-every 160 --out s0
    python experiments/geometry_baseline.py --model tiny s0 --prompts 64 --group 16 --out measured
    python experiments/geometry_rollouts.py --task arithmetic:steps=1,limit=20 --max-tokens 12 --out arith.pt
    python experiments/geometry_baseline.py --rollouts arith.pt --out measured

Claim ([PG]): the group mean is the right baseline only under conditions. The condition is Cov(r, ‖s‖²) = 0, and
b* − V = Cov(r, ‖s‖²)/E‖s‖² is how far the best constant b* lies from the mean. Method: for every prompt drawn, also
those whose rewards are all equal, the inner products of its rollouts' scores over all parameters; then
`baseline.pooled`, over all prompts and by how often a prompt is solved. ‖s‖² of successes over that of failures
is Σ over mixed prompts of the one's mean over Σ of the other's. Numbers are ± standard error over prompts, of
several seeds ± over seeds. Verdict: the mean is not optimal where |b* − V| exceeds 1.96 standard errors.
`--out` keeps a file per piece; what is there is not measured again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from grposcope.instruments.gradient import backward, gram
from grposcope.instruments.gradient.probe import _pooled_baseline
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling

BINS = {"all": (0.0, 1.0), "0 to 1/3": (0.0, 1 / 3), "1/3 to 2/3": (1 / 3, 2 / 3), "2/3 to 1": (2 / 3, 1.0)}


def inner_products(model, parts: list[RolloutBatch], temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Rewards (P, G), and inner products of scores (B, B) within every prompt; entries between parts are 0."""
    attached = backward.attach(model, parts[0], temperature)
    rewards = torch.cat([part.rewards for part in parts]).double().numpy()
    whole, at = np.zeros((rewards.size, rewards.size)), 0
    for part in parts:
        size = part.rewards.numel()
        products = torch.zeros(size, size, dtype=torch.float64)

        def add(score, products=products) -> None:
            products += gram.gram(score)

        attached.stream(part, add)
        whole[at : at + size, at : at + size] = products.numpy()
        at += size
    return rewards, whole


def measured(rewards: np.ndarray, inner: np.ndarray) -> dict[str, dict]:
    """The best baseline over the prompts in every bin of success rate."""
    group, rate, out = rewards.shape[1], rewards.mean(1), {}
    norms = np.diag(inner).reshape(rewards.shape)
    for name, (low, high) in BINS.items():
        chosen = (rate >= low) & (rate < high if high < 1 else rate <= high)
        rows = np.repeat(chosen, group)
        if not chosen.any():
            continue
        whole, each = _pooled_baseline(rewards[chosen], inner[np.ix_(rows, rows)])
        mixed = chosen & (np.ptp(rewards, axis=1) > 0)
        wins = [float(norms[p][rewards[p] > rate[p]].mean()) for p in np.flatnonzero(mixed)]
        losses = [float(norms[p][rewards[p] <= rate[p]].mean()) for p in np.flatnonzero(mixed)]
        verdicts = [one.verdict for one in each]
        out[name] = {
            "prompts": int(chosen.sum()), "mixed": int(mixed.sum()), "group": group,
            "below": sum("lies below" in v for v in verdicts), "above": sum("lies above" in v for v in verdicts),
            "ratio": sum(wins) / sum(losses) if losses else float("nan"),
            **asdict(whole),
        }  # fmt: skip
    return out


def drawn(model: str, given: argparse.Namespace, seed: int) -> tuple[policies.Policy, list[RolloutBatch], float]:
    """A policy, fresh rollouts of it in parts of eight prompts, and their temperature."""
    policy, task = policies.load(model), tasks.load(given.task)
    parts, position = [], 100_000  # far from the prompts that training used first
    for _ in range(given.prompts // 8):
        batch = collect(
            policy, task, task.problems("train"), recipes.GRPO, Sampling(task.max_tokens),
            (8, given.group), 900 + seed, position,
        )  # fmt: skip
        parts.append(batch.rollouts)
        position = batch.position
    return policy, parts, 1.0


def kept(file: str) -> tuple[policies.Policy, list[RolloutBatch], float]:
    """The policy and all rollouts of a file, a prompt a part, and their temperature."""
    content = torch.load(file, weights_only=False)
    parts = [p.take(torch.tensor([i])) for p in content["all"] for i in range(len(p.rewards))]
    return policies.load(content["model"]), parts, content.get("temperature", 1.0)


def report(pieces: dict[str, dict[str, dict]]) -> None:
    """Print a row per piece and bin, and the verdict of each piece."""
    print("| policy | solved | prompts (mixed) | V | b* | b* − V | excess of the mean | of none "
          "| ‖s‖² of successes / failures | prompts below, above |")  # fmt: skip
    print("|---" * 10 + "|")
    for name, bins in pieces.items():
        for label, one in bins.items():
            cells = [one[key] for key in ("mean", "optimal", "covariance", "excess_mean", "excess_none")]
            values = " | ".join(f"{c['value']:.2f} ± {c['se']:.2f}" for c in cells)
            print(f"| {name} | {label} | {one['prompts']} ({one['mixed']}) | {values} | {one['ratio']:.2f} "
                  f"| {one['below']}, {one['above']} |")  # fmt: skip
        print(f"{name}: {bins['all']['verdict']}")


def main() -> None:
    """Measure piece after piece, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="*", default=[], help="policies to draw from: tiny, runs, checkpoints")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=1, help="draws from every policy")
    parser.add_argument("--rollouts", nargs="*", default=[], help="files made by geometry_rollouts.py")
    parser.add_argument("--out", type=Path, help="folder for a file of JSON per piece")
    given = parser.parse_args()
    torch.set_num_threads(1)
    pieces = {f"{Path(m).name}, draw {s}": (m, s) for m in given.model for s in range(given.seeds)}
    pieces |= {Path(file).stem: (file, None) for file in given.rollouts}
    results = {}
    for name, (source, seed) in pieces.items():
        file = given.out / f"{name.replace(', ', '-').replace(' ', '')}.json" if given.out else None
        if file and file.exists():
            results[name] = json.loads(file.read_text())
            continue
        policy, parts, temperature = kept(source) if seed is None else drawn(source, given, seed)
        results[name] = measured(*inner_products(policy.model, parts, temperature))
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(results[name]) + "\n")
    report(results)
    print(json.dumps({name: bins["all"]["covariance"] for name, bins in results.items()}))


if __name__ == "__main__":
    main()
