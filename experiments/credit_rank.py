"""Does credit that differs by token raise the rank of the gradient, and is it the rank or the variance that matters?

    python experiments/credit_rank.py --out runs/credit_rank.jsonl               resumable, a line per set of prompts
         --pool POOL         beside the errors of a pool that credit_calibration.py drew
         --trained FOLDER    and the areas of credit_training.py

Claim ([PG]): the gradient is of rank about 2 since all tokens of a rollout have one advantage; finer credit, such as
that of PPO's critic, would raise the rank and so help. Method: `tiny` on `arithmetic`, 12 sets of 8 prompts × 8
rollouts (seeds 2000 …), on each the layer gradients (28 matrices) under outcome credit, merged rollouts, rewards of
steps, 16 continuations per boundary (`oracle`), 2 of them, a critic that has learned from 30 other batches (λ = 0.95
and 1), a tree of the same prompts, and placebos of oracle and tree: the same credit on other tokens of the same
rollout. The ranks are those of the whole matrix, and of the matrix without the mean activation ā, G − (Σ w b) āᵀ;
means over layers. Only groups with unequal rewards are taken, so that credit on the same rollouts has the same groups.

The rule, written before the first run; since 12 sets left most verdicts open, 36 others (--first 2100 --sets 36) were
measured under the same rule, and are told beside them. Differences from outcome credit are paired by set; t test, Holm
over sources.
  (1) A source raises (lowers) the rank where the difference of the stable rank is above (below) 0, corrected p < 0.05;
      it leaves it where the 95 % interval lies inside ±0.15; else cannot tell. With and without the mean activation.
  (2) Rank by itself is not what matters if some source raises it while its saving (error × tokens of outcome credit
      over its own) has a 95 % interval below 1, or if oracle has a saving above 1 and does not raise it by (1). It goes
      with what matters if Spearman's correlation over sources of the difference of rank with the log of the saving has
      a 95 % interval above 0 (resampled sets, and savings drawn by their standard errors); else cannot tell.
      Correlations of either with the trained areas are told beside it where runs are given.
  (3) PPO's critic raises the rank if `value` does by (1).
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
from credit_calibration import TREE, Pool, critic_of
from numpy.typing import NDArray
from scipy import stats

from grposcope.core.files import dumps
from grposcope.instruments.credit.frontier import CreditBudget, _collected
from grposcope.instruments.gradient import backward, spectrum
from grposcope.instruments.gradient.score import Score
from grposcope.lab import credit, policies
from grposcope.lab.credit import placebo
from grposcope.lab.objectives import advantages, recipes
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.maths.holm import holm

SETS, FIRST, PROMPTS, GROUP = 12, 2000, 8, 8
RANKS = ("stable", "participation", "energy_90")
MARGIN = 0.15
ARMS = {"tree": TREE, "continuations": "continuations:k=2", "placebo": f"placebo:of={TREE}"}
"""Names of the arms of credit_training.py that differ from those here."""

Ranks = dict[str, dict[str, float]]
"""Source -> rank, with "less mean, " before those without the mean activation -> mean over layers."""


def ranks_of(attached: backward.AttachedModel, rollouts: RolloutBatch, weights: torch.Tensor) -> dict[str, float]:
    """Mean ranks of the layer gradients of Σ w log π, as they are and without the mean activation."""
    found: dict[str, list[float]] = {}

    def visit(score: Score) -> None:
        if score.kind != "linear" or len(score.uses) > 1:
            return
        b, a = score.uses[0].rows, score.uses[0].columns
        gradient = score.dense().sum(0)
        live = (b != 0).any(-1)
        without = gradient - torch.outer(b.sum((0, 1)), a[live].mean(0))
        for prefix, matrix in (("", gradient), ("less mean, ", without)):
            for name, value in spectrum.exact(matrix).ranks().items():
                if name in RANKS:
                    found.setdefault(prefix + name, []).append(value)

    attached.stream(rollouts, visit, weights.float())
    return {name: float(np.mean(values)) for name, values in found.items()} | {"layers": len(found["stable"])}


def measured(policy: policies.Policy, task: Arithmetic, critic: Any, seed: int) -> Ranks:
    """Ranks by source of one set of prompts."""
    budget = CreditBudget(PROMPTS, GROUP, 16, 16, True, (2,), ("2x2x2",))
    batch = _collected(policy, task, budget, Sampling(task.max_tokens), seed, quiet=True)
    rollouts, shown = critic(batch.rollouts), batch.found.shown
    given = {name: shown[name] for name in ("outcome", "prefix", "steps", "continuations:k=2")}
    assert batch.values is not None
    given["oracle"] = batch.values.of(slice(0, 16), rollouts)[1]
    for name in ("value", "value:lambda=1"):
        given[name] = credit.chosen(name).assign(recipes.RLOO, rollouts)
    given["placebo:of=oracle"] = placebo.permuted(given["oracle"], rollouts.tokens, rollouts.mask)
    pairs = {name: (batch.rollouts, one) for name, one in given.items()}
    tree = batch.found.trees[TREE]
    leaves = tree.rollouts.each(lambda name, array: array.clone())  # the sampler's take no part in a backward pass
    pairs[TREE] = leaves, tree.credit
    pairs[f"placebo:of={TREE}"] = leaves, placebo.permuted(tree.credit, leaves.tokens, leaves.mask)
    attached = backward.attach(policy.model, batch.rollouts, 1.0)
    found: Ranks = {}
    for name, (some, weights) in pairs.items():
        dead = advantages.dead(some.rewards).repeat_interleave(GROUP)[:, None]
        found[name] = ranks_of(attached, some, weights.masked_fill(dead, 0.0))
    return found


def compared(sets: list[Ranks], rank: str) -> dict[str, dict[str, Any]]:
    """By source, the paired difference of a rank from outcome credit, its interval, p by Holm, and verdict (1)."""
    rows: dict[str, dict[str, Any]] = {}
    for name in sets[0]:
        if name != "outcome":
            gaps = np.array([one[name][rank] - one["outcome"][rank] for one in sets])
            test = stats.ttest_1samp(gaps, 0.0)
            low, high = test.confidence_interval(0.95)
            rows[name] = {"gap": gaps.mean(), "low": low, "high": high, "p": test.pvalue, "n": len(gaps)}
    for row, corrected in zip(rows.values(), holm([row["p"] for row in rows.values()]), strict=True):
        told = "raises" if row["gap"] > 0 else "lowers"
        inside = max(-row["low"], row["high"]) < MARGIN
        row["holm"] = corrected
        row["verdict"] = told if corrected < 0.05 else "leaves" if inside else "cannot tell"
    return rows


def correlation(sets: list[Ranks], rank: str, savings: dict[str, tuple[float, float]]) -> dict[str, float]:
    """Spearman's correlation over sources of the difference of rank with the log of the saving, and its interval."""
    names = [name for name in sets[0] if name in savings]
    gaps = np.array([[one[name][rank] - one["outcome"][rank] for name in names] for one in sets])
    logs, errors = np.array([savings[name] for name in names]).T
    rng = np.random.default_rng(0)
    draws = [
        _spearman(gaps[rng.integers(len(gaps), size=len(gaps))].mean(0), logs + errors * rng.normal(size=len(logs)))
        for _ in range(2000)
    ]
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return {"n": len(names), "spearman": _spearman(gaps.mean(0), logs), "low": low, "high": high}


