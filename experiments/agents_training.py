"""Training on a task with turns: does it learn, do calls collapse, and which credit for turns trains best?

    python -m grposcope.lab.train.pretrain --table 150 --out models/weak     # the weak start, 15 s
    python experiments/agents_training.py starts --weak models/weak          # about 10 minutes of one core
    python experiments/agents_training.py summary
    python -m grposcope.lab.train.pretrain --table 200 --out models/weak200
    python experiments/agents_training.py forecast --out runs/agents_credit --weak models/weak200   # then `credit`

The task is `hidden_table` at its defaults, the models `tables` (right four times in ten) and one of 150 batches.
Rules, fixed before the first run with these seeds (one run each with seed 0, to choose sizes, came before and is not
counted: seeds here begin with 1):

`starts`: 8 seeds of each start, GRPO at its defaults, 16 prompts × 8 rollouts; 200 steps of `tables`, 60 of the weak.
* A run *learned* where held-out accuracy at the end is above that of the start by twice its standard error.
* Calls *collapsed* where the mean of turns in the last fifth of the steps is below 1.5, from above 2 in the first ten.
* The task does what it is for if 7 of 8 runs of `tables` learned and none collapsed, 7 of 8 weak ones collapsed, and no
  run of `tables` takes more than 120 s of processor time.
* `diagnose` is right where it names collapsed calls in the runs that collapsed, and in no other.

`credit`: which credit for turns trains best, by which do turns collapse, and did the turn Gram matrix say so before? 8
seeds × 9 credits × two starts, `tables` and one of 200 batches (`pretrain --table 200`): recipe rloo, a constant rate
after 20 steps, 16 prompts × 8 rollouts. Every run goes on until a further batch would lead above 80,000 generated
tokens (`tables`) or 90,000 (weak), those of continuations (k = 1) counted, so that runs are equal but for less than a
batch. Budget: 50 minutes of one core. An earlier form with fixed numbers of steps was stopped half way, since steps
with continuations had generated 11 % more; its runs do not count. Rules:
* The gain of a credit is its held-out pass@1 at the end (100 problems × 4) less that of `turns:rule=broadcast` with the
  same seed; it is *better* or *worse* where a paired t-test, by Holm over the 16 comparisons, has p < 0.05.
* Turns *collapsed* in a run where their mean over the last fifth of its steps is below 1.5.
* `forecast`, made and kept before the first run: 64 batches of each start, `agents_forecast.py` (sizes chosen with 4
  of another seed). A credit is forecast to be better or worse where the 95 % interval of its progress a token, over
  that of broadcast, is wholly above 1.05 or below 0.95, else alike.
* A forecast of better or worse is right where the runs came out so, one of alike where they were neither; *opposite* is
  better for worse or worse for better. The matrix *said so before* at a start where 6 of 8 forecasts are right and none
  is opposite. Spearman's correlation of forecast and gain over the 8 credits is told beside it.
* The forecast is of the first steps: of collapse it says nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agents_forecast import forecast
from scipy.stats import spearmanr, ttest_1samp

from grposcope.faults.judge import diagnose
from grposcope.lab.sampling.evaluate import evaluate
from grposcope.lab.sampling.rollouts import generator
from grposcope.lab.train.allocate import Allocated, RolloutAllocation
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.lab.train.setup import Setup, prepare
from grposcope.logs import read
from grposcope.maths.holm import holm

SEEDS = range(1, 9)

BASE = "turns:rule=broadcast"

CREDITS = (
    BASE, "turns:rule=to-go", "turns:rule=states", "turn_values:form=branches,k=1", "turn_values:form=value,k=1",
    "trainer_turns:rule=own", "trainer_turns:rule=rows", "trainer_turns:rule=survivors", "trainer_turns:rule=gigpo",
)  # fmt: skip

UNBIASED = CREDITS[:5]

BUDGETS = {"tables": 80_000, "weak": 90_000}
"""Tokens that a run of `credit` may generate, by start."""

OF_CREDIT: dict[str, Any] = {
    "task": "hidden_table", "prompts": 16, "recipe": "rloo", "schedule": "constant", "eval_every": 0,
    "eval_problems": 100, "rollouts_every": 0, "checkpoint_every": 0,
}  # fmt: skip
"""Settings of every run of `credit`."""

MOST_STEPS = 1_000
"""Steps that no run of `credit` reaches before its tokens are spent."""

LEVEL = 0.05
"""Adjusted p below which a credit is better or worse."""

BATCHES, FORECAST_SEED = 64, 99
"""Batches of a forecast, and the seed that they are drawn with."""

COLLAPSED, SEVERAL = 1.5, 2.0
"""Mean turns below which calls have collapsed, and above which there were some."""


def processor_seconds() -> float:
    """Processor time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(folder: Path, **settings: Any) -> dict[str, Any]:
    """What a run came to; made now, or read where it was made before."""
    came = folder.with_suffix(".json")
    if not came.exists():
        began = processor_seconds()
        result = train(TrainConfig(task="hidden_table", out=str(folder), prompts=16, **settings))
        steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
        turns = np.array([step["agent/turns"] for step in steps])
        first, last = result.heldout["first"], result.heldout["last"]
        outcome = {
            "first": first.value, "last": last.value, "gain": last.value - first.value,
            "se": float(np.hypot(first.se, last.se)),
            "turns_first": float(turns[:10].mean()), "turns_last": float(turns[-len(turns) // 5 :].mean()),
            "tokens": result.tokens, "seconds": processor_seconds() - began,
            "faults": [each.fault for each in diagnose(read(folder)) if each.status == "present"],
        }  # fmt: skip
        came.write_text(json.dumps(outcome))
    return json.loads(came.read_text())


def starts(out: Path, weak: Path) -> None:
    """8 seeds of each start."""
    for name, model, steps in (("tables", "tables", 200), ("weak", str(weak), 60)):
        for seed in SEEDS:
            came = run(out / f"{name}-{seed}", model=model, steps=steps, seed=seed, checkpoint_every=0)
            print(name, seed, came, flush=True)


class WithinBudget(RolloutAllocation):
    """Batches in turn, until a further one would lead above the tokens that a run may generate."""

    def __init__(self, setup: Setup, state: Mapping[str, Any] | None, budget: int):
        super().__init__(setup, state)
        self.rest = budget

    def draw(self, position: int) -> Allocated:
        """The next batch; KeyboardInterrupt, which keeps record and model, where it costs more than what is left."""
        allocated = super().draw(position)
        self.rest -= allocated.batch.tokens
        if self.rest < 0:
            raise KeyboardInterrupt
        return allocated


def run_within(folder: Path, budget: int, **settings: Any) -> None:
    """A run that ends where its tokens reach the budget, then its held-out accuracy; nothing where it was made."""
    came = folder.with_suffix(".json")
    if came.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped in the middle
    began = processor_seconds()
    config = TrainConfig(out=str(folder), steps=MOST_STEPS, **OF_CREDIT, **settings)
    result = train(config, partial(WithinBudget, budget=budget))
    if result.terminated:
        raise SystemExit(f"{folder} was ended before its tokens were spent; the same command makes it anew")
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    if len(steps) == MOST_STEPS or result.tokens > budget:
        raise ValueError(f"{folder}: {len(steps)} steps, {result.tokens} tokens")
    setup = prepare(replace(config, model=str(folder / "model")))
    stream = generator(config.seed, "evaluation")
    last = evaluate(setup.policy, setup.task, setup.heldout, config.eval_samples, setup.sampling, stream)["pass@1"]
    turns = np.array([step["agent/turns"] for step in steps])
    outcome = {
        "last": last.value, "se": last.se, "turns_last": float(turns[-len(turns) // 5 :].mean()),
        "tokens": result.tokens, "steps": len(steps), "seconds": processor_seconds() - began,
    }  # fmt: skip
    came.write_text(json.dumps(outcome))


def credit(out: Path, models: Mapping[str, str], seeds: Iterable[int] = SEEDS) -> None:
    """8 seeds of each credit from each start."""
    for seed in seeds:
        for start, model in models.items():
            for name in CREDITS:
                run_within(out / f"{start}-{short(name)}-{seed}", BUDGETS[start], model=model, seed=seed, credit=name)
        print("seed", seed, "of", len(SEEDS), f"{processor_seconds():.0f} s", flush=True)


def forecasts(out: Path, models: Mapping[str, str]) -> None:
    """What each start says of the credits before any training, kept in a file."""
    for start, model in models.items():
        came = out / f"forecast-{start}.json"
        if not came.exists():
            settings = {**OF_CREDIT, "credit": "turn_values:form=value,k=1"}
            setup = prepare(TrainConfig(model=model, seed=0, **settings))
            came.write_text(json.dumps(forecast(setup, CREDITS, UNBIASED, BATCHES, FORECAST_SEED), indent=1))
        print(start, came.read_text(), flush=True)


def short(name: str) -> str:
    """The setting that tells a credit from others, as a part of a file's name."""
    return name.partition("=")[2].partition(",")[0]


def credits_summary(out: Path) -> None:
    """A row for each credit and start: end, gain with its standard error, adjusted p, forecast, collapsed runs; then
    how many forecasts were right. Only seeds of which every run is there."""
    rows: list[tuple[str, str, list[dict[str, Any]], list[float]]] = []
    for start in BUDGETS:
        made = {name: {seed: json.loads(path.read_text()) for seed in SEEDS
                       if (path := out / f"{start}-{short(name)}-{seed}.json").exists()}
                for name in CREDITS}  # fmt: skip
        whole = [seed for seed in SEEDS if all(seed in runs for runs in made.values())]
        for name, runs in made.items():
            rows.append((start, name, [runs[seed] for seed in whole],
                         [runs[seed]["last"] - made[BASE][seed]["last"] for seed in whole]))  # fmt: skip
    tests = [float(ttest_1samp(gains, 0).pvalue) for _, name, _, gains in rows if name != BASE]
    adjusted = dict(zip([(start, name) for start, name, *_ in rows if name != BASE], holm(tests), strict=True))
    for start in BUDGETS:
        told = json.loads((out / f"forecast-{start}.json").read_text())["credits"]
        came = []
        for _, name, runs, gains in (row for row in rows if row[0] == start):
            mean = float(np.mean(gains))
            shown, p, word = "", 1.0, ""
            if name != BASE:
                p = adjusted[start, name]
                shown = f"{mean:+.3f} ± {np.std(gains, ddof=1) / len(gains) ** 0.5:.3f}"
                word = "alike" if p >= LEVEL else "better" if mean > 0 else "worse"
                came.append((mean, told[name]["ratio"], word, told[name]["forecast"]))
            own = told[name]
            forecast_of = (
                f"{own['ratio']:.2f} ({own['low']:.2f} to {own['high']:.2f}) {own['forecast']}" if shown else ""
            )
            ends = [each["turns_last"] for each in runs]
            print(f"| {start} | `{name}` | {np.mean([each['last'] for each in runs]):.3f} | {shown} | "
                  f"{f'{p:.2g}' if shown else ''} | {word} | {forecast_of} | {sum(np.array(ends) < COLLAPSED)} | "
                  f"{np.mean(ends):.2f} | {np.mean([each['tokens'] for each in runs]):,.0f} | "
                  f"{np.mean([each['steps'] for each in runs]):.0f} |")  # fmt: skip
        right = sum(word == said for *_, word, said in came)
        opposite = sum({word, said} == {"better", "worse"} for *_, word, said in came)
        rank = spearmanr([each[0] for each in came], [each[1] for each in came])
        seeds = len(next(row[2] for row in rows if row[0] == start))
        print(f"{start}: {seeds} seeds; forecasts right {right} of {len(came)}, opposite {opposite}; Spearman's "
              f"correlation of forecast and gain {rank.statistic:.2f}")  # fmt: skip
    seconds = [json.loads(path.read_text())["seconds"] for path in out.glob("*-*-[1-8].json")]
    print(f"{len(seconds)} runs, {sum(seconds) / 60:.0f} minutes of processor time")


def of(out: Path, name: str) -> Iterator[dict[str, Any]]:
    """The outcomes of a name, in the order of seeds."""
    return (json.loads((out / f"{name}-{seed}.json").read_text()) for seed in SEEDS)


def summary(out: Path) -> None:
    """A line for each start."""
    for name in ("tables", "weak"):
        runs = list(of(out, name))
        learned = sum(each["gain"] > 2 * each["se"] for each in runs)
        collapsed = [each["turns_last"] < COLLAPSED and each["turns_first"] > SEVERAL for each in runs]
        named = [("collapsed calls" in each["faults"]) == gone for each, gone in zip(runs, collapsed, strict=True)]
        first, last = (np.mean([each[key] for each in runs]) for key in ("first", "last"))
        print(f"{name}: held-out {first:.3f} → {last:.3f}; learned {learned} of {len(runs)}; collapsed "
              f"{sum(collapsed)}; turns {np.mean([each['turns_first'] for each in runs]):.2f} → "
              f"{np.mean([each['turns_last'] for each in runs]):.2f}; diagnose right {sum(named)}; at most "
              f"{max(each['seconds'] for each in runs):.0f} s")  # fmt: skip


def main() -> None:
    """Run a part, or print the summary."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("what", choices=("starts", "forecast", "credit", "summary", "credits"))
    flags.add_argument("--weak", type=Path, default=Path("models/weak"))
    flags.add_argument("--out", type=Path, default=Path("runs/agents"))
    flags.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    given = flags.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    models = {"tables": "tables", "weak": str(given.weak)}
    if given.what == "starts":
        starts(given.out, given.weak)
    if given.what == "forecast":
        return forecasts(given.out, models)
    if given.what == "credit":
        credit(given.out, models, given.seeds)
    return credits_summary(given.out) if given.what in ("credit", "credits") else summary(given.out)


if __name__ == "__main__":
    main()
