"""Needless stops: sound runs that `stop_on=("failing",)` would end, at the threshold with which `live.py` finds faults.

    python benchmarks/faults/live_sound.py train [--count 72]     real trainings of `tiny`, what is not there yet
    python benchmarks/faults/live_sound.py made [--first 70000]   made-up healthy runs, 11 of each of 21 kinds
    python benchmarks/faults/live_sound.py nulls [--first 70000]  nothing goes wrong in them: 60 of each of 5 kinds
    python benchmarks/faults/live_sound.py table                  what is there

Rules, written before the first run:

- The judgement. A fault with which many a sound run begins and out of which it learns itself (`Fault.outgrown`: most
  groups dead, completions cut, steps without a gradient), which has been there since the first rows, is a warning in a
  run that goes on, until there are 200 rows, unless no row has anything to learn from: all groups dead in each, or a
  gradient or a spread of 0, or one reward in all, or every completion cut; or unless the run fell. It was written after
  4 of 42 made-up runs (seeds 60,000 and 60,001) had been stopped at rows 22 to 66; 61,000 to 61,002 were looked at.
- Trainings: `tiny` in our loop on a CPU with its live alarms, no logger: 60 to 100 steps, seeds 9,000 on; recipe, task
  and group size at 64 rollouts a step, rate, allocation, KL coefficient, interval, mini-batches, schedule, entropy bonus
  and precision of the sampler are drawn by `settings` from the seed. Held-out pass@1 of 100 problems every 10 steps.
- Sound: the mean of the last two evaluations is not lower than the first one, before any step. The others are counted
  apart, and what was told of them: a run whose held-out accuracy fell may have been stopped rightly.
- Needless: any alarm that is failing in a sound run, at any row, the last among them; what is made is looked at as
  `live.made` does: at each row at which looks are free or have grown due.
- Nulls: `wandering by 0.05`, `repeated epochs`, `smoothed`, `sorted by difficulty` and `curriculum` of
  `autopilot_sound.py`, every second one with the rewards of groups.
- Bars: at most 15 of 300 sound runs (trainings and made ones together), at most 15 of 300 nulls.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "helpers"), str(ROOT / "benchmarks")]

FOLDER = Path("build/live-sound")
ROLLOUTS = 64
FIRST_TRAINING = 9_000
NULLS = ("wandering by 0.05", "repeated epochs", "smoothed", "sorted by difficulty", "curriculum")


def settings(seed: int) -> dict[str, Any]:
    """The settings of a training, drawn from its seed alone."""
    draw = random.Random(seed)
    group = draw.choice([4, 8, 8, 16])
    drawn: dict[str, Any] = {
        "recipe": draw.choice(["grpo", "grpo", "dr_grpo", "rloo", "dapo", "cispo", "gspo", "batch_grpo", "maxrl"]),
        "task": draw.choice(["arithmetic", "arithmetic:steps=1", "arithmetic:steps=2", "arithmetic:steps=2,ops=+"]),
        "group": group, "prompts": ROLLOUTS // group, "lr": draw.choice([3e-5, 1e-4, 1e-4, 2e-4, 4e-4]),
        "kl": draw.choice([0.0, 1e-3, 1e-3, 0.02, 0.1]), "steps": draw.choice([60, 80, 100]),
        "schedule": draw.choice(["constant", "linear"]), "warmup": draw.choice([0, 10]),
        "entropy": draw.choice([0.0, 0.0, 0.0, 0.003]), "interval": draw.choice([1, 1, 1, 2, 4]),
        "allocate": draw.choice(["uniform", "uniform", "uniform", "filter:dead=0.9"]),
        "sampler_precision": draw.choice(["float32", "float32", "bfloat16"]),
    }  # fmt: skip
    if drawn["recipe"] in ("dapo", "batch_grpo") or drawn["interval"] > 1:
        drawn["allocate"] = "uniform"
    if drawn["interval"] == 4 and draw.random() < 0.5:
        drawn["minibatches"] = 4
    return drawn


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; none where there is none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def train(seed: int) -> dict[str, Any]:
    """Make a training with its live alarms; its settings, held-out scores, alarms and seconds."""
    from grposcope.core.errors import UserError
    from grposcope.lab.train.config import TrainConfig
    from grposcope.lab.train.loop import train as run

    place, own, error = FOLDER / "trainings" / str(seed), settings(seed), ""
    shutil.rmtree(place, ignore_errors=True)
    began, spent = time.perf_counter(), time.process_time()
    fixed = {"model": "tiny", "seed": seed, "threads": 1, "eval_every": 10, "eval_problems": 100, "eval_samples": 2,
             "checkpoint_every": 0, "rollouts_every": 0, "out": str(place)}  # fmt: skip
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            run(TrainConfig(**fixed, **own))
        except UserError as stopped:
            error = str(stopped)
    shutil.rmtree(place / "model", ignore_errors=True)
    rows = {name: lines_of(place / name) for name in ("evals.jsonl", "alarms.jsonl", "steps.jsonl")}
    scores = [row["pass@1"]["value"] for row in rows["evals.jsonl"] if "pass@1" in row]
    told = [[alarm.get("seen"), alarm["fault"], alarm["grade"]] for alarm in rows["alarms.jsonl"]]
    broken = [line for line in said.getvalue().splitlines() if "no further alarms" in line]
    return {"kind": "training", "seed": seed, "settings": own, "scores": scores, "told": told, "error": error,
            "broken": broken, "sound": len(scores) > 2 and sum(scores[-2:]) / 2 >= scores[0],
            "steps": len(rows["steps.jsonl"]), "seconds": round(time.perf_counter() - began, 1),
            "cpu": round(time.process_time() - spent, 1)}  # fmt: skip


def looked_at(run: Any) -> list[list[Any]]:
    """What is told of a made run as it grows: step, fault and grade."""
    from grposcope.faults.looks import first_rows
    from grposcope.watch.alarms import Alarms

    alarms = Alarms()
    return [[alarm.seen, alarm.fault, alarm.grade] for rows in range(1, run.steps + 1)
            if alarms.free(rows) or alarms.due(rows) for alarm in alarms.look(first_rows(run, rows))]  # fmt: skip


def made(first: int, count: int) -> Iterator[tuple[str, int]]:
    """Kinds and seeds of made-up healthy runs."""
    import plain_runs

    kinds = [name for name, (fate, _) in plain_runs.KINDS.items() if fate == "healthy"]
    yield from ((name, seed) for seed in range(first, first + count) for name in kinds)


def judged(what: str, name: str, seed: int) -> dict[str, Any]:
    """What is told of a made-up run or a null."""
    import autopilot_sound
    import plain_runs

    run = plain_runs.of_seed(name, seed).run if what == "made" else autopilot_sound.log(name, seed, seed % 2 == 1)
    return {"kind": name, "seed": seed, "rows": run.steps, "told": looked_at(run)}


def kept(what: str) -> list[dict[str, Any]]:
    """The results that are there."""
    return lines_of(FOLDER / f"{what}.jsonl")


def keep(what: str, row: dict[str, Any]) -> None:
    """Add a result."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{what}.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def stopped(row: dict[str, Any]) -> bool:
    """Whether anything that was told is failing."""
    return any(grade == "failing" for _, _, grade in row["told"])