def with_areas(sets: list[Ranks], savings: dict[str, tuple[float, float]], folder: Path) -> dict[str, Any]:
    """Spearman's correlations of trained areas with ranks and with savings, resampled over seeds."""
    areas: dict[str, dict[int, float]] = {}
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    rates = {
        arm: {one["rate"] for one in runs if one["arm"] == arm and one["seed"] < 100} for arm in ARMS | _same(runs)
    }
    for one in runs:
        if one["seed"] < 100 and rates.get(one["arm"]) == {one["rate"]}:
            areas.setdefault(ARMS.get(one["arm"], one["arm"]), {})[one["seed"]] = one["area"]
    names = [name for name in areas if name in savings and name in sets[0]]
    seeds = sorted(set.intersection(*(set(areas[name]) for name in names))) if names else []
    if len(names) < 4 or len(seeds) < 3:
        return {"arms": names, "seeds": len(seeds)}
    table = np.array([[areas[name][seed] for name in names] for seed in seeds])
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {"arms": names, "seeds": len(seeds)}
    gaps = {rank: np.array([np.mean([one[name][rank] for one in sets]) for name in names])
            for rank in ("stable", "less mean, stable")}  # fmt: skip
    for label, values in (gaps | {"saving": np.array([savings[name][0] for name in names])}).items():
        draws = [_spearman(values, table[rng.integers(len(seeds), size=len(seeds))].mean(0)) for _ in range(2000)]
        low, high = np.nanquantile(draws, [0.025, 0.975])
        found[label] = {"spearman": _spearman(values, table.mean(0)), "low": low, "high": high}
    return found


