"""Is the rank of arXiv:2606.29238 about 2, does it fall with the spread of rewards, does it foretell anything?

Claim    The matrix of one layer with the R rows A_i ψ_i of a group has r_eff = (Σσ)²/Σσ² ≈ 2 at R = 2, 4, 8.
Command  python experiments/geometry_group_rank.py frozen --model smollm2 --out runs/group_rank     some 2 minutes
         python experiments/geometry_group_rank.py frozen --model tiny --out runs/group_rank        some 20 s
         python experiments/geometry_group_rank.py training --out runs/group_rank                   some 5 minutes
         python experiments/geometry_group_rank.py stages --out runs/group_rank                     some 4 minutes more
Method   frozen: mixed groups of 8 (at least 8 of them), each cut to R = 2, 4, 8 with a success first and a failure
         second, by K successes and by layer; uncut, and cut at two singular values as a "truncated" decomposition would
         be; beside the null 4K(R−K)/R of orthogonal scores of equal norm. Units are groups.
         training: `tiny` on `arithmetic`, GRPO, 8 seeds of 60 steps of 16 × 8 rollouts, probed every 5 steps
         (`geometry/group_rank`, `geometry/reward_deviation`). Units are seeds.
         stages: the models of these trainings before and after, on the same 36 prompts, 12 mixed groups of them
         measured as `frozen` does: by R, by K at R = 8, by projection. Units are seeds.
Verdict  written before the first run.
         Table 1 holds if the median layer at R = 8, uncut, is within 2 ± 0.25; does not if it is above 2.5; else
         cannot tell. Said beside it: the same cut at two, and R = 2, 4.
         The rank falls as σ_r → 0 if the mean over seeds of Spearman's correlation of rank and σ_r over the probes is
         above 0 (t interval over seeds); does not if the interval is below 0; else cannot tell.
         It foretells saturation if, over seeds, the rank of the first third correlates with the gain of the reward
         from the first to the last third (|r| > 0.71, p < 0.05 at n = 8); else cannot tell: eight seeds find a true
         correlation of 0.8 in 8 of 10 cases and one of 0.5 in 2 of 10.
         stages (written after `training`, before its first run): the rank falls over training, at each R, if the t
         interval over seeds of the last stage less the first lies below 0, and rises if above; the same at one K
         (mean over the K = 1 … 7 that both stages have), which the spread of rewards of a group is a function of; and
         of the rank over its null of lengths.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from geometry_smollm2 import Sums
from scipy import stats

from grposcope.core.files import dumps, write_json
from grposcope.instruments.gradient import group_rank, probe
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import advantages, recipes
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks import Task
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train

SIZES = (2, 4, 8)
MEASURES = ("rank", "top", "cut", "top of two", "null", "null of lengths")


def frozen(given: argparse.Namespace) -> dict:
    """Ranks of mixed groups of a model that is not trained."""
    task = Sums() if given.model == "smollm2" else tasks.load("arithmetic")
    rows, layers, _ = groups_of(given.model, task, given)
    for row in rows:
        print(dumps(row), flush=True)
    table = {}
    for size in SIZES:
        of_size = [row for row in rows if row["R"] == size]
        mean = {key: _estimate([row[key] for row in of_size]) for key in MEASURES}
        by_k = {k: _estimate([r["rank"] for r in of_size if r["K"] == k]) for k in sorted({r["K"] for r in of_size})}
        roles = {role: float(np.mean(v)) for (s, role), v in layers.items() if s == size}
        table[size] = {**mean, "groups": len(of_size), "by K": by_k, "by role": roles}
    rank = table[8]["rank"][0]
    verdict = "holds" if abs(rank - 2) <= 0.25 else "does not hold" if rank > 2.5 else "cannot tell"
    return {"model": given.model, "table": table, "verdict": verdict}


def groups_of(
    model: str, task: Task, given: argparse.Namespace
) -> tuple[list[dict], dict[tuple[int, str], list[float]], float]:
    """A row per mixed group and R, the ranks by R and projection, and the mean reward."""
    policy = policies.load(model)
    batch = collect(policy, task, task.problems("train"), recipes.RLOO, Sampling(task.max_tokens), (given.prompts, 8),
                    given.seed, 0)  # fmt: skip
    live = (~advantages.dead(batch.rollouts.rewards)).nonzero()[: given.groups, 0]
    rows: list[dict] = []
    layers: dict[tuple[int, str], list[float]] = {}
    for number in live.tolist():
        one = batch.rollouts.take(torch.tensor([number]))
        order = one.rewards[0].argsort(descending=True)
        one = one.columns(torch.cat((order[:1], order[-1:], order[1:-1])))
        measured = probe.probe(policy.model, one, recipes.RLOO, leading=2, check=False)
        for size in SIZES:
            rewards = measured.rewards[:, :size]
            ranks = group_rank.measure(rewards, [layer.gram[:size, :size] for layer in measured.matrices])
            whole = ranks.summary()
            rows.append({
                "R": size, "K": int(rewards.sum()), "rank": whole.rank.value, "top": whole.top.value,
                "cut": whole.rank_of_two.value, "top of two": whole.top_of_two.value, "null": whole.null.value,
                "null of lengths": whole.null_of_lengths.value,
            })  # fmt: skip
            for place, layer in enumerate(measured.matrices):
                layers.setdefault((size, layer.role), []).append(float(ranks.rank[place, 0]))
    return rows, layers, float(batch.rollouts.rewards.mean())


STAGES = (0, 60)


def stages(given: argparse.Namespace) -> dict:
    """Ranks of mixed groups before and after the trainings of `training`, whose folder has their models."""
    task, seeds, given.prompts, given.groups = tasks.load("arithmetic"), [], 36, 12
    for seed in range(given.seeds):
        given.seed, of_seed = 1000 + seed, {}
        for step in STAGES:
            model = "tiny" if step == 0 else str(given.out / f"training-{seed}" / "model")
            rows, layers, solved = groups_of(model, task, given)
            of_seed[step] = {
                "solved": solved, "groups": len(rows) // len(SIZES),
                "rank": {R: float(np.mean([row["rank"] for row in rows if row["R"] == R])) for R in SIZES},
                "top": {R: float(np.mean([row["top"] for row in rows if row["R"] == R])) for R in SIZES},
                "share of null": float(np.mean([r["rank"] / r["null of lengths"] for r in rows if r["R"] == 8])),
                "by K": {K: float(np.mean(some)) for K in range(1, 8)
                         if (some := [row["rank"] for row in rows if row["R"] == 8 and row["K"] == K])},
                "by role": {role: float(np.mean(values)) for (R, role), values in layers.items() if R == 8},
            }  # fmt: skip
        seeds.append(of_seed)
        print(dumps({"seed": seed, **{str(step): (row["solved"], row["rank"][8]) for step, row in of_seed.items()}}),
              flush=True)  # fmt: skip
    first, last = STAGES[0], STAGES[-1]
    changes = {f"R = {R}": [s[last]["rank"][R] - s[first]["rank"][R] for s in seeds] for R in SIZES}
    changes["share of null"] = [s[last]["share of null"] - s[first]["share of null"] for s in seeds]
    changes["at one K"] = [
        float(np.mean([s[last]["by K"][k] - s[first]["by K"][k] for k in s[last]["by K"] if k in s[first]["by K"]]))
        for s in seeds
    ]
    told = {}
    for name, values in changes.items():
        low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
        verdict = "falls" if high < 0 else "rises" if low > 0 else "cannot tell"
        told[name] = (float(np.mean(values)), float(low), float(high), verdict)
    return {"seeds": seeds, "changes": told}


def _estimate(values: list[float]) -> tuple[float, float, int]:
    n = len(values)
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else float("nan"), n


def training(given: argparse.Namespace) -> dict:
    """Rank and spread of rewards over training."""
    curves = []
    for seed in range(given.seeds):
        folder = given.out / f"training-{seed}"
        if not (folder / "steps.jsonl").exists():
            train(TrainConfig(
                model="tiny", task="arithmetic", recipe="grpo", out=str(folder), seed=seed, steps=60, prompts=16,
                group=8, probe_every=5, threads=1, eval_every=0, checkpoint_every=0, rollouts_every=0,
            ))  # fmt: skip
        steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
        probed = [row for row in steps if isinstance(row.get("geometry/group_rank"), float)]
        columns = ("group_rank", "group_rank_of_two", "group_rank_null", "group_top_1", "reward_deviation")
        values = {name: np.array([row[f"geometry/{name}"] for row in probed]) for name in columns}
        reward = np.array([row["reward"] for row in steps])
        curves.append({
            "seed": seed, **{name: column.tolist() for name, column in values.items()},
            "correlation": float(stats.spearmanr(values["group_rank"], values["reward_deviation"]).statistic),
            "correlation of rank/null": float(
                stats.spearmanr(values["group_rank"] / values["group_rank_null"], values["reward_deviation"]).statistic
            ),
            "first": float(values["group_rank"][: len(probed) // 3].mean()),
            "last": float(values["group_rank"][-(len(probed) // 3) :].mean()),
            "gain": float(reward[-20:].mean() - reward[:20].mean()),
        })  # fmt: skip
        print(dumps({k: v for k, v in curves[-1].items() if not isinstance(v, list)}), flush=True)
    found = [one["correlation"] for one in curves]
    low, high = stats.t.interval(0.95, len(found) - 1, np.mean(found), stats.sem(found))
    falls = "holds" if low > 0 else "does not hold" if high < 0 else "cannot tell"
    r, p = stats.pearsonr([one["first"] for one in curves], [one["gain"] for one in curves])
    return {
        "curves": curves, "mean correlation": float(np.mean(found)), "interval": (float(low), float(high)),
        "falls with the spread of rewards": falls, "r with the gain": float(r), "p": float(p),
        "foretells": "holds" if p < 0.05 else "cannot tell",
    }  # fmt: skip


def main() -> None:
    """Measure, print, decide."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("frozen", "training", "stages"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--groups", type=int, default=16, help="mixed groups at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    found = {"frozen": frozen, "training": training, "stages": stages}[given.part](given)
    write_json(given.out / (f"frozen-{given.model}.json" if given.part == "frozen" else f"{given.part}.json"), found)
    print(dumps(found))


if __name__ == "__main__":
    main()