def table() -> list[str]:
    """Counts with Wilson's 95 % interval, and what was told that is failing."""
    from grposcope.maths.intervals import wilson

    trainings = [row for row in kept("train") if not row["error"]]
    parts = {
        "trainings of `tiny`, sound": [row for row in trainings if row["sound"]],
        "made-up sound runs": kept("made"),
        "trainings of `tiny`, held-out accuracy fell": [row for row in trainings if not row["sound"]],
    } | {f"null: {name}": [row for row in kept("nulls") if row["kind"] == name] for name in NULLS}
    parts["sound, together"] = parts["trainings of `tiny`, sound"] + parts["made-up sound runs"]
    parts["nulls, together"] = kept("nulls")
    lines = ["| runs | stopped | of | 95 % interval | warned |", "|---|---|---|---|---|"]
    for name, rows in parts.items():
        count, warned = (
            sum(map(stopped, rows)),
            sum(any(grade != "note" for _, _, grade in row["told"]) for row in rows),
        )
        low, high = wilson(count / len(rows), len(rows)) if rows else (0.0, 1.0)
        lines.append(f"| {name} | {count} | {len(rows)} | {100 * low:.1f} to {100 * high:.1f} % | {warned} |")
    faults = Counter(fault for name in parts if "together" in name for row in parts[name] for fault in
                     {fault for _, fault, grade in row["told"] if grade == "failing"})  # fmt: skip
    lines += ["", f"failing in sound runs and nulls: {dict(faults)}"]
    for row in (*trainings, *kept("made"), *kept("nulls")):
        if stopped(row):
            sound = {True: ", sound", False: ", fell"}.get(row.get("sound"), "")
            lines.append(
                f"{row['kind']} {row['seed']}{sound}: {[told for told in row['told'] if told[2] == 'failing']}"
            )
    errors = [row for row in kept("train") if row["error"]]
    return [*lines, f"{len(errors)} trainings ended with an error"]


def main() -> None:
    """Make what is not there yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "made", "nulls", "table"))
    parser.add_argument("--count", type=int, default=0, help="trainings, or runs of each kind")
    parser.add_argument("--first", type=int, default=70_000, help="first seed of what is made")
    given = parser.parse_args()
    there = {(row["kind"], row["seed"]) for row in kept(given.what)}
    if given.what == "train":
        for seed in range(FIRST_TRAINING, FIRST_TRAINING + (given.count or 72)):
            if ("training", seed) not in there:
                keep("train", train(seed))
    elif given.what == "table":
        print("\n".join(table()))
    else:
        last = given.first + (given.count or 60)
        wanted = ([(name, seed) for seed in range(given.first, last) for name in NULLS] if given.what == "nulls"
                  else made(given.first, given.count or 11))  # fmt: skip
        for name, seed in wanted:
            if (name, seed) not in there:
                keep(given.what, judged(given.what, name, seed))


if __name__ == "__main__":
    main()
