"""Experiment B: does finer credit train better at equal generated tokens?

`tiny` on arithmetic, leave-one-out advantages (RLOO) where a source spreads one, constant learning rate. An arm is a
source of credit; every arm trains until it has generated the same number of tokens, those of continuations and of
replaced groups included and what the leaves of a tree share counted once. The oracle's continuations are not charged:
it says what credit could be worth, not what can be bought. Eight seeds an arm, paired, since runs of one seed see the
same problems; the learning rate of each arm is the best of three by the primary outcome on two other seeds. (At 8e-4,
which was tried first, outcome and prefix credit collapse to a held-out accuracy below 0.03.)

    primary    area under held-out pass@1 over generated tokens, trapezoids up to the budget, divided by the budget
    beside it  pass@1 and pass@8 at the budget, entropy and dead groups over the last fifth, seconds

The rule, written before the first run. For each purchasable arm the paired differences of the area to outcome credit
give a t interval and a p value, corrected by Holm over these arms.

    holds          some purchasable arm has a larger area, corrected p < 0.05
    does not hold  the 95 % upper limit of every purchasable arm is below +5 % of outcome's area
    cannot tell    otherwise; the seeds that the best arm would take are printed

Of the controls: if the oracle's interval contains 0 or lies below it, credit is not the bottleneck at this horizon. If
it lies above and no purchasable arm's does, nothing that can be bought pays here. If the placebo of an arm is not below
the arm itself (paired interval), the gain is not one of credit. (The placebo of steps was added after the first seeds
had shown steps ahead: labels of steps are further rewards, so it tells whether these or their places make the gain.
The token baseline was added when the frozen frontier had turned out to name it, of what costs nothing, the best.)
The prediction of `experiments/credit_frozen.py`, its
ranking of the arms by gradient error × tokens, is compared by Spearman's rank correlation, interval by bootstrap over
seeds; it has to be written to a file before the first run here and is read with `--frontier`.

A second horizon: sums of six operations, from a `tiny` that a lesson of 300 batches brought to 0.16 on them
(`credit_frozen.py --only 6 --batches 300`), eight seeds, the same rule. Its first run, outcome credit at the rate tuned
for three operations, fell from 0.17 to 0.04, so rates are tuned anew, 5e-5, 1e-4 and 2e-4 on seed 100. Six operations
take four times the time, and the oracle ten: decided before any result, the budget is 200,000 tokens, the arms are
outcome, steps and, with 8 continuations and tuned at 5e-5 alone, the oracle; others as there is time.

    python experiments/credit_training.py --out FOLDER --stage tune        48 runs; resumable
    python experiments/credit_training.py --out FOLDER --stage train       64 runs; resumable
    python experiments/credit_training.py --out FOLDER --stage report      tables, verdict and JSON, no training
         --arms NAME …, --seeds N …, --minutes M      some of the runs, and start none after M minutes
         --task arithmetic:steps=6 --model FOLDER --rates 5e-5 1e-4 2e-4 --tuning-seeds 100      the second horizon:
         --budget 200000 --oracle 8 --partly-tuned
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import altair as alt
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from grposcope.core.files import dumps, write_json
from grposcope.lab.train.config import TrainConfig
from grposcope.maths.holm import holm
from grposcope.render import charts as base
from grposcope.render.charts import export

ARMS = {
    "outcome": "outcome",
    "prefix": "prefix",
    "steps": "steps",
    "tree": "tree:widths=2x2x2,at=step",
    "continuations": "continuations:k=2,at=step",
    "value": "value",
    "placebo": "placebo:of=tree:widths=2x2x2,at=step",
    "oracle": "oracle:k=K,at=step",
    "steps_placebo": "placebo:of=steps",
    "token_baseline": "token_baseline",
}
"""Name -> credit. All have groups of 8; the oracle's K is that of --oracle."""

PURCHASABLE = ("prefix", "steps", "tree", "continuations", "value", "token_baseline")
PLACEBOS = {"tree": "placebo", "steps": "steps_placebo"}
RATES = (1e-4, 2e-4, 4e-4)
TUNING_SEEDS, SEEDS = (100, 101), tuple(range(8))
SETTINGS = TrainConfig(
    model="tiny", task="arithmetic", recipe="rloo", prompts=16, group=8, schedule="constant", warmup=5,
    eval_every=10, eval_problems=200, eval_samples=8, checkpoint_every=1000, keep_checkpoints=1, rollouts_every=0,
    threads=1,
)  # fmt: skip


