"""Is the gradient of a group of rank about 2 for R = 2, 4, 8, and is it the zero sum that makes it so?

    python experiments/geometry_rollouts.py --task arithmetic:steps=1,limit=20 --max-tokens 12 --out arith.pt
    python experiments/geometry_rank.py --rollouts arith.pt --groups 8 --out arith.jsonl

Claim ([PG]): with an outcome reward the gradient is of rank about 2 for R in {2, 4, 8}, because advantages sum
to zero. Method: single mixed groups of 8 rollouts of SmolLM2-135M, put in an order whose first two are a
success and a failure, so that the first 2, 4 and 8 are mixed. On the same rollouts, per layer (every
`--every`-th block, all projections): the gradient with standardized outcome advantages and with five others
(shuffled; the bare rewards; 1 for all, the likelihood's gradient; random per token; per-step rewards).
If the zero sum made the rank, the bare rewards and the likelihood would differ. If the network does, the
rank should rise once the mean activation ā is taken out, G − (Σ w b) āᵀ, whatever the advantages, and a
model with one mean activation, or one per class (rank 2 at most, whatever R), should hold most of the
gradient, and what is left without it should have a higher rank by every definition.

Whatever dominates a matrix raises its stable rank when it goes: `geometry_directions.py` compares directions.

Numbers are means over layers, ± standard error over groups; ranks are the middle of the fast tier's bounds
(24 leading values and the exact norm). Results go to `--out` group by group, and groups that are there are not
measured again.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path

import torch

from grposcope.core.estimate import Estimate
from grposcope.instruments.gradient import backward, spectrum, weightings
from grposcope.instruments.gradient.score import Score
from grposcope.lab import policies
from grposcope.lab.objectives import advantages, recipes
from grposcope.lab.rollout_batch import RolloutBatch

RECIPE = replace(recipes.RLOO, name="outcome", advantage=advantages.standardized)
SIZES = (2, 4, 8)
SHOWN = spectrum.NAMES


def arranged(one: RolloutBatch) -> RolloutBatch:
    """The same group with a success first and a failure second."""
    order = one.rewards[0].argsort(descending=True)
    return one.columns(torch.cat((order[:1], order[-1:], order[1:-1])))


def wanted(name: str, every: int) -> bool:
    """Whether the layer belongs to every `every`-th block."""
    number = re.search(r"\.(\d+)\.", name)
    return number is not None and int(number[1]) % every == 0


def row_weightings(one: RolloutBatch) -> dict[str, torch.Tensor]:
    """Weights of whole rollouts (8,), by name of the credit and R."""
    weights = {}
    for size in SIZES:
        few = weightings._first_rollouts(one, size)
        made = [weightings.of_recipe(RECIPE, few), *weightings.controls(RECIPE, few, seed=size)]
        for weighting in made:
            if weighting.per_rollout is not None and not weighting.empty:
                weights[f"{weighting.name}/{size}"] = torch.nn.functional.pad(weighting.per_rollout, (0, 8 - size))
    return weights


def measure(attached: backward.AttachedModel, one: RolloutBatch, every: int) -> dict[str, dict[str, dict[str, float]]]:
    """Ranks by weighting and layer. `held_one`, `held_two`: shares of ‖G‖² that one, two mean activations hold."""
    rows, out = row_weightings(one), {}
    wins = one.rewards[0] > one.rewards[0].mean()

    def ranks(key: str, layer: str, matrix: torch.Tensor, **more: float) -> None:
        part = spectrum.leading(matrix, 24, rounds=1)
        low, high = part.bounds()["stable"]
        out.setdefault(key, {})[layer] = part.ranks() | {"stable_width": high - low, "left_out": part.left_out, **more}

    def visit(score: Score) -> None:
        if score.kind == "vector" or not wanted(score.name, every):
            return
        names = list(rows)
        weights = torch.stack([rows[n] for n in names]).float()
        gradients = (weights @ score.dense().flatten(1)).reshape(len(names), *score.shape)
        b, a = score.uses[0].rows, score.uses[0].columns
        live = (b != 0).any(-1)
        for name, u, gradient in zip(names, weights, gradients, strict=True):
            more = {}
            if name.split("/")[0] in ("outcome", "nll", "no_baseline"):
                used = live & (u != 0)[:, None]
                beta = u[:, None] * b.sum(1)  # (B, R): what multiplies a mean activation
                mean = a[used].mean(0)
                total = float(gradient.square().sum())
                without = gradient - torch.outer(beta.sum(0), mean)
                model = sum(
                    (
                        torch.outer(beta[side].sum(0), a[used & side[:, None]].mean(0))
                        for side in (wins, ~wins)
                        if bool((used & side[:, None]).any())
                    ),
                    torch.zeros_like(gradient),
                )
                credit, size = name.split("/")
                ranks(f"{credit} less mean activation/{size}", score.name, without)
                ranks(f"{credit} less class means/{size}", score.name, gradient - model)
                more = {
                    "held_one": 1 - float(without.square().sum()) / total,
                    "held_two": 1 - float((gradient - model).square().sum()) / total,
                }
            ranks(name, score.name, gradient, **more)

    attached.stream(one, visit)
    for size in SIZES:
        few = weightings._first_rollouts(one, size)
        for weighting in weightings.controls(RECIPE, few, seed=size):
            if weighting.per_rollout is None and not weighting.empty:

                def summed(score: Score, key: str = f"{weighting.name}/{size}") -> None:
                    if score.kind != "vector" and wanted(score.name, every):
                        ranks(key, score.name, score.dense().sum(0))

                attached.stream(few, summed, weighting.weights)
    return out


def report(groups: list[dict[str, dict[str, dict[str, float]]]]) -> None:
    """Print the tables, with standard errors over groups."""

    def means(key: str, rank: str, layers: str = "") -> list[float]:
        got = []
        for one in groups:
            cells = [v[rank] for n, v in one.get(key, {}).items() if re.search(layers, n) and rank in v]
            got.append(sum(cells) / len(cells) if cells else float("nan"))
        return got

    def show(values: list[float]) -> str:
        kept = Estimate.mean([v for v in values if v == v])
        return f"{kept.value:.2f} ± {kept.se:.2f}"

    keys = sorted({k for one in groups for k in one}, key=lambda k: (k.split("/")[0], int(k.split("/")[1])))
    print(f"\nranks of the layer gradients, mean over layers ± s.e. over {len(groups)} groups\n")
    print("| credit | R | " + " | ".join(SHOWN) + " | energy left out |\n|---" + "|---" * (len(SHOWN) + 2) + "|")
    for key in keys:
        name, size = key.split("/")
        print(
            f"| {name} | {size} | "
            + " | ".join(show(means(key, r)) for r in SHOWN)
            + f" | {show(means(key, 'left_out'))} |"
        )
    print("\nstable rank, paired difference from outcome credit on the same rollouts ± s.e. over groups\n")
    for key in keys:
        name, size = key.split("/")
        if name != "outcome":
            gap = [a - b for a, b in zip(means(key, "stable"), means(f"outcome/{size}", "stable"), strict=True)]
            print(f"R={size} {name}: {show(gap)}")
    print("\nshare of ‖G‖² held by one mean activation, and by one per class (rank ≤ 2)\n")
    for size in SIZES:
        for name in ("outcome", "no_baseline", "nll"):
            key = f"{name}/{size}"
            print(f"R={size} {name}: one {show(means(key, 'held_one'))}, two {show(means(key, 'held_two'))}")
    print("\nstable rank by projection and by depth, R = 8\n")
    print("| layers | outcome | nll | outcome less mean activation |\n|---|---|---|---|")
    names = {n for one in groups for v in one.values() for n in v}
    roles = sorted({n.split(".")[-2] for n in names})
    depths = sorted({int(re.search(r"\.(\d+)\.", n)[1]) for n in names})  # type: ignore[index]
    for label in (*roles, *(f".{d}." for d in depths)):
        cells = [
            show(means(f"{k}/8", "stable", re.escape(label)))
            for k in ("outcome", "nll", "outcome less mean activation")
        ]
        print(f"| {label.strip('.')} | " + " | ".join(cells) + " |")


def main() -> None:
    """Measure group after group, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", required=True, help="file made by geometry_rollouts.py")
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument("--every", type=int, default=3)
    parser.add_argument("--out", help="file for the raw ranks, a line of JSON per group")
    given = parser.parse_args()
    torch.set_num_threads(1)
    drawn = torch.load(given.rollouts, weights_only=False)
    policy = policies.load(drawn["model"])
    out = Path(given.out) if given.out else None
    done = [json.loads(line) for line in out.read_text().splitlines()] if out and out.exists() else []
    print(f"{drawn['model']} on {drawn['task']}: {len(drawn['rewards'])} groups, solved {drawn['rewards'].mean():.3f}")
    for number, one in enumerate(drawn["mixed"][len(done) : given.groups], len(done)):
        group = arranged(one)
        attached = backward.attach(policy.model, group, drawn.get("temperature", 1.0))
        done.append(measure(attached, group, given.every))
        print(f"group {number}: {int(group.rewards.sum())} of 8 solved, self-check {attached.error:.1e}", flush=True)
        if out:
            with out.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
    done = done[: given.groups]
    report(done)
    print(json.dumps({"groups": len(done), "task": drawn["task"], "model": drawn["model"]}))


if __name__ == "__main__":
    main()
