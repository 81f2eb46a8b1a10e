"""Makes a Run of the rows of any log: steps, restarts, evaluations, and the metric that each key is.

Of several runs in one log, one is chosen (`several`). Rows of one step become one row (`same_step`). A step that does
not increase is a restart: `table` holds the last attempt of every step, `segments` every row of every attempt.
Evaluations leave the table for `evaluations`, also where they share a row with training.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.formatting import visible
from grposcope.runs import same_step, several
from grposcope.runs.columns import RawLog
from grposcope.runs.hints import Hints
from grposcope.runs.run import Bools, Evaluations, Floats, Ints, Meta, Reading, Run, Segment, no_groups
from grposcope.runs.trainers import TRAINERS, trainer_named, trainer_of
from grposcope.runs.trainers.trainer import Trainer

STEPS = (
    "step", "global_step", "train/global_step", "training/global_step", "trainer/global_step", "progress/step", "Step",
    "steps", "Steps", "iteration", "iter", "update", "_step",
)  # fmt: skip
"""Keys that count steps, the most reliable first: _step counts calls of wandb.log, not optimiser steps."""

CLOCKS = frozenset(
    ("epoch", "timestamp", "_timestamp", "_runtime", "time", "wall_time", "progress/done_frac", "progress/epoch",
     "Relative Time (Process)", "Wall Time", "relative_time", "train/epoch", "training/epoch", *STEPS)
)  # fmt: skip
"""Keys that say when a row was written; a row with only these holds no metric."""

SUMMARY = frozenset(
    ("train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss",
     "train_tokens_per_second", "epoch", "step")
)  # fmt: skip
"""Keys of the last row that the transformers library writes, which is about the run as a whole."""

_EVALUATION = re.compile(r"(?:eval|val|valid|validation|test)(?:[_/]|-core/|-aux/)(?P<name>.+)", re.I)
_HELD_OUT = re.compile(r"eval(?:uation)?|val(?:id(?:ation)?)?|test|dev|held[-_ ]?out", re.I)
_SIGNAL = re.compile(r"reward|score|return|accuracy|acc\b|pass@|success", re.I)
_FACTOR = re.compile(r"(?P<key>.*\S)\s*\(\s*(?P<factor>\d+(?:\.\d*)?[eE][-+]?\d+)\s*\)")
_TEXT_NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?")


def normalize(log: RawLog, hints: Hints) -> Run:
    """The run in a log, with what the user says of it.

    UserError where it holds no metric of reinforcement learning; UndecidedError where it holds several runs, or rows of
    one step of which it is not plain what they are.
    """
    lines, columns, sparse = log.rows.finish()
    if not columns:
        raise UserError(f"{log.source}: no metrics in it; give the file that the trainer logs to")
    notes = log.notes
    columns, raw = _unprefixed(columns)
    given = _given(columns, hints, log)
    trainer = trainer_named(log.engine) if log.engine else trainer_of(columns)
    engine = trainer.name
    trainer = TRAINERS["grposcope"] if log.canonical else trainer
    if "reward" not in given and not any(_SIGNAL.search(key) for key in columns):
        raise _no_reward(log, columns)
    for key, column in list(columns.items()):
        if (match := _FACTOR.fullmatch(key)) and match["key"] not in columns:  # such as lr(1e-4)
            columns[match["key"]] = column * float(match["factor"])
            notes.append(
                f"{visible(key, 60)} is kept, and {visible(match['key'], 60)} is it times {float(match['factor']):g}"
            )
    step = _step(columns, notes, given.get("step"))
    columns.pop("step", None)
    held_out = _held_out_rows(log, len(step))
    evaluated = {key: match["name"] for key in columns if (match := _EVALUATION.fullmatch(key))}
    training = [key for key in columns if key not in evaluated]
    scored = _any(columns, list(evaluated), len(step))
    busy = _any(columns, [key for key in training if key not in CLOCKS], len(step)) | ~scored  # all NaN: a row too
    busy &= ~held_out
    summary = _summary(columns, training, busy)
    chosen = several.chosen(log, columns, step, busy, lines, hints.run)
    busy, scored, held_out = busy & chosen, scored & chosen, held_out & chosen
    lost = (busy | scored | held_out) & ~np.isfinite(step)
    if lost.any():
        notes.append(
            f"{int(lost.sum())} rows have no step, the first in {log.place} {lines[lost][0]}, and were left out"
        )
    table, places = _joined(
        {"step": step, **{key: columns[key] for key in training}},
        lines, np.flatnonzero(busy & ~lost), log, _rewards(trainer, training, given), hints.average,
    )  # fmt: skip
    segments, table = _segments(table, places, log)
    window = log.window or (_window(table["step"], notes) if trainer.windowed else 1)
    settings = trainer.settings(log.logged, log.measured, hints.settings)
    defined, assumptions = trainer.definitions(table, settings, window)
    defined = _as_given(defined, table, given)
    notes += assumptions
    evaluations = _evaluation_rows(trainer, columns, evaluated, training, step, held_out, chosen, notes)
    if sparse:
        notes.append(f"{len(sparse)} keys occur too seldom for a column each; they are in `unknown`")
    return Run(
        meta=Meta(log.source, engine, log.name or log.source.resolve().name, log.status, tuple(dict.fromkeys(notes))),
        config={"engine": engine, "settings": settings, "logged": log.logged},
        table=_renamed(table, defined),
        groups=log.groups or no_groups(),
        evaluations=evaluations,
        rollouts=log.rollouts,
        summary=summary,
        keys={defined.get(key, key): raw.get(key, key) for key in table if key in defined or key in raw},
        segments=tuple(Segment(_renamed(part, defined), place) for part, place in segments),
        unknown={**log.rows.texts, **sparse},
        window=window,
        reading=Reading(
            step=raw.get(given["step"], given["step"]) if "step" in given else log.step_key,
            rows=int((busy | scored | held_out).sum()),
            left_out=log.left_out.count,
            examples=log.left_out.examples,
        ),
    )


def _unprefixed(columns: dict[str, Floats]) -> tuple[dict[str, Floats], dict[str, str]]:
    """Columns without a common prefix train/ and without spaces around slashes, and new key -> key in the log."""
    prefixed = sum(key.startswith("train/") for key in columns)
    strip = prefixed >= 3
    renamed: dict[str, Floats] = {}
    raw: dict[str, str] = {}
    for key, column in columns.items():
        new = key.removeprefix("train/") if strip else key
        new = re.sub(r" */ *", "/", new) if " / " in new else new
        new = new if new not in columns and new not in renamed else key
        renamed[new] = column
        if new != key:
            raw[new] = key
    return renamed, raw


def _given(columns: Mapping[str, Floats], hints: Hints, log: RawLog) -> dict[str, str]:
    """Metric -> column, as the user says; UserError for a key that is not in the log."""
    given: dict[str, str] = {}
    for metric, key in hints.columns.items():
        same = [name for name in columns if name == key] or [name for name in columns if name.lower() == key.lower()]
        if len(same) != 1:
            some = ", ".join([visible(name, 60) for name in columns][:12])
            raise UserError(f"{log.source}: no key {visible(key, 60)!r}; its keys are {some}")
        given[metric] = same[0]
    return given


def _as_given(defined: Mapping[str, str], table: Mapping[str, Floats], given: Mapping[str, str]) -> dict[str, str]:
    """Metric of each key, with those that the user says; a key that had such a name before is “NAME (as logged)”."""
    changed = {key: metric for key, metric in defined.items() if metric not in given}
    for metric, key in given.items():
        if metric != "step":
            if metric in table and key != metric:
                changed[metric] = f"{metric} (as logged)"
            changed[key] = metric
    return changed


def _rewards(trainer: Trainer, training: Sequence[str], given: Mapping[str, str]) -> list[str]:
    """Columns of the reward: the one that the user says, else those that mean it, else those that may be it."""
    if "reward" in given:
        return [given["reward"]]
    meant = [key for key in training if trainer.metric_or_usual(key) == "reward"]
    return meant or [key for key in training if _SIGNAL.search(key)]


def _no_reward(log: RawLog, columns: Mapping[str, Floats]) -> UserError:
    """Why a log without a column of rewards is refused: the rewards are text, or there are none."""
    for key, texts in log.rows.texts.items():
        if _SIGNAL.search(key) and (example := next(filter(_TEXT_NUMBER.fullmatch, texts.examples), None)):
            how = "with a decimal comma; write a point" if "," in example else "as a text; write it without quotes"
            where = f"{log.source}, {log.place} {texts.line}"
            return UserError(f"{where}: {visible(key, 60)} is {visible(example, 40)!r}, a number {how}")
    some = ", ".join([visible(key, 60) for key in columns if key not in CLOCKS][:6])
    return UserError(
        f"{log.source}: no reward in it, so it is no log of reinforcement learning (perhaps of supervised "
        f"training); it has {some or 'only steps and times'}; give the log of a GRPO run"
    )


def _step(columns: Mapping[str, Floats], notes: list[str], given: str | None) -> Floats:
    """The step of each row by the key `given`, else the most reliable one, else the number of the row."""
    count = len(next(iter(columns.values())))
    best, most = given, 0
    for key in STEPS if given is None else ():
        if key in columns and (finite := int(np.isfinite(columns[key]).sum())) > 1.5 * most:
            best, most = key, finite
    if best is None:
        notes.append("no key counts steps, so rows are numbered from 1")
        return np.arange(1.0, count + 1)
    step = columns[best].copy()
    step[~(np.abs(step) < 2.0**53)] = math.nan
    if best == "_step":
        notes.append("steps are those of wandb.log calls (_step), which need not be optimiser steps")
    return step


def _held_out_rows(log: RawLog, count: int) -> Bools:
    """Rows that a label such as split: val marks as evaluations."""
    marked = np.zeros(count, bool)
    for key in ("split", "phase", "mode", "type"):
        labels = log.rows.labels.get(key, {})
        for row, text in labels.items():
            if _HELD_OUT.fullmatch(text):
                marked[row] = True
    return marked


def _any(columns: Mapping[str, Floats], keys: Sequence[str], count: int) -> Bools:
    """Whether any of the keys has a value, for each row."""
    present = np.zeros(count, bool)
    for key in keys:
        present |= ~np.isnan(columns[key])
        if present.all():
            break
    return present


def _summary(columns: dict[str, Floats], training: list[str], busy: Bools) -> Mapping[str, Any] | None:
    """The last row of transformers, taken out of the table as the summary of the run; None if there is none."""
    if "train_runtime" not in columns:
        return None
    closing = ~np.isnan(columns["train_runtime"])
    others = _any(columns, [key for key in training if key not in SUMMARY and key not in CLOCKS], len(busy))
    closing &= ~others
    if not closing.any():
        return None
    last = int(np.flatnonzero(closing)[-1])
    busy &= ~closing
    values = {key: float(columns[key][last]) for key in SUMMARY if key in columns and not np.isnan(columns[key][last])}
    for key in SUMMARY - CLOCKS:
        if key in columns and key in training and not (~np.isnan(columns[key]) & busy).any():
            training.remove(key)
    return values


def _joined(
    table: dict[str, Floats], lines: Ints, rows: Ints, log: RawLog, rewards: Sequence[str], average: bool
) -> tuple[dict[str, Floats], Ints]:
    """The chosen rows, successive ones of one step as one row where that may be; the place of each."""
    if len(rows) < len(lines):
        table = {key: column[rows] for key, column in table.items()}
    places = lines[rows]
    if not len(places):
        raise UserError(f"{log.source}: no row with a step and a training metric in it; give the trainer's own log")
    clocks = frozenset(key for key in table if key in CLOCKS)
    merged = same_step.merge(table, clocks, [table[key] for key in rewards if key in table], average, str(log.source))
    log.notes += merged.notes
    return merged.table, places[merged.starts]


def _segments(
    table: dict[str, Floats], places: Ints, log: RawLog
) -> tuple[list[tuple[dict[str, Floats], str]], dict[str, Floats]]:
    """(all attempts with their places, the last attempt of every step); no attempts where the run was not restarted."""
    step = table["step"]
    cuts = np.flatnonzero(np.diff(step) <= 0) + 1
    if not len(cuts):
        return [], table
    if len(cuts) > 20 and len(cuts) > 0.2 * len(step):
        raise UserError(
            f"{log.source}: the step falls {len(cuts)} times in {len(step)} rows, so it does not count the steps of "
            "one run; give the metrics of one run, a row per step"
        )
    edges = [0, *cuts.tolist(), len(step)]
    keep = np.zeros(len(step), bool)
    limit = math.inf
    for begin, end in reversed(list(itertools.pairwise(edges))):
        keep[begin:end] = step[begin:end] < limit
        limit = min(limit, step[begin])
    log.notes.append(
        f"restarted {len(cuts)} times, first in {log.place} {places[cuts[0]]} (step {step[cuts[0]]:g} after "
        f"{step[cuts[0] - 1]:g}): the table has the last attempt of every step, {int(keep.sum())} of {len(step)} rows; "
        "all are in the segments"
    )
    parts = [
        ({key: column[begin:end] for key, column in table.items()}, f"{log.place} {places[begin]}")
        for begin, end in itertools.pairwise(edges)
    ]
    return parts, {key: column[keep] for key, column in table.items()}


def _window(step: Floats, notes: list[str]) -> int:
    """Number of steps that a row is the mean over, from the distance of the rows."""
    if len(step) < 3:
        return 1
    gaps = np.diff(step)
    window = int(np.median(gaps))
    if window > 1:
        notes.append(f"each row is the mean over {window} steps (logging_steps), so spikes and variances are damped")
    return max(window, 1)


def _renamed(table: Mapping[str, Floats], defined: Mapping[str, str]) -> dict[str, Floats]:
    return {defined.get(key, key): column for key, column in table.items()}


def _evaluation_rows(
    trainer: Trainer,
    columns: Mapping[str, Floats],
    evaluated: Mapping[str, str],
    training: Sequence[str],
    step: Floats,
    held_out: Bools,
    chosen: Bools,
    notes: list[str],
) -> Evaluations:
    """Evaluations of the chosen rows: of keys such as eval_reward (`evaluated`), and of rows labelled as held out."""
    values: dict[tuple[float, str], float] = {}
    count = 0
    sources: list[tuple[str, str, Bools]] = []
    for key, name in evaluated.items():
        core = key.startswith(("val-core", "val-aux"))
        sources.append((key, key if core else trainer.metric_or_usual(name) or name, ~np.isnan(columns[key]) & chosen))
    if held_out.any():
        for key in training:
            if key not in CLOCKS:
                here = held_out & ~np.isnan(columns[key])
                sources.append((key, trainer.metric_or_usual(key) or key, here))
    for key, name, present in sources:
        rows = np.flatnonzero(present & np.isfinite(step))
        for row in rows:
            values[float(step[row]), name] = float(columns[key][row])
        count += len(rows)
    if count > len(values):
        notes.append(f"{count - len(values)} evaluations were repeated at the same step; the last of each is kept")
    flag = "no standard error in the log"
    return Evaluations.of_rows([
        (int(at), name, value, math.nan, 0, flag) for (at, name), value in sorted(values.items())
    ])  # fmt: skip
