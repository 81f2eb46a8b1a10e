"""Which correction trains best on stale, rounded or truncated rollouts, and does the gradient's error say so before?

Question Trainings on rollouts of weights that are 0, 1, 4, 16 or 64 optimiser steps old, with no correction, with
         min(ρ_t, 2) and with min(w, 2): is a correction or a shorter interval the cure, and would
         `grposcope offpolicy` have chosen it?
Command  python experiments/offpolicy_training.py --out runs/offpolicy        resumable; --report prints what is there
Method   `tiny` on `arithmetic`, recipe rloo (leave-one-out advantages, no ratio of its own), AdamW at the usual rate,
         held constant: 120 steps of 12 prompts × 8 rollouts, so that all cells draw equally many. Cells: lag × three
         corrections in full (lag 0 once: all ratios are 1); at lag 0 a sampler in bfloat16, in int8 and with top-k 4,
         each under the three. Outcome: pass@1 on 100 held-out problems × 4, the mean of the evaluations at steps 40,
         80 and 120. In each run without a correction, before steps 51 and 101, 48 prompts × 8 rollouts are drawn as
         the run draws and the gradient's error under the three corrections is measured from the model.
Budget   20 cells × 8 seeds = 160 trainings, about 20 s of one core each, under an hour and a quarter in all; seeds are
         the outer loop, so that what is done when time is over is whole seeds. Written before the first run.
Test     Paired by seed: outcome with a correction less outcome without, t intervals, p-values by Holm over the cells.
Verdict  In a cell a correction helps (harms) if it gains more (less) than 0 with Holm p < 0.05; else no difference is
         seen. Staleness costs if the outcome at a lag is below that at lag 0, likewise. The instrument agrees with a
         cell where one helps if the commonest choice of its measurements is that one, and disagrees if it is another;
         where none helps it agrees unless it chose a correction that harms. "A shorter interval is the cure" if at a
         lag that costs, a fourth of the lag regains more than the better correction does, in the mean over seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from scipy import stats

from grposcope.core.files import write_json
from grposcope.instruments.offpolicy import error, estimates
from grposcope.instruments.offpolicy.answer import _tail
from grposcope.lab.objectives import corrections as on_batches
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.train.allocate import Allocated, RolloutAllocation
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.maths.corrections import named
from grposcope.maths.holm import holm
from grposcope.maths.importance import exp

CORRECTIONS = ("none", "token_cap:2", "sequence_cap:2")
LAGS = (0, 1, 4, 16, 64)
SAMPLERS: dict[str, dict[str, Any]] = {
    "bfloat16": {"sampler_precision": "bfloat16"}, "int8": {"sampler_precision": "int8"}, "top-k 4": {"top_k": 4},
}  # fmt: skip
MEASURED, FRESH = (50, 100), 10_000_000
"""Batches drawn when the gradient's error is measured, and where in the data its prompts begin."""

BATCHES = 4
"""Batches of the run's size that one measurement pools."""

CELLS: dict[str, tuple[dict[str, Any], str]] = {
    **{f"lag {lag}, {name}": ({"staleness": str(lag)}, name) for lag in LAGS for name in CORRECTIONS
       if lag or name == "none"},
    **{f"{sampler}, {name}": (given, name) for sampler, given in SAMPLERS.items() for name in CORRECTIONS
       if sampler != "bfloat16" or name == "none"},
}  # fmt: skip
"""Cell -> the settings of its sampler, and its correction."""


