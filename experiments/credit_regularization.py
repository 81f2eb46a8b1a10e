"""Was the sparsity of outcome credit a regularizer? Drift, memory and transfer of models trained under finer credit.

    python experiments/credit_regularization.py --trained FOLDER --out runs/credit_regularization.jsonl     resumable

Claim (asked of [PG] by its first readers): that all tokens share one advantage keeps the gradient sparse and of low
rank, which regularizes; finer credit would drift further from the start, learn the training problems by heart and carry
over less. Method: the runs of `credit_training.py`, arms × 8 paired seeds, each at the end of its equal number of
generated tokens. Of every final model, with the same random numbers for all: KL(π ‖ π at the start) of whole
completions on 32 held-out problems × 2, in nats, sampled; pass@1 on 200 training and 200 held-out problems, and their
difference; pass@1 on four families not trained on (limit=200, ops=+, ops=-, ops=+-*), 50 problems each, and its mean
(cut from four samples each, before any comparison, to what the machine had time for). Arms have their own learning
rates, the best of three, so that they are compared as they would be used.

The rule, written before the first run. Per arm, differences from `outcome` paired by seed, t interval; Holm over arms.
Finer credit: prefix, tree, continuations, oracle and value, those of them that are there.
    holds          two of them or more have a larger gap (training less held-out), or a lower mean over the families,
                   corrected p < 0.05 in that quantity
    does not hold  for every one of them the 95 % upper end of the gap's difference is below +0.03, and the lower end
                   of the families' is above −0.03
    cannot tell    otherwise
Of the drift: an arm drifts more if its KL is larger, corrected p < 0.05; since what learns more drifts more, KL divided
by the gain in held-out pass@1 over the start is shown beside it, and decides nothing.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from scipy import stats

from grposcope.core.files import dumps
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.evaluate import evaluate
from grposcope.lab.sampling.rollouts import collect, generator
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.maths.holm import holm

FAMILIES = ("limit=200", "ops=+", "ops=-", "ops=+-*")
FINER = ("prefix", "tree", "continuations", "oracle", "value")
ORDER = ("outcome", "oracle", "tree", "prefix", "value", "continuations", "steps", "placebo")
SHOWN = ("kl", "train", "heldout", "gap", "families", *FAMILIES)


def measured(policy: Policy, start: Policy) -> dict[str, float]:
    """All quantities of one model."""
    task = Arithmetic()
    found = {
        "train": _solved(policy, task, "train", 200),
        "heldout": _solved(policy, task, "heldout", 200),
        **{family: _solved(policy, tasks.load(f"arithmetic:{family}"), "heldout", 50) for family in FAMILIES},
    }
    rollouts = collect(
        policy, task, task.problems("heldout"), recipes.RLOO, Sampling(task.max_tokens), (32, 2), 700, 0
    ).rollouts
    apart = [frozen_logprobs(one.model, rollouts, 1.0, 128).double() for one in (policy, start)]
    found["kl"] = float(((apart[0] - apart[1]) * rollouts.mask).sum(-1).mean())
    found["gap"] = found["train"] - found["heldout"]
    found["families"] = float(np.mean([found[family] for family in FAMILIES]))
    return found


def _solved(policy: Policy, task: tasks.Task, split: Any, count: int) -> float:
    problems = task.problems(split)[:count]
    stream = generator(701, task.name, split)
    return float(evaluate(policy, task, problems, 1, Sampling(task.max_tokens), stream)["pass@1"].value)


def runs_of(folder: Path) -> list[tuple[str, int, Path]]:
    """Arm, seed and model of every run of the last stage, those with seeds below 100, seed after seed."""
    found = []
    for path in sorted(folder.glob("*.json")):
        one = json.loads(path.read_text())
        model = path.with_suffix("") / "model"
        if one["seed"] < 100 and model.is_dir():
            found.append((one["arm"], one["seed"], model))
    return sorted(found, key=lambda run: (run[1], ORDER.index(run[0])))


def compared(rows: list[dict[str, Any]], quantity: str) -> dict[str, dict[str, float]]:
    """By arm, the paired difference of a quantity from outcome's, its interval, and p by Holm."""
    values: dict[str, dict[int, float]] = {}
    for row in rows:
        values.setdefault(row["arm"], {})[row["seed"]] = row[quantity]
    found: dict[str, dict[str, float]] = {}
    for arm, own in values.items():
        seeds = sorted(own.keys() & values["outcome"].keys())
        if arm != "outcome" and len(seeds) > 1:
            test = stats.ttest_1samp([own[seed] - values["outcome"][seed] for seed in seeds], 0.0)
            low, high = test.confidence_interval(0.95)
            gap = float(np.mean([own[seed] - values["outcome"][seed] for seed in seeds]))
            found[arm] = {"n": len(seeds), "gap": gap, "low": low, "high": high, "p": test.pvalue}
    for row, corrected in zip(found.values(), holm([row["p"] for row in found.values()]), strict=True):
        row["holm"] = corrected
    return found


