"""Training on a task with turns: does it learn, do calls collapse, and which credit for turns trains best?

    python -m grposcope.lab.train.pretrain --table 150 --out models/weak     # the weak start, 15 s
    python experiments/agents_training.py starts --weak models/weak          # about 10 minutes of one core
    python experiments/agents_training.py summary

The task is `hidden_table` at its defaults, the models `tables` (right four times in ten) and one of 150 batches.
Rules, fixed before the first run with these seeds (one run each with seed 0, to choose sizes, came before and is not
counted: seeds here begin with 1):

`starts`: 8 seeds of each start, GRPO at its defaults, 16 prompts × 8 rollouts; 200 steps of `tables`, 60 of the weak.
* A run *learned* where held-out accuracy at the end is above that of the start by twice its standard error.
* Calls *collapsed* where the mean of turns in the last fifth of the steps is below 1.5, from above 2 in the first ten.
* The task does what it is for if 7 of 8 runs of `tables` learned and none collapsed, 7 of 8 weak ones collapsed, and no
  run of `tables` takes more than 120 s of processor time.
* `diagnose` is right where it names collapsed calls in the runs that collapsed, and in no other.
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

from grposcope.faults.judge import diagnose
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.logs import read

SEEDS = range(1, 9)

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
    flags.add_argument("what", choices=("starts", "summary"))
    flags.add_argument("--weak", type=Path, default=Path("models/weak"))
    flags.add_argument("--out", type=Path, default=Path("runs/agents"))
    given = flags.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "starts":
        starts(given.out, given.weak)
    summary(given.out)


if __name__ == "__main__":
    main()
