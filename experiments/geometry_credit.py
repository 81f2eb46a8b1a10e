"""The falsification: is the layer gradient of rank about 2 because the reward is one number per rollout?

    python experiments/geometry_credit.py --seeds 4

Claim ([PG], as its abstract and reviews tell it): under an outcome reward the gradient is of rank about 2 for
every group size, since advantages sum to zero; per-token labels would break that. Test: `tiny` on
`arithmetic`, whose verifier labels every step, so that the same rollouts carry both kinds of reward. Per
seed a batch of 8 prompts is drawn; for R in 2, 4, 8 the gradient of the whole batch and of single groups is
taken with outcome credit, per-step credit and the controls, and every rank of every layer's matrix in full.
Numbers are means over layers and seeds ± standard error over seeds; differences are paired by seed.
"""

from __future__ import annotations

import argparse
import json

import torch

from grposcope import policies, tasks
from grposcope.geometry import probe, weightings
from grposcope.objectives import recipes
from grposcope.records import Estimate
from grposcope.training.rollouts import collect
from grposcope.training.sampler import Sampling

SHOWN = ("stable", "participation", "entropy_sq", "energy_90", "energy_99", "threshold_0.1")


def main() -> None:
    """Draw, probe, print tables and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--groups", type=int, nargs="+", default=[2, 4, 8])
    given = parser.parse_args()
    torch.set_num_threads(1)
    policy, task = policies.load(given.model), tasks.load(given.task)
    ranks: dict[tuple[str, int, str], dict[str, list[float]]] = {}
    for seed in range(given.seeds):
        rollouts = collect(
            policy, task, task.problems("train"), recipes.GRPO, Sampling(task.max_tokens),
            (given.prompts, max(given.groups)), 100 + seed, 0, label_steps=True,
        ).rollouts  # fmt: skip
        for size in given.groups:
            few = weightings.first_rollouts(rollouts, size)
            alive = (few.rewards.amax(-1) != few.rewards.amin(-1)).nonzero()[:, 0]
            if not len(alive):
                continue
            for scope, part in (("batch", few), ("one group", few.take(alive[:1]))):
                one = probe.probe(policy.model, part, recipes.GRPO, tier="exact", controls=True, seed=seed)
                for name in one.weightings:
                    row = ranks.setdefault((scope, size, name), {})
                    for rank, value in one.mean_ranks(name).items():
                        row.setdefault(rank, []).append(value.value)
                    row.setdefault("rollout_stable", []).append(one.rollout_spectrum(name).ranks()["stable"])
                    row.setdefault("token_stable", []).append(one.token_spectra[name].ranks()["stable"])
        print(f"seed {seed} done", flush=True)
    columns = (*SHOWN, "rollout_stable", "token_stable")
    for scope in ("batch", "one group"):
        print(f"\n{scope}: ranks of the layer gradients, mean over layers, ± standard error over seeds\n")
        print("| R | credit | seeds | " + " | ".join(columns) + " |\n|---" * 1 + "|---" * (len(columns) + 2) + "|")
        for (where, size, name), row in ranks.items():
            if where == scope:
                cells = [Estimate.mean(row[c]) for c in columns]
                print(
                    f"| {size} | {name} | {cells[0].n} | "
                    + " | ".join(f"{c.value:.2f} ± {c.se:.2f}" for c in cells)
                    + " |"
                )
        print("\npaired difference from outcome credit (grpo)\n")
        for (where, size, name), row in ranks.items():
            if where == scope and name != "grpo":
                base = ranks[where, size, "grpo"]
                text = []
                for c in SHOWN:
                    gap = Estimate.mean([a - b for a, b in zip(row[c], base[c], strict=False)])
                    text.append(f"{c} {gap.value:+.2f} ± {gap.se:.2f}")
                print(f"R={size} {name}: " + ", ".join(text))
    print(
        json.dumps(
            {"/".join(map(str, key)): {c: Estimate.mean(v).value for c, v in row.items()} for key, row in ranks.items()}
        )
    )


if __name__ == "__main__":
    main()
