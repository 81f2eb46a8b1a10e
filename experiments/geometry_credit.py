"""Is the layer gradient of rank about 2 because the reward is one number per rollout?

    python experiments/geometry_credit.py --seeds 30 --out runs/geometry_credit.jsonl      resumable, a line per seed

Claim ([PG], as its abstract and reviews tell it): under an outcome reward the gradient is of rank about 2 for every
group size, since advantages sum to zero; per-token labels would break that. Method: `tiny` on `arithmetic`, whose
verifier labels every step, so that the same rollouts carry both kinds of reward. Per seed a batch of 8 prompts is
drawn; for R in 2, 4, 8 the gradient with outcome credit, with unbiased credit of steps, with GRPO's process
supervision and with the controls, and every rank of every layer's matrix in full, of
  batch       all groups of the batch; labels of steps may give a group a gradient that has none from its outcomes
  live        its groups with unequal outcomes alone, so that both kinds of credit have the same groups
  one group   the first of them.
A batch counts where some group has unequal outcomes. Numbers are means over layers and seeds ± standard error over
seeds; differences are paired by seed.
Verdict: rewards per step raise the rank at R if the paired difference of the stable rank, steps less outcome, exceeds
1.96 standard errors.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from grposcope.core.estimate import Estimate
from grposcope.instruments.gradient import probe, weightings
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling

SCOPES = ("batch", "live", "one group")
SHOWN = ("stable", "participation", "entropy_sq", "energy_90", "energy_99", "threshold_0.1")

Ranks = dict[str, dict[str, dict[str, float]]]
"""scope/R -> credit -> rank -> value."""


def with_gradient(weighting: weightings.Weighting, groups: tuple[int, int]) -> int:
    """How many groups have a weight that is not 0."""
    return int(weighting.weights.unflatten(0, groups).flatten(1).any(-1).sum())


def measured(model, rollouts: RolloutBatch, recipe, sizes: list[int], seed: int) -> Ranks:
    """Ranks of every credit at every R, and how many groups have a gradient."""
    out: Ranks = {}
    for size in sizes:
        few = weightings._first_rollouts(rollouts, size)
        alive = (few.rewards.amax(-1) != few.rewards.amin(-1)).nonzero()[:, 0]
        if not len(alive):
            continue
        for scope, part in zip(SCOPES, (few, few.take(alive), few.take(alive[:1])), strict=True):
            process = weightings.of_recipe(recipe, part, "process", "process")
            one = probe.probe(model, part, recipe, tier="exact", controls=True, extra=[process], seed=seed)
            out[f"{scope}/{size}"] = {
                name: {rank: value.value for rank, value in one.mean_ranks(name).items()}
                | {"groups": with_gradient(weighting, part.groups)}
                for name, weighting in one.weightings.items()
            }
    return out


def report(seeds: list[Ranks], recipe: str) -> None:
    """Print a table per scope, the paired differences from outcome credit, and the verdict."""
    verdicts = {}
    for scope in SCOPES:
        print(f"\n{scope}: ranks of the layer gradients, mean over layers, ± standard error over seeds\n")
        print(
            "| R | credit | seeds | groups | " + " | ".join(SHOWN) + " | stable, less outcome |\n" + "|---" * 11 + "|"
        )
        keys = sorted({key for one in seeds for key in one if key.startswith(f"{scope}/")}, key=lambda k: int(k[-1]))
        for key in keys:
            rows = [one[key] for one in seeds if key in one]
            for name in rows[0]:
                both = [(row[name], row[recipe]) for row in rows if name in row]
                cells = [Estimate.mean([mine[rank] for mine, _ in both]) for rank in ("groups", *SHOWN)]
                gap = Estimate.mean([mine["stable"] - other["stable"] for mine, other in both])
                values = " | ".join(f"{cell.value:.2f} ± {cell.se:.2f}" for cell in cells[1:])
                print(f"| {key[-1]} | {name} | {len(both)} | {cells[0].value:.1f} | {values} "
                      f"| {gap.value:+.2f} ± {gap.se:.2f} |")  # fmt: skip
                if name == "steps":
                    verdicts[key] = "raised" if gap.value > 1.96 * gap.se else "not shown to be raised"
    print("\nverdict:", "; ".join(f"{key}: {verdict}" for key, verdict in verdicts.items()))
    print(json.dumps(verdicts))


def main() -> None:
    """Draw, probe, print tables and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--recipe", default="grpo", choices=tuple(recipes.ALL))
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first", type=int, default=100, help="the first seed")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--groups", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--out", type=Path, help="file for the ranks, a line per seed; seeds that are there are kept")
    given = parser.parse_args()
    torch.set_num_threads(1)
    policy, task, recipe = policies.load(given.model), tasks.load(given.task), recipes.ALL[given.recipe]
    done = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out and given.out.exists() else []
    for seed in range(given.first + len(done), given.first + given.seeds):
        rollouts = collect(
            policy, task, task.problems("train"), recipe, Sampling(task.max_tokens),
            (given.prompts, max(given.groups)), seed, 0, label_steps=True,
        ).rollouts  # fmt: skip
        done.append(measured(policy.model, rollouts, recipe.at_length(task.max_tokens), given.groups, seed))
        if given.out:
            with given.out.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
        print(f"seed {seed} done", flush=True)
    report(done, given.recipe)


if __name__ == "__main__":
    main()
