"""Sparsity and baseline over training: does the gradient get sparser, by which measure, and is the group mean right?

    python experiments/geometry_training.py --seeds 3 --steps 160 --out curves
    python experiments/geometry_training.py --only 2 --steps 160 --out curves      one seed, by itself

Claims ([PG]): sparsity intensifies during training; the group mean is the right baseline only under
conditions. Method: `tiny` on `arithmetic`, from its start (0.3 solved) towards saturation, with the settings of
`grposcope train` (32 prompts × 8 rollouts, AdamW 4e-4). Every `--every` steps the batch of that step is
probed before the update (8 of its live prompts): parameters (Gini, Hoyer, top 1 %), tokens (Gini of
‖e_y − π‖, share of the top 20 %), groups (dead fraction, and p^G + (1−p)^G for comparison), the best baseline, and the
weights that a step would change in bfloat16 at that step's learning rate. Every step's gradient is kept as a sketch:
the trajectory spectrum of the first and the last window. `--out` keeps a file of JSON per seed, and seeds
that have one there are not run again.
Numbers are means over seeds ± standard error; the last column pairs the last third with the first.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from geometry_trajectory import Trajectory

from grposcope.core.estimate import Estimate
from grposcope.instruments.gradient import probe
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import advantages, recipes
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks import Task
from grposcope.lab.train import optimizer as optimizers
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.update import TokenTerms, update
from grposcope.maths import dead_groups


def measured(model, rollouts, lr: float, prompts: int) -> dict[str, float]:
    """The numbers of one step, from a probe of its first `prompts` live groups."""
    live = (~advantages.dead(rollouts.rewards)).nonzero()[:, 0][:prompts]
    rewards = rollouts.rewards.cpu().numpy()
    row = {
        "solved": float(rollouts.rewards.mean()),
        "dead": dead_groups.share(rewards).value,
        "dead if alike": dead_groups.chance_if_alike(rewards),
    }
    if len(live) < 2:
        return row
    one_probe = probe.probe(model, rollouts.take(live), recipes.GRPO, learning_rate=lr, leading=8)
    token, base = one_probe.token_sparsity(), one_probe.baseline()[0]
    layer = one_probe.mean_ranks("grpo")
    row |= {f"parameter {name}": one_probe.parameters[name].value for name in ("gini", "hoyer", "top_1", "below_0.01")}
    row |= {f"token {name}": token[name] for name in ("gini", "hoyer", "top_5", "top_20")}
    row |= {
        "visible adam": one_probe.parameters["visible_adam"].value,
        "visible sgd": one_probe.parameters["visible_sgd"].value,
        "score norm": math.sqrt(float(np.diag(one_probe.gram).mean())),
        "layer stable": layer["stable"].value,
        "rollout stable": one_probe.rollout_spectrum("grpo").ranks()["stable"],
        "credit cancelled": one_probe.credit.cancelled,
        "baseline gap": base.covariance.value,
        "baseline gap s.e.": base.covariance.se,
        "best baseline": base.optimal.value,
        "excess of the mean": base.excess_mean.value,
        "excess of none": base.excess_none.value,
    }
    return row


def run(
    seed: int,
    given: argparse.Namespace,
    policy: Policy,
    task: Task,
    shape: tuple[int, int] = (32, 8),
    micro: int = 256,
    window: int = 32,
) -> dict[str, object]:
    """Train once, on batches of shape (prompts, rollouts of each), and probe along the way. micro: rows at a time.

    window: steps whose gradients make a spectrum of the trajectory, the first ones and the last ones.
    """
    config = TrainConfig(steps=given.steps, seed=seed)
    objective, sampling = recipes.GRPO, Sampling(task.max_tokens)
    optimizer = optimizers.build(policy.model.parameters(), policy.learning_rate, config)
    kept, windows = Trajectory(window=window, size=4096), {}

    def keep(*_: object) -> None:  # before the optimiser's step, since `update` frees gradients after it
        if step < window or step >= given.steps - window:
            kept.add((n, p.grad) for n, p in policy.model.named_parameters() if p.grad is not None)

    optimizer.register_step_pre_hook(keep)
    rows, position, probing, began = [], 0, 0.0, time.process_time()
    for step in range(given.steps):
        batch = collect(policy, task, task.problems("train"), objective, sampling, shape, seed, position)
        position = batch.position
        lr = optimizers.learning_rate(step, policy.learning_rate, config.schedule, config.warmup, config.steps)
        if step % given.every == 0 or step == given.steps - 1:
            start = time.process_time()
            rows.append({"step": step} | measured(policy.model, batch.rollouts, lr, given.prompts))
            probing += time.process_time() - start
        for group in optimizer.param_groups:
            group["lr"] = lr
        fixed = TokenTerms(objective.token_advantages(batch.rollouts), None, None)
        update(policy.model, optimizer, objective, batch.rollouts, fixed, 1.0, 1.0, micro)
        if step in (window - 1, given.steps - 1):
            windows["first" if step == window - 1 else "last"] = kept.spectrum(unit=True).ranks()
    whole = time.process_time() - began
    return {"seed": seed, "rows": rows, "trajectory": windows, "probing": probing / whole, "cpu": whole}


def report(runs: list[dict]) -> None:
    """Print the curves at a few steps, and their change from the first third to the last."""
    steps = [row["step"] for row in runs[0]["rows"]]
    shown = sorted({steps[round(i * (len(steps) - 1) / 4)] for i in range(5)})
    names = list(dict.fromkeys(n for one in runs for row in one["rows"] for n in row if n != "step"))
    print(f"\n{len(runs)} seeds, mean ± s.e. over seeds\n")
    print("| measure | " + " | ".join(f"step {s}" for s in shown) + " | last third − first |")
    print("|---" * (len(shown) + 2) + "|")
    for name in names:
        cells = []
        for step in shown:
            got = [row[name] for one in runs for row in one["rows"] if row["step"] == step and name in row]
            value = Estimate.mean(got)
            cells.append(f"{value.value:.3g} ± {value.se:.2g}")
        changes = []
        for one in runs:
            curve = [row[name] for row in one["rows"] if name in row]
            third = max(1, len(curve) // 3)
            changes.append(sum(curve[-third:]) / third - sum(curve[:third]) / third)
        change = Estimate.mean(changes)
        print(f"| {name} | " + " | ".join(cells) + f" | {change.value:+.3g} ± {change.se:.2g} |")
    print("\ntrajectory (first and last steps, rows of norm 1), stable and participation rank")
    for window in runs[0]["trajectory"]:
        for rank in ("stable", "participation"):
            print(f"{window} {rank}: {Estimate.mean([one['trajectory'][window][rank] for one in runs])}")
    probing = Estimate.mean([one["probing"] for one in runs])
    print(f"share of CPU time spent probing every {steps[1] - steps[0]} steps: {probing}")


def seeds(given: argparse.Namespace) -> Iterator[dict]:
    """Yield the runs asked for, from their files where these exist."""
    for seed in given.only or range(given.seeds):
        name = f"seed{seed}-steps{given.steps}-every{given.every}-prompts{given.prompts}.json"
        file = given.out / name if given.out else None
        if file and file.exists():
            one = json.loads(file.read_text())
        else:
            one = run(seed, given, policies.load("tiny"), tasks.load("arithmetic"))
            if file:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(one) + "\n")
        print(f"seed {seed}: {one['rows'][-1]['solved']:.3f} solved at the end", flush=True)
        yield one


def main() -> None:
    """Train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", type=int, nargs="+", help="these seeds and no others")
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--out", type=Path, help="folder for the curves, a file of JSON per seed")
    given = parser.parse_args()
    torch.set_num_threads(1)
    runs = list(seeds(given))
    report(runs)
    print(json.dumps({"seeds": len(runs), "steps": given.steps}))


if __name__ == "__main__":
    main()