class Measuring(RolloutAllocation):
    """Draws as the run's settings say, and measures the gradient's error at MEASURED."""

    def __init__(self, setup: Any, state: Any, measured: list[dict[str, Any]]):
        super().__init__(setup, state)
        self.batches, self.measured = 0, measured

    def draw(self, position: int) -> Allocated:
        """The batch at `position`; a measurement draws from streams of its own, so that the run stays the same."""
        if self.batches in MEASURED:
            self.measured.append({"step": self.batches + 1} | self.errors())
        self.batches += 1
        return super().draw(position)

    def errors(self) -> dict[str, Any]:
        """Rollouts needed under each correction against none, and which is chosen, of batches drawn as the run does."""
        setup, config = self.setup, self.config
        products, weights, advantages, norms, beyond = [], [], [], [], Counter[str]()
        used = [named(name) for name in CORRECTIONS]
        for number in range(BATCHES):
            rollouts = setup.collect(config.seed, FRESH + number * config.prompts).rollouts
            if not (rollouts.rewards != rollouts.rewards[:, :1]).any():
                continue
            own = frozen_logprobs(setup.policy.model, rollouts, config.temperature, setup.micro_batch)
            ratios = on_batches.ratios(own, rollouts.logp, rollouts.mask)
            found = estimates.measure(setup.policy.model, rollouts, ratios, used, config.temperature, check=False)
            products.append(found.products)
            weights.append(exp(ratios.sequence))
            advantages.append(error.leave_one_out(rollouts.rewards.double().numpy()).reshape(-1))
            norms.append(found.norms)
            beyond.update(one.name for one in used if one.beyond(ratios))
        if not products:
            return {"choice": "", "reason": "no group has unequal rewards"}
        joined = [np.concatenate(each) for each in (weights, advantages, norms)]
        known = ~np.isnan(joined[2])
        k = _tail(*(each[known] for each in joined))
        errors = {
            one.name: error.measure(error.pooled([each[one.name] for each in products]), k, one.name in beyond)
            for one in used
        }
        choice = error.choose(errors, k)
        needs = {name: one.need.value / errors["none"].need.value for name, one in errors.items()}
        return {"k": k, "needs": needs, **asdict(choice)}


def one(cell: str, seed: int, out: Path) -> dict[str, Any]:
    """The result of one run, trained unless an earlier call left its file."""
    path = out / f"{cell.replace(' ', '').replace(',', '-').replace(':', '')}-{seed}.json"
    if not path.exists():
        sampler, name = CELLS[cell]
        measured: list[dict[str, Any]] = []
        folder = out / "runs" / path.stem
        while folder.exists():
            folder = folder.with_name(folder.name + "-again")
        config = TrainConfig(
            recipe="rloo", steps=120, prompts=12, group=8, seed=seed, out=str(folder), schedule="constant", warmup=10,
            eval_every=40, eval_problems=100, threads=1, checkpoint_every=0, rollouts_every=0, correction=name,
        )  # fmt: skip
        outcome = train(
            replace(config, **sampler),
            (lambda setup, state: Measuring(setup, state, measured)) if name == "none" else RolloutAllocation,
        )
        curve = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
        write_json(path, {
            "cell": cell, "seed": seed, "seconds": outcome.seconds, "measured": measured,
            "curve": [[row["step"], row["pass@1"]["value"]] for row in curve],
        })  # fmt: skip
    result: dict[str, Any] = json.loads(path.read_text())
    return result | {"outcome": float(np.mean([value for step, value in result["curve"] if step]))}


