"""What would exact credit save, and which credit that can be bought pays, on sums of two, four and six steps?

Claim    The longer the sum, the more exact credit saves; credit from continuations that are thrown away costs more
         tokens than it saves; some credit that costs nothing, or whose tokens are trained on, pays.
Command  python experiments/credit_frozen.py --out runs/credit_frozen       a quarter of an hour of one core; resumable
         --only 6 does the sums of 6 operations, so that a queue can take it in pieces; --quick shows that it works.
         --only 6 --batches 300 --out ANOTHER takes a longer lesson, to tell the length of a sum from its difficulty.
Method   For n = 2, 4 and 6 operations `tiny` takes a short lesson (100, 100, 120 batches, seed 0) by a pupil who makes
         as many errors per sum as its own, so that about three sums in ten are right. Each frozen policy: 80 prompts ×
         8 rollouts, 16 continuations from the end of every step, in two halves of 8, 16 further rollouts of each prompt
         for the gradient; every source that the task allows, on the same rollouts, seed 1. A cell whose held-out pass@1
         is further than 0.1 from 0.3 is measured and marked. Cut, before the first cell was measured, from sums of 2, 4
         and 8 at three levels of training, 160 prompts, 128 continuations, 64 further rollouts, to fifteen minutes.
Test     Over prompts, jointly for all sources (instruments/credit/error.py), on the scale of the logarithm.
Verdict  Written before the first run, each part by itself:
         (1) exact credit saves in a cell if log saving > z se with z at 0.05/3 two-sided; does not if the upper 95% end
             is below 1.1; else cannot tell, with the prompts it would take.
         (2) it saves more in longer sums: log saving at 6 operations less that at 2 is above 1.96 se; does not if below
             −1.96 se or its upper 95% end is below log 1.1; else cannot tell.
         (3) continuations lose if the upper 95% end of their best saving is below 1 in every cell; do not if its lower
             end at z of 0.05/3 is above 1 in some cell; else cannot tell.
         (4) a source pays if `credit_error.pays` names it in at least two thirds of the cells; placebos that do the
             same mean that the gain was scale, which is then the verdict.
         The order of the sources that can be bought, by mean log saving over cells, is told with it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from scipy import stats

from grposcope.core.files import dumps, write_json
from grposcope.instruments.credit import error as credit_error
from grposcope.instruments.credit import frontier as credit_frontier
from grposcope.instruments.credit import record as records
from grposcope.instruments.credit.answer import _frontier_chart, _prompts_to_tell, _savings_chart, verdict
from grposcope.instruments.credit.error import BASE, EXACT, GradientSource
from grposcope.instruments.credit.frontier import CreditBudget
from grposcope.instruments.credit.record import CreditRecord
from grposcope.lab import policies
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic
from grposcope.lab.train import pretrain
from grposcope.render.charts import export

OPERATIONS = (2, 4, 6)
LESSONS = {2: 100, 4: 100, 6: 120}
LEVEL, NEAR = 0.3, 0.1


def start_of(operations: int, arguments: argparse.Namespace) -> Path:
    """The folder of the model before training, made unless an earlier call did."""
    folder = arguments.out / "models" / f"sums-{operations}"
    if not (folder / "model.safetensors").is_file():
        made = policies.load("tiny").model
        steps = 5 if arguments.quick else arguments.batches or LESSONS[operations]
        careless = pretrain._lessons_for(operations, pretrain.LESSONS[-1:])[0]
        pretrain._imitate(made, replace(careless, steps=steps), 0, operations)
        made.eval().save_pretrained(folder)
        pretrain._save_tokenizer(folder)
    return folder


def cell(operations: int, arguments: argparse.Namespace) -> tuple[CreditRecord, float]:
    """What was measured of the model for these sums, and its held-out pass@1; measured unless done."""
    place = arguments.out / "cells" / f"sums-{operations}"
    about = place / "model.json"
    if not records.recognises(place):
        folder, task = start_of(operations, arguments), Arithmetic(operations)
        budget = CreditBudget(
            arguments.prompts, 8, 8 if arguments.quick else 16, 16, True, (1, 2, 4, 8, 16), ("2x2x2", "4x2")
        )  # fmt: skip
        done = credit_frontier.measure(policies.load(str(folder)), task, budget, Sampling(task.max_tokens), seed=1)
        records.write(place, done.record, done.rollouts)
        np.savez(
            place / "gram.npz", gram=done.gram.astype(np.float32), names=[one.name for one in done.sources],
            mean=[one.mean for one in done.sources], second=[one.second for one in done.sources],
            tokens=[one.tokens for one in done.sources], unbiased=[one.unbiased for one in done.sources],
        )  # fmt: skip
        write_json(about, {"pass@1": pretrain._accuracy(folder, 1.0, operations).value})
    return compared_again(records.read(place), place / "gram.npz"), float(json.loads(about.read_text())["pass@1"])


def compared_again(record: CreditRecord, path: Path) -> CreditRecord:
    """The record with the errors that the software of today makes of the inner products that were kept."""
    kept = np.load(path)
    names = [str(name) for name in kept["names"]]
    sources = [
        GradientSource(name, kept["mean"][i], kept["second"][i], kept["tokens"][i], bool(kept["unbiased"][i]))
        for i, name in enumerate(names)
    ]
    found = credit_error.measure(kept["gram"].astype(np.float64), sources, kept["gram"].shape[0] - 1, seed=1)
    of = {one.name: one for one in found.sources}
    new = tuple(
        replace(one, **{key: getattr(of[one.name], key) for key in ("tokens", "mse", "saving", "scale", "bias")},
                log_error=of[one.name].log_error, effective=of[one.name].effective)
        for one in record.sources
    )  # fmt: skip
    return replace(record, sources=new, floor=found.floor, effective=found.effective)


def verdicts(cells: dict[int, CreditRecord]) -> dict[str, Any]:
    """The four verdicts of the docstring, and the order of the sources."""
    reach = float(stats.norm.ppf(1 - 0.025 / len(cells)))
    said: dict[str, Any] = {"exact": {}, "prompts": {}}
    logs: dict[int, tuple[float, float]] = {}
    for key, record in cells.items():
        exact = record.source(EXACT)
        if exact is None or not exact.saving.value > 0:
            said["exact"][str(key)] = "cannot tell"
            continue
        logs[key] = math.log(exact.saving.value), exact.log_error
        gains = logs[key][0] > reach * logs[key][1]
        said["exact"][str(key)] = "saves" if gains else "does not" if exact.saving.high < 1.1 else "cannot tell"
        said["prompts"][str(key)] = _prompts_to_tell(exact.saving.value, exact.log_error, record.prompts)
    said["longer"] = _longer(logs)
    said["continuations"] = _continuations(cells, reach)
    named = {key: _paying(record) for key, record in cells.items()}
    counted = {name: sum(name in one for one in named.values()) for name in sorted(set().union(*named.values()))}
    said["pays"] = [name for name, count in counted.items() if count >= 2 / 3 * len(cells)]
    said["paying in"] = counted
    said["order"] = _order(cells)
    return said


def _longer(logs: dict[int, tuple[float, float]]) -> dict[str, Any]:
    if not {OPERATIONS[0], OPERATIONS[-1]} <= logs.keys():
        return {"verdict": "cannot tell"}
    (short, its), (long, other) = logs[OPERATIONS[0]], logs[OPERATIONS[-1]]
    apart, error = long - short, math.hypot(its, other)
    less = apart < -credit_error.Z * error or apart + credit_error.Z * error < math.log(1.1)
    verdict = "saves more" if apart > credit_error.Z * error else "does not" if less else "cannot tell"
    return {"verdict": verdict, "log ratio": apart, "se": error}


def _continuations(cells: dict[int, CreditRecord], reach: float) -> str:
    best = []
    for record in cells.values():
        known = [one for one in record.sources if one.kind == "ii" and math.isfinite(one.saving.value)]
        if not known:
            return "cannot tell"
        best.append(max(known, key=lambda one: one.saving.value))
    if all(one.saving.high < 1 for one in best):
        return "lose"
    return "do not" if any(math.log(one.saving.value) > reach * one.log_error for one in best) else "cannot tell"


def _paying(record: CreditRecord) -> set[str]:
    others = [one.error() for one in record.sources if one.name not in (BASE, EXACT)]
    return {one.name for one in credit_error.pays(others)}


def _order(cells: dict[int, CreditRecord]) -> list[tuple[str, float]]:
    """Sources that can be bought and are known in every cell, by mean log saving."""
    logs: dict[str, list[float]] = {}
    for record in cells.values():
        for one in record.sources:
            if one.purchasable and one.saving.value > 0:
                logs.setdefault(one.name, []).append(math.log(one.saving.value))
    means = {name: float(np.mean(values)) for name, values in logs.items() if len(values) == len(cells)}
    return sorted(means.items(), key=lambda item: -item[1])


def main() -> None:
    """Measure every cell, then write the verdicts, the frontiers and a picture of each."""
    flags = argparse.ArgumentParser(
        description="What exact credit would save, and what pays, on longer and longer sums."
    )
    flags.add_argument("--out", type=Path, required=True)
    flags.add_argument("--prompts", type=int, default=80, help="prompts per cell (default: 80)")
    flags.add_argument("--only", type=int, choices=OPERATIONS, help="the sums of so many operations alone")
    flags.add_argument("--batches", type=int, help="length of the lesson, in a folder of its own, instead of LESSONS")
    flags.add_argument("--quick", action="store_true", help="short lessons, 8 prompts, 2 operations")
    arguments = flags.parse_args()
    torch.set_num_threads(1)
    keys = OPERATIONS if arguments.only is None else (arguments.only,)
    if arguments.quick:
        keys, arguments.prompts = (2,), 8
    cells, reached = {}, {}
    for key in keys:
        cells[key], reached[str(key)] = cell(key, arguments)
        print(f"{key} operations, pass@1 {reached[str(key)]:.2f}: {verdict(cells[key])}", flush=True)
        pictures = [one for one in (_savings_chart(cells[key]), _frontier_chart(cells[key])) if one is not None]
        export(pictures, arguments.out / "pictures" / str(key), "png")
    far = [name for name, value in reached.items() if abs(value - LEVEL) > NEAR]
    found = {"pass@1": reached, "far from the level": far, **verdicts(cells)}
    frontier = {
        str(key): {
            one.name: {"tokens": one.tokens.value, "error": one.mse, "saving": one.saving} for one in record.sources
        }
        for key, record in cells.items()
    }
    if arguments.only is None:
        write_json(arguments.out / "credit_frozen.json", {**found, "frontier": frontier})
    print(dumps(found))


if __name__ == "__main__":
    main()
