"""What does taking one direction out of the activations do to the rank of a gradient, and is the mean special?

    python experiments/geometry_rollouts.py --task arithmetic:steps=1,limit=20 --max-tokens 12 --out arith.pt
    python experiments/geometry_directions.py --rollouts arith.pt --groups 8

Claim (`geometry_rank.py`): gradients have a stable rank of about 2 because activations share a direction, their mean;
without it the rank rises. But whatever dominates a matrix raises its stable rank Σσ²/σ₁² when it goes, almost by
construction, so a rise alone says little. Method: on the same rollouts and layers as there, G (I − v vᵀ) for a unit
vector v among
  mean        the mean of the activations that the gradient is made of
  second      their second principal direction, mean not subtracted
  random      a random direction in their span
  own first   the first right singular vector of G itself: the most that one direction can hold
with the share of ‖G‖² that goes and the stable rank of what is left. Numbers are means over layers ± standard error
over groups.
Verdict: the mean is special if what is left without it has a higher stable rank than what is left without the second
and without the random direction, paired, by more than 1.96 standard errors at every R.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from geometry_rank import RECIPE, SIZES, arranged, wanted
from torch import Tensor

from grposcope.core.estimate import Estimate
from grposcope.instruments.gradient import backward, weightings
from grposcope.instruments.gradient.score import Score
from grposcope.lab import policies
from grposcope.lab.rollout_batch import RolloutBatch

CREDITS = ("outcome", "nll")
DIRECTIONS = ("mean", "second", "random", "own first")


def stable_rank(matrix: Tensor) -> float:
    """Σσ²/σ₁² of a matrix."""
    return float(matrix.square().sum()) / float(torch.svd_lowrank(matrix, 8, niter=3)[1][0]) ** 2


def directions(activations: Tensor, gradient: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Unit vectors (D,) by name, to take out of activations (N, D) and a gradient (·, D)."""
    principal = torch.svd_lowrank(activations, 8, niter=3)[2]
    basis = torch.linalg.qr(activations.T)[0]
    random = basis @ torch.randn(basis.shape[1], generator=generator)
    found = activations.mean(0), principal[:, 1], random, torch.svd_lowrank(gradient, 8, niter=3)[2][:, 0]
    return {n: torch.nn.functional.normalize(v, dim=0) for n, v in zip(DIRECTIONS, found, strict=True)}


def measured(attached: backward.AttachedModel, one: RolloutBatch, every: int) -> dict[str, list[float]]:
    """Mean over layers of [stable rank, share of ‖G‖² taken out], by credit, R and direction ("" for none)."""
    rows: dict[str, Tensor] = {}
    for size in SIZES:
        few = weightings._first_rollouts(one, size)
        for made in (weightings.of_recipe(RECIPE, few), *weightings.controls(RECIPE, few)):
            if made.name in CREDITS and made.per_rollout is not None:
                rows[f"{made.name}/{size}"] = torch.nn.functional.pad(made.per_rollout, (0, 8 - size)).float()
    cells: dict[str, list[list[float]]] = {}
    generator = torch.Generator().manual_seed(0)

    def visit(score: Score) -> None:
        if score.kind == "vector" or not wanted(score.name, every):
            return
        gradients = (torch.stack(list(rows.values())) @ score.dense().flatten(1)).reshape(len(rows), *score.shape)
        b, a = score.uses[0].rows, score.uses[0].columns
        live = (b != 0).any(-1)
        for (key, u), gradient in zip(rows.items(), gradients, strict=True):
            cells.setdefault(f"{key}/", []).append([stable_rank(gradient), 0.0])
            for name, v in directions(a[live & (u != 0)[:, None]], gradient, generator).items():
                left = gradient - torch.outer(gradient @ v, v)
                share = 1 - float(left.square().sum() / gradient.square().sum())
                cells.setdefault(f"{key}/{name}", []).append([stable_rank(left), share])

    attached.stream(one, visit)
    return {key: torch.tensor(values).mean(0).tolist() for key, values in cells.items()}


def report(groups: list[dict[str, list[float]]]) -> dict[str, bool]:
    """Print the table and the paired differences; whether the mean is special, by credit and R."""
    special = {}
    print(
        "| credit | R | taken out | share of the gradient's energy | stable rank of the rest | rise |\n"
        + "|---" * 6
        + "|"
    )
    for key in groups[0]:
        credit, size, name = key.split("/")
        rank, share = (Estimate.mean([one[key][i] for one in groups]) for i in (0, 1))
        rise = Estimate.mean([one[key][0] - one[f"{credit}/{size}/"][0] for one in groups])
        numbers = (
            f"{share.value:.3f} ± {share.se:.3f} | {rank.value:.2f} ± {rank.se:.2f} | {rise.value:+.2f} ± {rise.se:.2f}"
        )
        print(f"| {credit} | {size} | {name or 'nothing'} | {numbers} |")
    for prefix in dict.fromkeys(key.rsplit("/", 1)[0] for key in groups[0]):
        gaps = {
            n: Estimate.mean([one[f"{prefix}/mean"][0] - one[f"{prefix}/{n}"][0] for one in groups])
            for n in DIRECTIONS[1:]
        }
        print(
            f"{prefix}: mean less " + ", less ".join(f"{n} {gap.value:+.2f} ± {gap.se:.2f}" for n, gap in gaps.items())
        )
        special[prefix] = all(gaps[n].value > 1.96 * gaps[n].se for n in ("second", "random"))
    return special


def main() -> None:
    """Measure group after group, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", required=True, help="file made by geometry_rollouts.py")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--every", type=int, default=6, help="take the layers of every so many-th block")
    parser.add_argument(
        "--out", type=Path, help="file for the numbers, a line per group; groups that are there are kept"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    drawn = torch.load(given.rollouts, weights_only=False)
    policy, out = policies.load(drawn["model"]), given.out
    groups = [json.loads(line) for line in out.read_text().splitlines()] if out and out.exists() else []
    for number, one in enumerate(drawn["mixed"][len(groups) : given.groups], len(groups)):
        group = arranged(one)
        attached = backward.attach(policy.model, group, drawn.get("temperature", 1.0))
        groups.append(measured(attached, group, given.every))
        if out:
            with out.open("a") as file:
                file.write(json.dumps(groups[-1]) + "\n")
        print(f"group {number}: {int(group.rewards.sum())} of 8 solved, self-check {attached.error:.1e}", flush=True)
    special = report(groups)
    print(
        "verdict:", "the mean is special" if all(special.values()) else f"the mean is not special everywhere: {special}"
    )
    print(json.dumps(special))


if __name__ == "__main__":
    main()