def compared(results: dict[tuple[str, int], float], pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Outcome of the first cell of each pair less that of the second, paired by seed, with Holm's correction."""
    rows: list[dict[str, Any]] = []
    for cell, base in pairs:
        seeds = sorted(seed for name, seed in results if name == cell and (base, seed) in results)
        gains = np.array([results[cell, seed] - results[base, seed] for seed in seeds])
        if len(gains) < 2:
            continue
        test = stats.ttest_1samp(gains, 0.0)
        low, high = test.confidence_interval(0.95)
        rows.append({"cell": cell, "base": base, "n": len(seeds), "gain": gains.mean(), "low": low, "high": high,
                     "p": float(test.pvalue)})  # fmt: skip
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["holm"] = p
    return rows


def report(found: list[dict[str, Any]]) -> None:
    """Print outcomes, comparisons, what was measured, and the verdicts."""
    results = {(row["cell"], row["seed"]): row["outcome"] for row in found}
    print(f"{len(found)} trainings of {8 * len(CELLS)}\n\n| cell | n | mean pass@1 | at the end |\n|---|---|---|---|")
    for cell in CELLS:
        of = [row for row in found if row["cell"] == cell]
        if of:
            values, ends = np.array([row["outcome"] for row in of]), np.array([row["curve"][-1][1] for row in of])
            print(f"| {cell} | {len(of)} | {values.mean():.3f} ± {stats.sem(values) if len(of) > 1 else math.nan:.3f} "
                  f"| {ends.mean():.3f} |")  # fmt: skip
    samplers = [*(f"lag {lag}" for lag in LAGS if lag), "int8", "top-k 4"]
    helped = compared(results, [(f"{s}, {name}", f"{s}, none") for s in samplers for name in CORRECTIONS[1:]])
    cost = compared(results, [(f"{s}, none", "lag 0, none") for s in (*samplers, "bfloat16")])
    for title, rows in (("correction less none", helped), ("sampler less lag 0, no correction", cost)):
        print(f"\n| {title} | n | gain | 95 % | Holm p |\n|---|---|---|---|---|")
        for row in rows:
            print(f"| {row['cell']} | {row['n']} | {row['gain']:+.3f} | {row['low']:+.3f} to {row['high']:+.3f} "
                  f"| {row['holm']:.3f} |")  # fmt: skip
    print("\n| sampler | before step | choices | rollouts needed ÷ none: token cap, sequence cap | median k̂ |\n"
          "|---|---|---|---|---|")  # fmt: skip
    for sampler in ("lag 0", *samplers, "bfloat16"):
        for step in MEASURED:
            at = [one for row in found if row["cell"] == f"{sampler}, none" for one in row["measured"]
                  if one["step"] == step + 1]  # fmt: skip
            needs = [[float(one["needs"][name]) for one in at if "needs" in one] for name in CORRECTIONS[1:]]
            chosen = Counter(one["name"] if one.get("name") else "cannot tell" for one in at)
            medians = ", ".join(f"{np.nanmedian(values):.2f}" if values else "–" for values in needs)
            tails = [float(one["k"]) for one in at if "k" in one]
            choices = ", ".join(f"{name} {n}" for name, n in chosen.most_common())
            print(f"| {sampler} | {step + 1} | {choices} | {medians} "
                  f"| {np.nanmedian(tails) if tails else math.nan:.2f} |")  # fmt: skip
    verdicts(found, helped, cost)


def verdicts(found: list[dict[str, Any]], helped: list[dict[str, Any]], cost: list[dict[str, Any]]) -> None:
    """Print what the rules in the head of this file make of it."""
    print()
    for base in dict.fromkeys(row["base"] for row in helped):
        own = [row for row in helped if row["base"] == base]
        better = [row["cell"].split(", ")[1] for row in own if row["holm"] < 0.05 and row["gain"] > 0]
        worse = [row["cell"].split(", ")[1] for row in own if row["holm"] < 0.05 and row["gain"] < 0]
        chosen = Counter(
            one["name"] for row in found if row["cell"] == base for one in row["measured"] if one.get("name")
        )
        said = chosen.most_common(1)[0][0] if chosen else "cannot tell"
        agrees = said in better if better and chosen else said not in worse if chosen else None
        word = "cannot tell" if agrees is None else "agrees" if agrees else "disagrees"
        print(f"- {base}: helps {better or 'nothing'}, harms {worse or 'nothing'}; the instrument says {said}: {word}")
    outcomes = {cell: np.mean([row["outcome"] for row in found if row["cell"] == cell]) for cell in CELLS
                if any(row["cell"] == cell for row in found)}  # fmt: skip
    for row in cost:
        lag = row["cell"].split(",")[0].removeprefix("lag ")
        if row["holm"] < 0.05 and row["gain"] < 0 and lag in ("4", "16", "64"):
            shorter = outcomes[f"lag {int(lag) // 4}, none"] - outcomes[row["cell"]]
            better = max(outcomes[f"lag {lag}, {name}"] for name in CORRECTIONS[1:]) - outcomes[row["cell"]]
            cure = "a shorter interval" if shorter > better else "a correction"
            print(f"- lag {lag} costs {-row['gain']:.3f}: a fourth of it regains {shorter:+.3f}, the better correction "
                  f"{better:+.3f}: {cure} is the cure")  # fmt: skip


def main() -> None:
    """Run what is missing, then print the tables of what is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(8)))
    parser.add_argument("--report", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if not arguments.report:
        for seed in arguments.seeds:
            for cell in CELLS:
                one(cell, seed, arguments.out)
    found = [json.loads(path.read_text()) for path in sorted(arguments.out.glob("*.json"))]
    report([one(row["cell"], row["seed"], arguments.out) for row in found])


if __name__ == "__main__":
    main()
