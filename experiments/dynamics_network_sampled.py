"""Experiment: the refresh instability in `tiny` with whole answers, everything sampled.

Claim    The claim of `dynamics_network.py`, with gradient noise: N* follows from the κ that rollouts give along the
         stiffest direction.
Command  python experiments/dynamics_network_sampled.py --out runs/dynamics_network     resumable, a file per run
         … --seeds 0      one of them; … --report     what there is, no training; … --quick --out FOLDER
Setting  `tiny` on eight sums of `arithmetic`, eight rollouts each, leave-one-out advantages without importance ratio,
         a KL of weight λ = 1 to the starting policy inside the reward; SGD with momentum 0.5, ηκ = 0.3.
Method   (1) Adam at N = 1 with a falling rate to the plateau. (2) The first eigenvector of the Fisher matrix of four
         batches by Lanczos; κ along it on 16 other batches, from re-weighting and by a response
         experiment (`lab.train.run_curvature`); κ along the way from the start. (3) N* with its range. (4) Push
         the weights along the eigenvector, run 16 refreshes at intervals around N*, fit the multiplier of a cycle to
         the displacement at the refreshes.
Verdict  holds if the fitted multiplier crosses 1 within 25 % of N* for every seed; cannot tell where the errors of the
         multipliers, or the range of N*, are wider than that.
"""

from __future__ import annotations

import copy
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from dynamics_network import arguments, multiplier
from torch import Tensor

from grposcope.core.estimate import Estimate
from grposcope.core.files import dumps, write_json
from grposcope.instruments.dynamics import refresh
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import advantages, ratios, recipes
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.train.run_curvature import (
    _directional_curvature,
    _directional_logprobs,
    _Eigenpair,
    _fisher_product,
    _largest_eigenpairs,
    _model_logprobs,
    _parameter_vector,
    _response,
    _set_parameters,
    _unit,
)
from grposcope.lab.train.update import TokenTerms, update

SETTING = (0.5, 0.3)
"""Momentum and ηκ."""


class Trial:
    """Training of `tiny` on eight sums with the KL in the reward, everything sampled in batches of 8 × 8."""

    def __init__(self, seed: int, kl: float = 1.0):
        self.policy, self.task = policies.load("tiny"), tasks.load("arithmetic")
        self.model: Any = self.policy.model
        self.reference = copy.deepcopy(self.model).requires_grad_(False)
        self.problems = self.task.problems("train")[8 * seed : 8 * seed + 8]
        self.seed, self.kl, self.drawn = seed, kl, 0
        self.objective = replace(recipes.RLOO, ratio=ratios.none)

    def draw(self, number: int | None = None) -> RolloutBatch:
        """Draw batch `number` of rollouts from the present weights, by default the next one."""
        self.drawn += number is None
        place = 8 * (self.drawn if number is None else number)
        return collect(self.policy, self.task, self.problems, self.objective, Sampling(self.task.max_tokens), (8, 8),
                       self.seed, place).rollouts  # fmt: skip

    def payoff(self, logp: Tensor, batch: RolloutBatch) -> Tensor:
        """Rewards minus λ log π/π_ref, (P, G)."""
        excess = logp.double() - frozen_logprobs(self.reference, batch, 1.0, 256).double()
        return batch.rewards - self.kl * excess.sum(-1).reshape(batch.rewards.shape)

    def weigh(self, now: Tensor, old: Tensor, batch: RolloutBatch) -> Tensor:
        """∂L/∂log π (B, T) with leave-one-out advantages of a payoff that is as old as the rollouts."""
        credit = advantages.leave_one_out(self.payoff(old, batch)).reshape(-1, 1)
        return -credit * batch.mask / len(batch.mask)

    def train(self, optimizer: torch.optim.Optimizer, interval: int, refreshes: int, centre: Tensor, u: Tensor,
              decay: bool = False) -> dict[str, Any]:  # fmt: skip
        """Train on; returns reward, KL, spread of advantages and displacement along u at each refresh."""
        record: dict[str, list[float]] = {"path": [], "rewards": [], "kl": [], "advantage": []}
        rate = optimizer.param_groups[0]["lr"]
        for k in range(refreshes):
            optimizer.param_groups[0]["lr"] = rate * (1 - k / refreshes) if decay else rate
            batch = self.draw()
            payoff = self.payoff(batch.logp, batch)
            credit = advantages.leave_one_out(payoff)
            record["rewards"].append(float(batch.rewards.mean()))
            record["kl"].append(float((batch.rewards - payoff).mean() / self.kl))
            record["advantage"].append(float(credit.square().mean().sqrt()))
            record["path"].append(float(u @ (_parameter_vector(self.model) - centre)))
            fixed = TokenTerms(credit.reshape(-1, 1).float() * batch.mask, None, None)
            for _ in range(interval):
                update(self.model, optimizer, self.objective, batch, fixed, 1.0, 0.0, 256)
        return {"interval": interval, **record}

    def stiffest(self, batches: int) -> _Eigenpair:
        """The first eigenvector of the Fisher matrix of fresh batches, with its eigenvalue times λ."""
        products = [_fisher_product(self.model, self.draw()) for _ in range(batches)]
        start = torch.randn(self.policy.parameters, generator=torch.Generator().manual_seed(self.seed))
        return _largest_eigenpairs(lambda v: torch.stack([p(v) for p in products]).mean(0) * self.kl, start, 10)[0]

    def kappa(self, direction: Tensor, batches: int) -> dict[str, Estimate]:
        """κ along a unit direction and its parts, with standard errors over fresh batches on the same prompts."""
        curvatures = []
        for _ in range(batches):
            batch = self.draw()
            along = _directional_logprobs(self.model, batch, direction, _model_logprobs(self.model))
            curvatures.append(_directional_curvature(along, batch, self.weigh))
        return {name: Estimate.mean([getattr(f, name).value for f in curvatures])
                for name in ("force", "current", "stale", "curvature", "fisher")}  # fmt: skip


