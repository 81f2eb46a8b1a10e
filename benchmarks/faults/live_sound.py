"""Needless stops: sound runs that `stop_on=("failing",)` would end, at the threshold with which `live.py` finds faults.

    python benchmarks/faults/live_sound.py train [--count 72]     real trainings of `tiny`, what is not there yet
    python benchmarks/faults/live_sound.py made [--first 70000]   made-up healthy runs, 11 of each of 21 kinds
    python benchmarks/faults/live_sound.py nulls [--first 70000]  nothing goes wrong in them: 60 of each of 5 kinds
    python benchmarks/faults/live_sound.py all                    these three in turn
    python benchmarks/faults/live_sound.py table                  what is there

Rules, written before the first run:

- The judgement. A fault with which many a sound run begins and out of which it learns itself (`Fault.outgrown`: most
  groups dead, completions cut, steps without a gradient), which has been there since the first rows, is a warning in a
  run that goes on, until there are 200 rows, unless no row has anything to learn from: all groups dead in each, or a
  gradient or a spread of 0, or one reward in all, or every completion cut; or unless the run fell. Nor has a run failed
  that goes on while its reward swings, or lost a part of what it gained and is above its start, or fell so little that
  it is not plain to see (the last since 55 nulls, 44 made runs and 14 trainings were there). Written after 4 of 42
  made-up runs (seeds 60,000 and 60,001) had been stopped at rows 22 to 66; 61,000 to 61,003 were looked at.
- Trainings: `tiny` in our loop on a CPU with its live alarms, no logger: 60 to 100 steps, seeds 9,000 on; recipe, task
  and group size at 64 rollouts a step, rate, allocation, KL coefficient, interval, mini-batches, schedule, entropy
  bonus and precision of the sampler are drawn by `settings` from the seed. Held-out: 100 problems every 20 steps.
- Sound: the mean of the last two evaluations is not lower than the first one, before any step. The others are counted
  apart, and what was told of them: a run whose held-out accuracy fell may have been stopped rightly.
- Needless: an alarm that is failing in a sound run before its last step, after which there is nothing to stop; what is
  made is looked at as a run that goes on, at the scheduled rows (10, 20, 30, 45, 70, 100, 150 …). For time, since the
  first 4 trainings (evaluations of twice the samples, every 10 steps), 13 made runs and 17 nulls (looked at at each
  tenth more, too), with one stop among the nulls, which are kept.
- Nulls: `wandering by 0.05`, `repeated epochs`, `smoothed`, `sorted by difficulty` and `curriculum` of
  `autopilot_sound.py`, every second one with the rewards of groups.
- Bars: at most 15 of 300 sound runs (trainings and made ones together), at most 15 of 300 nulls.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
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
        "task": f"arithmetic:steps=3{draw.choice(['', '', ',ops=+', ',largest=5', ',limit=20', ',ops=-'])}",
        "group": group, "prompts": ROLLOUTS // group, "lr": draw.choice([3e-5, 1e-4, 1e-4, 2e-4, 4e-4]),
        "kl": draw.choice([0.0, 1e-3, 1e-3, 0.02, 0.1]), "steps": draw.choice([60, 60, 80, 100]),
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
    fixed = {"model": "tiny", "seed": seed, "threads": 1, "eval_every": 20, "eval_problems": 100, "eval_samples": 1,
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
    from grposcope.faults.looks import first_rows, scheduled
    from grposcope.watch.alarms import Alarms

    run, alarms = first_rows(run, run.steps, "running"), Alarms()
    return [[alarm.seen, alarm.fault, alarm.grade] for rows in scheduled(run.steps)
            for alarm in alarms.look(first_rows(run, rows))]  # fmt: skip


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
    """Whether anything that was told is failing, before the last step of a training."""
    return any(grade == "failing" and step < row.get("steps", math.inf) for step, _, grade in row["told"])


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


def wanted(what: str, first: int, count: int) -> list[tuple[str, int]]:
    """Kinds and seeds of what is made, trained or judged. count: of each kind, 0 for the usual."""
    if what == "train":
        return [("training", seed) for seed in range(FIRST_TRAINING, FIRST_TRAINING + (count or 72))]
    if what == "nulls":
        return [(name, seed) for seed in range(first, first + (count or 60)) for name in NULLS]
    return list(made(first, count or 11))


def in_turn(given: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """What is not there yet; of all kinds of runs evenly, where all are asked for."""
    waiting: list[tuple[float, str, str, int]] = []
    for what in ("train", "made", "nulls") if given.what == "all" else (given.what,):
        there = {(row["kind"], row["seed"]) for row in kept(what)}
        every = wanted(what, given.first, given.count)
        waiting += [(k / len(every), what, *own) for k, own in enumerate(every) if own not in there]
    yield from (rest for _, *rest in sorted(waiting, key=lambda own: own[0]))


def main() -> None:
    """Make what is not there yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "made", "nulls", "all", "table"))
    parser.add_argument("--count", type=int, default=0, help="trainings, or runs of each kind")
    parser.add_argument("--first", type=int, default=70_000, help="first seed of what is made")
    given = parser.parse_args()
    if given.what == "table":
        print("\n".join(table()))
        return
    for what, name, seed in in_turn(given):
        keep(what, train(seed) if what == "train" else judged(what, name, seed))


if __name__ == "__main__":
    main()
