"""Experiment: does the group size leave the mean trajectory of a network alone, and how does its spread depend on it?

Claims of arXiv:2606.30789: runs at different G collapse on one curve; an inertial curve explains each with R² ≥ 0.91;
the within-group spread keeps a residual dependence on G. Three sizes: `tiny`, and `tiny` without its last layer and
its last two. They are three tiny networks and not three language models, and the shortened ones start out weak: what
is tested is the collapse.

    python experiments/dynamics_invariance.py --quick     smoke test, a minute
    python experiments/dynamics_invariance.py             about an hour on two cores
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

from grposcope import policies
from grposcope.dynamics import fit
from grposcope.dynamics.oscillator import size_exponent
from grposcope.training.config import TrainConfig
from grposcope.training.loop import train


def shortened(layers: int, folder: Path) -> Path:
    """`tiny` cut to its first layers, saved as a model of its own."""
    policy = policies.load("tiny")
    policy.model.model.layers = policy.model.model.layers[:layers]
    policy.model.config.num_hidden_layers = layers
    if getattr(policy.model.config, "layer_types", None):
        policy.model.config.layer_types = policy.model.config.layer_types[:layers]
    out = folder / f"tiny-{layers}"
    policy.model.save_pretrained(out)
    policy.tokenizer.save_pretrained(out)
    return out


def main() -> None:
    """Train the grid, fit, print a table and the verdict, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test at a scale that proves nothing")
    parser.add_argument("--groups", default="4,8,16")
    parser.add_argument("--rollouts", type=int, default=256, help="rollouts per step, the same for every G")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.groups, arguments.rollouts, arguments.steps, arguments.seeds = "4,8", 8, 10, 1
    groups = [int(g) for g in arguments.groups.split(",")]
    rows, curves = [], {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        depth = len(policies.load("tiny").model.model.layers)
        sizes = sorted({max(1, depth - 2), max(1, depth - 1), depth})
        models = {f"{n} layers": "tiny" if n == depth else str(shortened(n, folder)) for n in sizes}
        print(
            "| model | G | seed | R² | noise ceiling | time constant | late spread within groups |\n" + "|---" * 7 + "|"
        )
        for size, model in models.items():
            for group in groups:
                for seed in range(arguments.seeds):
                    out = folder / f"{Path(model).name}-{group}-{seed}"
                    outcome = train(TrainConfig(
                        model=model, recipe="rloo", prompts=arguments.rollouts // group, group=group, seed=seed,
                        steps=arguments.steps, schedule="constant", eval_every=0, eval_problems=0, out=str(out),
                    ))  # fmt: skip
                    steps = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
                    spread = [row["reward_std"] for row in steps[-max(1, len(steps) // 4) :]]
                    t = np.arange(1, len(outcome.rewards) + 1)
                    found = fit.fit(t, outcome.rewards, "inertial")
                    tau = found.parameters.get("time_constant", found.parameters["plateau"])
                    curves[size, group, seed] = np.array(outcome.rewards)
                    rows.append({"model": size, "group": group, "seed": seed, "r2": found.r2, "ceiling": found.ceiling,
                                 "time_constant": vars(tau), "spread": float(np.mean(spread))})  # fmt: skip
                    print(f"| {size} | {group} | {seed} | {found.r2:.3f} | {found.ceiling:.3f} | {tau} | "
                          f"{np.mean(spread):.3f} |", flush=True)  # fmt: skip
    verdicts = {}
    for size in models:
        means = {g: np.mean([curves[size, g, s] for s in range(arguments.seeds)], 0) for g in groups}
        noise = np.mean(
            [np.std(np.diff(curves[size, g, s])) / np.sqrt(2) for g in groups for s in range(arguments.seeds)]
        )
        apart = max(float(np.sqrt(np.mean((means[g] - means[groups[-1]]) ** 2))) for g in groups[:-1])
        expected = float(noise * np.sqrt(2 / arguments.seeds))
        verdicts[size] = apart <= 1.5 * expected
        print(f"{size}: curves of different G lie {apart:.3f} apart, noise alone gives {expected:.3f}: "
              f"{'they collapse' if verdicts[size] else 'they do not collapse'}")  # fmt: skip
        slope = size_exponent(groups, [np.mean([r["spread"] for r in rows if r["model"] == size and r["group"] == g])
                                       for g in groups])  # fmt: skip
        print(f"{size}: within-group spread ∝ G^{slope.value:.3f} ± {slope.se:.3f}")
    print("verdict:", "holds" if all(verdicts.values()) else "does not hold", "for the collapse")
    print(json.dumps({"rows": rows, "collapse": {k: bool(v) for k, v in verdicts.items()}}, default=float))


if __name__ == "__main__":
    main()