def _same(runs: list[dict[str, Any]]) -> dict[str, str]:
    return {one["arm"]: one["arm"] for one in runs}


def _spearman(one: NDArray, other: NDArray) -> float:
    return float(stats.spearmanr(one, other).statistic)


def report(sets: list[Ranks], pool: Path | None, trained: Path | None) -> None:
    """Print the table, the verdicts and a line of JSON."""
    tables = {rank: compared(sets, rank) for rank in ("stable", "less mean, stable")}
    heads = (*RANKS, *(f"{r} less mean" for r in RANKS), "stable, less outcome", "verdict", "less mean", "verdict")
    print(f"| credit | {' | '.join(heads)} |\n" + "|---" * (len(heads) + 1) + "|")
    for name in sets[0]:
        cells = [_cell([one[name][prefix + rank] for one in sets]) for prefix in ("", "less mean, ") for rank in RANKS]
        for row in (table.get(name) for table in tables.values()):
            cells += ["", ""] if row is None else [
                f"{row['gap']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]", row["verdict"]]  # fmt: skip
        print(f"| {name} | {' | '.join(cells)} |")
    said: dict[str, Any] = {"sets": len(sets), "tables": tables}
    if pool is not None:
        drawn = Pool(pool)
        sources = {one.name: one for one in drawn.measured(np.arange(len(drawn.tokens))).sources}
        savings = {name: (float(np.log(one.saving.value)), one.log_error) for name, one in sources.items()
                   if one.saving.value > 0 and name != "outcome"}  # fmt: skip
        savings.setdefault("outcome", (0.0, 0.0))
        for rank, table in tables.items():
            alone = [name for name, row in table.items()
                     if row["verdict"] == "raises" and name in sources and sources[name].saving.high < 1]  # fmt: skip
            without = sources["oracle"].saving.low > 1 and table["oracle"]["verdict"] != "raises"
            other = correlation(sets, rank, {k: v for k, v in savings.items() if k != "outcome"})
            goes = "goes with what matters" if other["low"] > 0 else "cannot tell"
            verdict = "rank by itself is not what matters" if alone or without else goes
            said[f"matters, {rank}"] = {
                "verdict": verdict, "raised without a saving": alone, "oracle saves without raising": bool(without),
                "over sources": other,
            }  # fmt: skip
            print(f"{rank}: {verdict}; raised by {alone} without a saving; over sources {other}")
        if trained is not None:
            said["trained"] = with_areas(sets, savings, trained)
            print(said["trained"])
    print(dumps(said))


def _cell(values: list[float]) -> str:
    return f"{np.mean(values):.2f} ± {stats.sem(values):.2f}"


def main() -> None:
    """Draw and measure the sets that are missing, then report."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--out", type=Path, required=True, help="file for the ranks, a line per set")
    flags.add_argument("--sets", type=int, default=SETS)
    flags.add_argument("--first", type=int, default=FIRST, help=f"seed of the first set (default: {FIRST})")
    flags.add_argument("--pool", type=Path, help="folder of the pool of credit_calibration.py")
    flags.add_argument("--trained", type=Path, help="folder of credit_training.py")
    given = flags.parse_args()
    torch.set_num_threads(1)
    done = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    if len(done) < given.sets:
        policy, task = policies.load("tiny"), Arithmetic()
        critic = critic_of(policy, task)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        for seed in range(given.first + len(done), given.first + given.sets):
            done.append(measured(policy, task, critic, seed))
            with given.out.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
            print(f"set {seed} done", flush=True)
    report(done[: given.sets], given.pool, given.trained)


if __name__ == "__main__":
    main()