def measured(seed: int, quick: bool, folder: Path) -> dict[str, Any]:
    """κ of `tiny` at its plateau, and the intervals to run; the weights and the eigenvector are saved as a .pt file."""
    trial, (momentum, pull) = Trial(seed), SETTING
    start = _parameter_vector(trial.model)
    adam = torch.optim.Adam(trial.model.parameters(), lr=4e-4)
    warm = trial.train(adam, 1, 4 if quick else 70, start, start, decay=True)
    plateau = _parameter_vector(trial.model)
    top = trial.stiffest(1 if quick else 4)
    count = 4 if quick else 16
    along, way = trial.kappa(top.vector, count), trial.kappa(_unit(plateau - start), count // 2)
    epsilon = 0.1 / math.sqrt(along["fisher"].value)
    slope = _response(
        trial.model,
        top.vector,
        trial.draw,
        _model_logprobs(trial.model),
        trial.weigh,
        epsilon,
        count // 2,
    )
    kappa = along["curvature"].value
    lr = pull / kappa
    last = int(refresh.threshold(lr, momentum, kappa))
    torch.save({"plateau": plateau, "u": top.vector}, folder / f"sampled-{seed}.pt")
    return {"stage": "sampled", "seed": seed, "kl": trial.kl, "warm": warm, "top": top.value, "residual": top.residual,
            "along": along, "way": way, "response": slope, "lr": lr, "momentum": momentum, "predicted": last,
            "push": epsilon,
            "intervals": [1, 2] if quick else [max(last // 2, 1), last - 1, last + 1, last + 3]}  # fmt: skip


def continued(piece: dict[str, Any], interval: int, quick: bool, folder: Path) -> dict[str, Any]:
    """Run heavy ball at one interval from the plateau, pushed along the eigenvector."""
    trial, checkpoint = Trial(piece["seed"]), torch.load(folder / f"sampled-{piece['seed']}.pt")
    trial.drawn = 1000 * interval  # other rollouts than at other intervals
    _set_parameters(trial.model, checkpoint["plateau"] + piece["push"] * checkpoint["u"])
    optimizer = torch.optim.SGD(trial.model.parameters(), lr=piece["lr"], momentum=piece["momentum"])
    run = trial.train(optimizer, interval, 6 if quick else 16, checkpoint["plateau"], checkpoint["u"])
    kappa = float(piece["along"]["curvature"]["value"])
    return {**run, "predicted": float(refresh.spectral_radius(piece["lr"], piece["momentum"], kappa, interval))}


def estimate(content: dict[str, Any]) -> Estimate:
    """The Estimate that a JSON file holds, where NaN is a string."""
    return Estimate(float(content["value"]), float(content["se"]), content["n"], content["flag"])


def piece_summary(piece: dict[str, Any]) -> dict[str, Any]:
    """Print and return one piece: κ with its error, the predicted N*, and a row per run with its multiplier and end."""
    along = {name: estimate(value) for name, value in piece["along"].items()}
    way, slope = estimate(piece["way"]["curvature"]), estimate(piece["response"])
    lr, momentum, kappa = piece["lr"], piece["momentum"], along["curvature"]
    low, high, by_response = (refresh.threshold(lr, momentum, k) if k > 0 else math.inf
                              for k in (*kappa.interval()[::-1], slope.value))  # fmt: skip
    print(f"sampled {piece['seed']}: in-sample eigenvalue {piece['top']:.1f}; κ along it {kappa}, of which current "
          f"{along['current']}; λ × Fisher {piece['kl'] * along['fisher'].value:.1f} ± "
          f"{piece['kl'] * along['fisher'].se:.1f}; response {slope}; along the way {way}; N* {piece['predicted']} "
          f"({low:g} to {high:g}), by the response {by_response:g}")  # fmt: skip
    rows = []
    for run in piece["runs"]:
        radius, turns = multiplier([run["path"]], momentum, 8)
        x = np.abs(run["path"]) * math.sqrt(along["fisher"].value)
        late = slice(len(x) * 2 // 3, None)
        reward, kl = (float(np.mean(run[name][late])) for name in ("rewards", "kl"))
        displacement = float(np.sqrt((x[late] ** 2).mean()))
        rows.append({"interval": run["interval"], "radius": radius, "turns": turns, "predicted": run["predicted"],
                     "displacement": displacement, "reward": reward, "kl": kl})  # fmt: skip
        print(f"| {piece['seed']} | {run['interval']} | {radius.value:.2f} ± {radius.se:.2f} | "
              f"{run['predicted']:.2f} | {displacement:.3f} | {reward:.2f} | {kl:.2f} |")  # fmt: skip
    unstable = [r["interval"] for r in rows if r["radius"].value >= 1]
    return {"seed": piece["seed"], "predicted": piece["predicted"] + 1, "range": (low, high),
            "by response": by_response, "first unstable": min(unstable) if unstable else math.nan,
            "rows": rows}  # fmt: skip


def report(folder: Path) -> None:
    """Print the table and the verdict from the files in the folder; the last line is JSON."""
    pieces = [json.loads(p.read_text()) for p in sorted(folder.glob("sampled-?.json"))]
    for piece in pieces:
        paths = (folder / f"sampled-{piece['seed']}-n{n}.json" for n in piece["intervals"])
        piece["runs"] = [json.loads(p.read_text()) for p in paths if p.exists()]
    print("| seed | N | multiplier | predicted | late displacement in rms log π | late reward | late KL |\n"
          + "|---" * 7 + "|")  # fmt: skip
    rows = [piece_summary(p) for p in pieces]
    near = [abs(r["first unstable"] / r["predicted"] - 1) <= 0.25 for r in rows]
    verdict = f"first unstable interval within 25 % of N* + 1 in {sum(near)} of {len(near)}"
    print("verdict:", verdict)
    print(dumps({"seeds": rows, "verdict": verdict}))


def main() -> None:
    """Make the pieces that are missing, then report."""
    given = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in given.seeds[:1] if given.quick else given.seeds:
        path = given.out / f"sampled-{seed}.json"
        if given.report:
            break
        if not path.exists():
            write_json(path, measured(seed, given.quick, given.out))
        piece = json.loads(path.read_text())
        for interval in piece["intervals"]:
            path = given.out / f"sampled-{seed}-n{interval}.json"
            if not path.exists():
                write_json(path, continued(piece, interval, given.quick, given.out))
    report(given.out)


if __name__ == "__main__":
    main()
