"""Training on a task with turns: does it learn, do calls collapse, and which credit for turns trains best?

    python -m grposcope.lab.train.pretrain --table 150 --out models/weak     # the weak start, 15 s
    python experiments/agents_training.py starts --weak models/weak          # about 10 minutes of one core
    python experiments/agents_training.py summary
    python experiments/agents_training.py credit --out runs/agents_credit --weak models/weak200   # then `credits`

The task is `hidden_table` at its defaults, the models `tables` (right four times in ten) and one of 150 batches.
Rules, fixed before the first run with these seeds (one run each with seed 0, to choose sizes, came before and is not
counted: seeds here begin with 1):

`starts`: 8 seeds of each start, GRPO at its defaults, 16 prompts × 8 rollouts; 200 steps of `tables`, 60 of the weak.
* A run *learned* where held-out accuracy at the end is above that of the start by twice its standard error.
* Calls *collapsed* where the mean of turns in the last fifth of the steps is below 1.5, from above 2 in the first ten.
* The task does what it is for if 7 of 8 runs of `tables` learned and none collapsed, 7 of 8 weak ones collapsed, and no
  run of `tables` takes more than 120 s of processor time.
* `diagnose` is right where it names collapsed calls in the runs that collapsed, and in no other.

`credit`: which credit for turns trains best, and by which do turns collapse? 8 seeds × 9 credits × two starts with
recipe rloo, 16 prompts × 8 rollouts: `tables` for 50 steps, and a start of 200 batches (`pretrain --table 200`) for 80;
credits that draw continuations (k = 1) have fewer steps, so that all generate as many tokens at the start (1.69 × a
step, counted with seed 0). Budget: 35 minutes of one core. Rules:
* The gain of a credit is its held-out pass@1 at the end less that of `turns:rule=broadcast` with the same seed; it is
  *better* or *worse* where a paired t-test, by Holm over the 16 comparisons, has p < 0.05.
* Turns *collapsed* in a run where their mean over the last fifth of its steps is below 1.5.
* Expected from theory, with rewards at the end but for the cost of questions: to-go as broadcast; branches less noise a
  step, against fewer steps; the rules of trainers biased by at most a few percent of the gradient.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import ttest_1samp

from grposcope.faults.judge import diagnose
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.logs import read
from grposcope.maths.holm import holm

SEEDS = range(1, 9)

BASE = "turns:rule=broadcast"

CREDITS = (
    BASE, "turns:rule=to-go", "turns:rule=states", "turn_values:form=branches,k=1", "turn_values:form=value,k=1",
    "trainer_turns:rule=own", "trainer_turns:rule=rows", "trainer_turns:rule=survivors", "trainer_turns:rule=gigpo",
)  # fmt: skip

CHARGED = 1.69
"""Tokens of a step with continuations over those without."""

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


def credit(out: Path, weak: Path) -> None:
    """8 seeds of each credit from each start."""
    for seed in SEEDS:
        for start, model, steps in (("tables", "tables", 50), ("weak", str(weak), 80)):
            for name in CREDITS:
                own = round(steps / CHARGED) if "k=1" in name else steps
                run(out / f"{start}-{short(name)}-{seed}", model=model, steps=own, seed=seed, checkpoint_every=0,
                    recipe="rloo", credit=name, eval_problems=100, rollouts_every=0)  # fmt: skip
        print("seed", seed, "of", len(SEEDS), flush=True)


def short(name: str) -> str:
    """The setting that tells a credit from others, as a part of a file's name."""
    return name.partition("=")[2].partition(",")[0]


def credits_summary(out: Path) -> None:
    """A row for each credit and start: end, gain with its standard error, adjusted p, collapsed runs, tokens."""
    rows, tests = [], []
    for start in ("tables", "weak"):
        base = [each["last"] for each in of(out, f"{start}-{short(BASE)}")]
        for name in CREDITS:
            runs = list(of(out, f"{start}-{short(name)}"))
            gain = np.array([each["last"] for each in runs]) - base
            tests.append(float("nan") if name == BASE else float(ttest_1samp(gain, 0).pvalue))
            rows.append((start, name, runs, gain))
    adjusted = holm([p for p in tests if p == p])
    for (start, name, runs, gain), p in zip(rows, tests, strict=True):
        shown = "" if p != p else f"{gain.mean():+.3f} ± {gain.std(ddof=1) / len(gain) ** 0.5:.3f}"
        value = "" if p != p else f"{adjusted.pop(0):.2g}"
        gone = sum(each["turns_last"] < COLLAPSED for each in runs)
        print(f"| {start} | `{name}` | {np.mean([each['last'] for each in runs]):.3f} | {shown} | {value} | {gone} | "
              f"{np.mean([each['turns_last'] for each in runs]):.2f} | "
              f"{np.mean([each['tokens'] for each in runs]):,.0f} |")  # fmt: skip


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
    flags.add_argument("what", choices=("starts", "credit", "summary", "credits"))
    flags.add_argument("--weak", type=Path, default=Path("models/weak"))
    flags.add_argument("--out", type=Path, default=Path("runs/agents"))
    given = flags.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what in ("credit", "credits"):
        if given.what == "credit":
            credit(given.out, given.weak)
        return credits_summary(given.out)
    if given.what == "starts":
        starts(given.out, given.weak)
    return summary(given.out)


if __name__ == "__main__":
    main()