def verdict(gap: dict[str, dict[str, float]], families: dict[str, dict[str, float]]) -> str:
    """The verdict by the rule."""
    finer = [arm for arm in FINER if arm in gap]
    more = [arm for arm in finer if gap[arm]["gap"] > 0 and gap[arm]["holm"] < 0.05]
    less = [arm for arm in finer if families[arm]["gap"] < 0 and families[arm]["holm"] < 0.05]
    if len(more) >= 2 or len(less) >= 2:
        return f"holds: larger gap {more}, worse on other families {less}"
    if finer and all(gap[arm]["high"] < 0.03 and families[arm]["low"] > -0.03 for arm in finer):
        return "does not hold: no arm's gap is 3 points larger, none is 3 points worse on other families"
    return "cannot tell"


def report(rows: list[dict[str, Any]], start: dict[str, float]) -> None:
    """Print a table of the arms, one of the differences, the verdict and JSON."""
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    print(f"| arm | n | {' | '.join(SHOWN)} | kl per gain |\n" + "|---" * (len(SHOWN) + 3) + "|")
    print(f"| start | 1 | {' | '.join(f'{start[name]:.3f}' for name in SHOWN)} | |")
    for arm in arms:
        own = [row for row in rows if row["arm"] == arm]
        cells = [f"{np.mean(v):.3f} ± {stats.sem(v):.3f}" for v in ([row[name] for row in own] for name in SHOWN)]
        gain = np.mean([row["heldout"] for row in own]) - start["heldout"]
        print(f"| {arm} | {len(own)} | {' | '.join(cells)} | {np.mean([row['kl'] for row in own]) / gain:.1f} |")
    tables = {name: compared(rows, name) for name in SHOWN}
    print("\n| arm less outcome | " + " | ".join(SHOWN[:5]) + " |\n" + "|---" * 6 + "|")
    for arm in tables["kl"]:
        cells = [f"{row['gap']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]{' *' if row['holm'] < 0.05 else ''}"
                 for row in (tables[name][arm] for name in SHOWN[:5])]  # fmt: skip
        print(f"| {arm} | {' | '.join(cells)} |")
    answer = verdict(tables["gap"], tables["families"])
    drift = [arm for arm, row in tables["kl"].items() if row["gap"] > 0 and row["holm"] < 0.05]
    print(f"verdict: {answer}; drifts more than outcome: {drift}")
    print(dumps({"verdict": answer, "drifts more": drift, "tables": tables, "start": start}))


def main() -> None:
    """Measure the models that are missing, then report."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--trained", type=Path, required=True, help="folder of credit_training.py")
    flags.add_argument("--out", type=Path, required=True, help="file of the results, a line per model")
    given = flags.parse_args()
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    start = policies.load("tiny")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    known = {row["model"] for row in rows}
    for arm, seed, model in [("start", -1, Path("tiny")), *runs_of(given.trained)]:
        if str(model) not in known:
            rows.append({"arm": arm, "seed": seed, "model": str(model)} | measured(policies.load(str(model)), start))
            with given.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    report([row for row in rows if row["seed"] >= 0], next(row for row in rows if row["seed"] < 0))


if __name__ == "__main__":
    main()