def run(arm: str, rate: float, seed: int, budget: int, folder: Path, settings: TrainConfig) -> dict:
    """The curve of one run up to the budget, trained or gone on with until it has it."""
    from grposcope.lab.train import loop

    path = outcome_of(folder)
    if path.exists():
        return json.loads(path.read_text())
    config = replace(
        settings, credit=settings.credit if arm == "oracle" else ARMS[arm], lr=rate, seed=seed, out=str(folder)
    )
    if not (folder / "summary.json").exists():
        shutil.rmtree(folder, ignore_errors=True)  # a run that was killed is made again
        loop.train(replace(config, steps=20))
    while (spent := np.cumsum([row["tokens_generated"] for row in lines(folder / "steps.jsonl")]))[-1] < budget:
        steps = math.ceil(1.05 * budget / spent[-1] * len(spent) / 5) * 5
        loop.resume(folder, {"steps": max(steps, len(spent) + 5)})
    result = curve_of(folder, budget) | {"arm": arm, "rate": rate, "seed": seed}
    write_json(path, result)
    return result


def outcome_of(folder: Path) -> Path:
    """Where the result of the run in that folder is; a rate in its name has a point, which is no suffix."""
    return folder.parent / f"{folder.name}.json"


def curve_of(folder: Path, budget: int) -> dict:
    """Held-out scores over generated tokens, and the outcomes at the budget."""
    rows, evaluations = lines(folder / "steps.jsonl"), lines(folder / "evals.jsonl")
    spent = np.concatenate([[0], np.cumsum([row["tokens_generated"] for row in rows])])
    tokens = np.array([spent[e["step"]] for e in evaluations], float)
    within = [row for row, at in zip(rows, spent[1:], strict=True) if at <= budget]
    last = within[-max(len(within) // 5, 1) :]
    seconds = sum(row["seconds_sample"] + row["seconds_grade"] + row["seconds_update"] for row in within)
    scores = {k: np.array([e[f"pass@{k}"]["value"] for e in evaluations]) for k in (1, 8)}
    return {
        "tokens": tokens.tolist(),
        "pass@1": scores[1].tolist(),
        "area": area(tokens, scores[1], budget),
        "final": float(np.interp(budget, tokens, scores[1])),
        "final@8": float(np.interp(budget, tokens, scores[8])),
        "entropy": float(np.mean([row["entropy"] for row in last])),
        "dead": float(np.mean([row["dead_fraction"] for row in last])),
        "steps": len(within),
        "seconds": seconds,
    }


def lines(path: Path) -> list[dict]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def area(tokens: NDArray, scores: NDArray, budget: float) -> float:
    """Mean height of the curve from 0 to the budget, by trapezoids; the curve must reach the budget."""
    if tokens[-1] < budget:
        raise ValueError(f"the curve ends at {tokens[-1]:g} tokens, before the budget of {budget:g}")
    inside = tokens < budget
    x = np.append(tokens[inside], budget)
    y = np.append(scores[inside], np.interp(budget, tokens, scores))
    return float(np.trapezoid(y, x) / budget)


def paired(mine: NDArray, other: NDArray) -> dict:
    """Mean difference with its 95 % t interval and p value, seed by seed."""
    gains = mine - other
    test = stats.ttest_1samp(gains, 0.0)
    low, high = test.confidence_interval(0.95)
    return {"n": len(gains), "gain": float(gains.mean()), "low": float(low), "high": float(high),
            "sd": float(gains.std(ddof=1)), "p": float(test.pvalue)}  # fmt: skip


def seeds_needed(gain: float, sd: float, comparisons: int) -> float:
    """Seeds at which a difference as large as the one seen is found with power 0.8, Bonferroni for the comparisons."""
    if gain <= 0:
        return math.inf
    z = stats.norm.isf(0.025 / comparisons) + stats.norm.isf(0.2)
    return math.ceil((z * sd / gain) ** 2) + 1


def verdict(rows: dict[str, dict], base: float) -> str:
    """The verdict by the rule from the comparisons of the purchasable arms; base: outcome's area."""
    bought = {name: rows[name] for name in PURCHASABLE if name in rows}
    better = [name for name, row in bought.items() if row["gain"] > 0 and row["holm"] < 0.05]
    if better:
        return f"holds: {', '.join(better)} above outcome credit"
    if all(row["high"] < 0.05 * base for row in bought.values()):
        return "does not hold: every upper limit is below +5 % of outcome's area"
    best = max(bought, key=lambda name: bought[name]["gain"])
    needed = seeds_needed(bought[best]["gain"], bought[best]["sd"], len(bought))
    return f"cannot tell: the best, {best}, would take about {needed:g} seeds"


def agreement(results: dict[str, list[dict]], frontier: Path) -> dict:
    """Spearman's correlation of the frozen ranking, {arm: MSE × tokens over outcome's}, with the areas."""
    predicted = json.loads(frontier.read_text())
    arms = [arm for arm in results if arm in predicted and arm != "outcome"]
    areas = np.array([[r["area"] for r in results[arm]] for arm in arms])
    against = -np.array([predicted[arm] for arm in arms])
    generator = np.random.default_rng(0)
    draws = [areas[:, generator.integers(areas.shape[1], size=areas.shape[1])].mean(1) for _ in range(2000)]
    spread = [stats.spearmanr(against, draw).statistic for draw in draws]
    low, high = np.nanquantile(spread, [0.025, 0.975])
    value = stats.spearmanr(against, areas.mean(1)).statistic
    return {"arms": arms, "spearman": float(value), "low": float(low), "high": float(high)}


def picture(results: dict[str, list[dict]], folder: Path) -> None:
    """Held-out pass@1 over generated tokens, mean over seeds, as credit_training.png in the folder."""
    rows: dict[str, list] = {"tokens": [], "pass": [], "arm": []}
    for arm, own in results.items():
        grid = np.linspace(0, min(min(r["tokens"][-1] for r in own), max(own[0]["tokens"])), 31)
        mean = np.mean([np.interp(grid, r["tokens"], r["pass@1"]) for r in own], axis=0)
        rows["tokens"] += (grid / 1000).tolist()
        rows["pass"] += mean.tolist()
        rows["arm"] += [arm] * len(grid)
    shades = {arm: base.colour(index) for index, arm in enumerate(results)}
    lines_ = base.dataset("curves").mark_line().encode(
        x=alt.X("tokens:Q", title="thousand tokens generated"), y=base.share("pass").scale(zero=False),
        color=base.colours("arm", shades, alt.Legend(columns=5)), strokeDash=alt.condition(
            alt.FieldOneOfPredicate("arm", ["placebo", "steps_placebo", "oracle"]), alt.value([4, 3]), alt.value([1, 0])
        ),
    )  # fmt: skip
    title = "Held-out pass@1 by source of credit"
    export([base.figure("credit_training", title, [lines_], {"curves": rows}, height=260)], folder, "png")


def report(results: dict[str, list[dict]], frontier: Path | None) -> None:
    """Print tables, verdict and JSON."""
    print("| arm | learning rate | n | area | pass@1 | pass@8 | entropy | dead groups | steps | seconds |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for arm, own in results.items():
        shown = [f"{np.mean([r[k] for r in own]):.3f} ± {stats.sem([r[k] for r in own]):.3f}"
                 for k in ("area", "final", "final@8", "entropy", "dead")]  # fmt: skip
        steps, seconds = (np.mean([r[k] for r in own]) for k in ("steps", "seconds"))
        print(f"| {arm} | {own[0]['rate']:g} | {len(own)} | {' | '.join(shown)} | {steps:.0f} | {seconds:.0f} |")
    areas = {arm: {r["seed"]: r["area"] for r in own} for arm, own in results.items()}

    def against(mine: str, other: str) -> dict:
        seeds = sorted(areas[mine].keys() & areas[other].keys())
        return paired(np.array([areas[mine][s] for s in seeds]), np.array([areas[other][s] for s in seeds]))

    rows = {arm: against(arm, "outcome") for arm in results if arm != "outcome"}
    bought = [arm for arm in rows if arm in PURCHASABLE]
    corrected = dict(zip(bought, holm([rows[arm]["p"] for arm in bought]), strict=True))
    base = float(np.mean(list(areas["outcome"].values())))
    print(f"\n| arm less outcome (area {base:.3f}) | n | difference [95 %] | of outcome's | p | Holm |")
    print("|---|---|---|---|---|---|")
    for arm, row in rows.items():
        row["holm"] = corrected.get(arm, math.nan)
        print(f"| {arm} | {row['n']} | {row['gain']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}] | "
              f"{row['gain'] / base:+.1%} [{row['low'] / base:+.1%}, {row['high'] / base:+.1%}] | {row['p']:.3f} | "
              f"{row['holm']:.3f} |")  # fmt: skip
    answer = verdict(rows, base)
    print(f"verdict: {answer}")
    found: dict = {"verdict": answer, "comparisons": rows, "results": results}
    for arm, placebo in PLACEBOS.items():
        if {arm, placebo} <= areas.keys():
            found[f"{arm} less its placebo"] = row = against(arm, placebo)
            print(f"{arm} less its placebo: {row['gain']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]")
    if frontier is not None:
        found["agreement"] = row = agreement(results, frontier)
        print(f"frozen ranking against trained areas: {row['spearman']:.2f} [{row['low']:.2f}, {row['high']:.2f}]")
    print(dumps(found))


def main() -> None:
    """Train what is missing, or report on what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stage", choices=("tune", "train", "report"), required=True)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--budget", type=int, default=150_000, help="generated tokens a run")
    parser.add_argument("--oracle", type=int, default=16, help="continuations per boundary of the oracle")
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES), help="learning rates to choose from")
    parser.add_argument("--tuning-seeds", type=int, nargs="+", default=list(TUNING_SEEDS))
    parser.add_argument("--partly-tuned", action="store_true", help="choose among the rates whose tuning is there")
    parser.add_argument("--tuned", type=Path, help="folder whose tuning runs choose the rates (default: --out)")
    parser.add_argument("--task", default=SETTINGS.task)
    parser.add_argument("--model", default=SETTINGS.model)
    parser.add_argument("--frontier", type=Path, help="JSON, arm -> MSE × tokens over outcome's, written before")
    parser.add_argument("--pictures", type=Path, help="folder for the curves, with the report")
    given = parser.parse_args()
    oracle = f"oracle:k={given.oracle},at=step"
    settings = replace(SETTINGS, task=given.task, model=given.model, credit=oracle)
    given.out.mkdir(parents=True, exist_ok=True)
    began, chosen_in = time.monotonic(), given.tuned or given.out

    def result(arm: str, rate: float, seed: int) -> dict | None:
        folder = given.out / f"{arm}-{rate:g}-{seed}"
        if given.stage == "report" or time.monotonic() - began > 60 * given.minutes:
            return _there(given.out, arm, rate, seed)
        return run(arm, rate, seed, given.budget, folder, settings)

    best = {}
    for arm in given.arms:
        areas: dict[float, float] = {}
        for rate in given.rates:
            found = [result(arm, rate, seed) if given.stage == "tune" else _there(chosen_in, arm, rate, seed)
                     for seed in given.tuning_seeds]  # fmt: skip
            if all(one is not None for one in found):
                areas[rate] = float(np.mean([one["area"] for one in found if one]))
        if areas and (given.partly_tuned or len(areas) == len(given.rates)):
            best[arm] = max(areas, key=areas.__getitem__)
            print(f"{arm}: learning rate {best[arm]:g} of "
                  + ", ".join(f"{rate:g} ({value:.3f})" for rate, value in areas.items()), flush=True)  # fmt: skip
        else:
            print(f"{arm}: not tuned yet", flush=True)
    if given.stage == "tune":
        return
    results: dict[str, list[dict]] = {}
    for seed in given.seeds:
        for arm, rate in best.items():
            if (found := result(arm, rate, seed)) is not None:
                results.setdefault(arm, []).append(found)
    if given.stage == "report":
        report(results, given.frontier)
        if given.pictures is not None:
            picture(results, given.pictures)


def _there(out: Path, arm: str, rate: float, seed: int) -> dict | None:
    """The result of a run that has ended, or None."""
    path = outcome_of(out / f"{arm}-{rate:g}-{seed}")
    return json.loads(path.read_text()) if path.exists() else None


if __name__ == "__main__":
    main()
