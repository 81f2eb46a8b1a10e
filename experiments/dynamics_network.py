"""Experiment: the refresh instability in a network, the demonstration arXiv:2606.30789 leaves to future work.

Claim: with SGD and momentum and a frozen force (no importance ratio) a network is stable up to the interval N* that
the cycle map gives for its curvature κ, measured beforehand and not from the reward curve.

How: (1) warm the model up at N = 1, which leads near a plateau; (2) measure κ at that checkpoint along the direction
the warm-up moved last, by a response experiment: perturb the weights by ± ε along the unit direction u, draw fresh
rollouts from each perturbed policy, and take the slope of the force g·u = E[A ∂_u log π] (∂_u by differences of
log-probabilities, no backward pass); beside it the Fisher information u'Fu = E[(∂_u log π)²] along u; (3) predict
N*; (4) continue from the checkpoint at intervals around N*, several seeds, and see where the reward breaks down or
swings. κ is along one direction: the stiffest one may be stiffer, so N* from it is an upper bound.

    python experiments/dynamics_network.py --quick      smoke test, a minute
    python experiments/dynamics_network.py              about an hour on two cores
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from torch import Tensor

from grposcope import policies, tasks
from grposcope.dynamics import refresh
from grposcope.objectives import advantages, recipes
from grposcope.policies import Policy
from grposcope.records import Estimate
from grposcope.training.collect import collect
from grposcope.training.config import TrainConfig
from grposcope.training.loop import train
from grposcope.training.sampler import Sampling
from grposcope.training.update import frozen_logprobs


def flat(policy: Policy) -> Tensor:
    """All trained weights as one vector, (D,)."""
    return torch.cat([p.detach().reshape(-1) for p in policy.model.parameters()])


def place(policy: Policy, weights: Tensor) -> None:
    """Set all trained weights from one vector."""
    torch.nn.utils.vector_to_parameters(weights, policy.model.parameters())


def response(policy: Policy, direction: Tensor, epsilon: float, batches: int, shape: tuple[int, int], task_name: str
             ) -> dict[str, Estimate]:  # fmt: skip
    """κ and the Fisher information along a unit direction (D,), with standard errors over paired batches."""
    task = tasks.load(task_name)
    problems, sampling, centre = task.problems("train"), Sampling(task.max_tokens), flat(policy)
    h = epsilon / 10
    slopes, informations = [], []
    for index in range(batches):
        forces = {}
        for sign in (1, -1):
            here = centre + sign * epsilon * direction
            place(policy, here)
            batch = collect(
                policy, task, problems, recipes.RLOO, sampling, shape, seed=index, position=index * shape[0]
            )
            rollouts = batch.rollouts
            sums = []
            for step in (h, -h):
                place(policy, here + step * direction)
                sums.append(frozen_logprobs(policy.model, rollouts, 1.0, 256).double().sum(-1))
            along = (sums[0] - sums[1]) / (2 * h)  # ∂_u log π of each rollout, (B,)
            credit = advantages.leave_one_out(rollouts.rewards).reshape(-1)
            forces[sign] = float((credit * along).mean())
            informations.append(float((along**2).mean()))
        slopes.append(-(forces[1] - forces[-1]) / (2 * epsilon))
    place(policy, centre)
    return {"curvature": Estimate.mean(slopes), "fisher": Estimate.mean(informations)}


def continued(model: Path, interval: int, seed: int, arguments: argparse.Namespace, folder: Path) -> dict:
    """Train on from a checkpoint at one interval; late reward, its swing between refreshes, largest gradient norm."""
    out = folder / f"n{interval}-s{seed}"
    refreshes = max(arguments.refreshes, 3)
    outcome = train(TrainConfig(
        model=str(model), recipe="reinforce", optimizer="sgd", momentum=arguments.momentum, lr=arguments.lr,
        interval=interval, steps=interval * refreshes, prompts=arguments.prompts, group=arguments.group, seed=seed,
        warmup=0, schedule="constant", clip_grad=0.0, kl=0.0, eval_every=0, eval_problems=0, out=str(out),
        task=arguments.task,
    ))  # fmt: skip
    rewards = np.array(outcome.rewards)[::interval]  # one per batch of rollouts
    norms = [json.loads(line)["grad_norm"] for line in (out / "steps.jsonl").read_text().splitlines()]
    late = rewards[len(rewards) // 2 :]
    return {"first": float(rewards[0]), "late": float(late.mean()), "swing": float(late.std()),
            "largest gradient": max((n for n in norms if isinstance(n, float)), default=math.nan)}  # fmt: skip


def main() -> None:
    """Warm up, measure, predict, run, print a table and the verdict, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test at a scale that proves nothing")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--warmup-steps", type=int, default=200)
    parser.add_argument("--refreshes", type=int, default=24)
    parser.add_argument("--batches", type=int, default=24, help="paired batches behind κ")
    parser.add_argument("--epsilon", type=float, default=0.3, help="length of the perturbation")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most", type=int, default=64, help="largest interval to run")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.warmup_steps, arguments.refreshes, arguments.batches, arguments.seeds = 4, 3, 3, 1
        arguments.prompts, arguments.group, arguments.most = 4, 4, 4
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        before = flat(policies.load("tiny"))
        train(TrainConfig(
            recipe="rloo", optimizer="sgd", momentum=arguments.momentum, lr=arguments.lr, steps=arguments.warmup_steps,
            prompts=arguments.prompts, group=arguments.group, warmup=0, schedule="constant", clip_grad=0.0,
            eval_every=0, eval_problems=0, out=str(folder / "warm"), task=arguments.task,
        ))  # fmt: skip
        checkpoint = folder / "warm" / "model"
        policy = policies.load(str(checkpoint))
        moved = flat(policy) - before
        direction = moved / moved.norm()
        measured = response(policy, direction, arguments.epsilon, arguments.batches,
                            (arguments.prompts, arguments.group), arguments.task)  # fmt: skip
        kappa = measured["curvature"]
        print(f"moved by {float(moved.norm()):.3f}; κ along it {kappa}; Fisher information {measured['fisher']}")
        known = kappa.value > 2 * kappa.se > 0
        predicted = refresh.threshold(arguments.lr, arguments.momentum, kappa.value) if known else math.nan
        low = refresh.threshold(arguments.lr, arguments.momentum, kappa.value + 1.96 * kappa.se) if known else math.nan
        print(f"predicted N* = {predicted:g} (at the upper end of κ {low:g})" if known
              else "cannot tell: κ does not differ from 0; raise --batches or --epsilon")  # fmt: skip
        rows = []
        print("| N | seed | first reward | late reward | swing | largest gradient |\n|---|---|---|---|---|---|")
        for interval in (n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n <= arguments.most):
            for seed in range(arguments.seeds):
                row = continued(checkpoint, interval, seed, arguments, folder)
                rows.append({"interval": interval, "seed": seed, **row})
                print(f"| {interval} | {seed} | {row['first']:.3f} | {row['late']:.3f} | {row['swing']:.3f} | "
                      f"{row['largest gradient']:.3g} |", flush=True)  # fmt: skip
    base = [r["late"] for r in rows if r["interval"] == 1]
    floor = float(np.mean(base)) - max(0.1, 3 * float(np.std(base)))
    broken = sorted({r["interval"] for r in rows if r["late"] < floor})
    first = broken[0] if broken else math.inf
    if not known:
        verdict = "cannot tell: κ was not measured well enough"
    elif math.isinf(first):
        verdict = f"no breakdown up to N = {arguments.most}" + (
            ": in line with the prediction" if predicted >= arguments.most else ": the prediction does not hold"
        )
    else:
        verdict = f"first breakdown at N = {first}, predicted after N* = {predicted:g}: " + (
            "holds within a factor of two" if first / 2 <= predicted + 1 <= 2 * first else "does not hold"
        )
    print("verdict:", verdict)
    print(json.dumps({"curvature": vars(kappa), "fisher": vars(measured["fisher"]), "predicted": str(predicted),
                      "rows": rows, "verdict": verdict}))  # fmt: skip


if __name__ == "__main__":
    main()
