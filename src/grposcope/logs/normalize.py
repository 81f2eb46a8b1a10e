"""Makes a Run of the rows of any log: steps, restarts, evaluations, and the metric that each key is.

Of several runs in one log, one is chosen (`several`). Rows of one step become one row (`same_step`). A step that does
not increase is a restart: `table` holds the last attempt of every step, `segments` every row of every attempt.
Evaluations leave the table for `evaluations`, also where they share a row with training.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.metrics import VARIANTS
from grposcope.core.run import Bools, Evaluations, Floats, Ints, Meta, Reading, Run, Segment, Sparse, no_groups
from grposcope.core.text import visible
from grposcope.logs import (
    defects,
    interleaved,
    name_changes,
    rewards,
    roles,
    row_kinds,
    same_step,
    scopes,
    several,
    staircase,
    unmeasured,
)
from grposcope.logs.columns import RawLog
from grposcope.logs.hints import Hints, Seen, UnreadError
from grposcope.logs.trainers import TRAINERS, trainer_named, trainer_of
from grposcope.logs.trainers.trainer import Trainer

STEPS = (
    "step", "global_step", "train/global_step", "training/global_step", "trainer/global_step", "progress/step", "Step",
    "steps", "Steps", "training_step", "system/global_step", "iteration", "iter", "update", "_step",
)  # fmt: skip
"""Keys that count steps, the most reliable first: _step counts calls of wandb.log, not optimiser steps."""

CLOCKS = frozenset(
    ("epoch", "timestamp", "_timestamp", "_runtime", "time", "wall_time", "progress/done_frac", "progress/epoch",
     "rollout/step", "train/step", "eval/step",
     "train_speed(s/it)", "memory(GiB)",
     "Relative Time (Process)", "Wall Time", "relative_time", "train/epoch", "training/epoch", *STEPS)
)  # fmt: skip
"""Keys that say when a row was written, or how fast; a row with only these holds no metric."""

TIMES = ("time/", "timing/", "timing_s/", "perf/", "system/")
"""Beginnings of keys about the machine, which parts of a trainer log at the same step with values of their own."""

SUMMARY = frozenset(
    ("train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss",
     "train_tokens_per_second", "epoch", "step")
)  # fmt: skip
"""Keys of the last row that the transformers library writes, which is about the run as a whole."""

_SCHEDULED = re.compile(r"(?:^|[/_])(?:lr|learning_rate|epoch|version|coef|beta|temperature)", re.I)
"""Keys that are set, not measured: equal values of these are no copies."""

_FACTOR = re.compile(r"(?P<key>.*\S)\s*\(\s*(?P<factor>\d+(?:\.\d*)?[eE][-+]?\d+)\s*\)")
_COMMA = re.compile(r"[-+]?\d+,\d+")
_DOT = re.compile(r"(?<=[A-Za-z_\])])\.(?=[A-Za-z_])")

OF_A_POLICY = frozenset(("entropy", "clip_fraction"))
"""Metrics that together are logged only where a policy is trained by its rewards."""


def normalize(log: RawLog, hints: Hints) -> Run:
    """The run in a log, with what the user says of it.

    UserError where it holds no metric; UnreadError, with the keys that it has, where no run can be made of its rows:
    UndecidedError where the user has to say which key is the reward, which of several runs it is, or what the rows of
    one step are.
    """
    lines, columns, sparse = log.rows.finish()
    if not columns:
        raise UserError(f"{log.source} holds no metrics; give the file that the trainer logs to")
    columns, raw = _unprefixed(columns)
    as_logged = {raw.get(key, key): column for key, column in columns.items()}
    try:
        return _run(log, hints, lines, columns, raw, sparse)
    except UnreadError as error:
        error.seen = error.seen or tuple(rewards.seen(as_logged))
        raise
    except UserError as error:
        raise UnreadError(str(error), rewards.seen(as_logged)) from None


def _run(
    log: RawLog,
    hints: Hints,
    lines: Ints,
    columns: dict[str, Floats],
    raw: Mapping[str, str],
    sparse: Mapping[str, Sparse],
) -> Run:
    """The run of rows in columns. raw: the key in the log of those that were renamed."""
    notes = log.notes
    given = _given(columns, raw, hints, log)
    trainer = _trainer(log.engine, columns)
    engine = trainer.name
    trainer = TRAINERS["grposcope"] if log.canonical else trainer
    if "reward" not in given:
        given |= _reward(trainer, columns, raw, log)
    notes += name_changes.put_together(columns, trainer.metric_or_usual, given.get("reward") or next(
        (key for key in columns if trainer.metric_or_usual(key) == "reward"), None), CLOCKS)  # fmt: skip
    for key, column in list(columns.items()):
        if (match := _FACTOR.fullmatch(key)) and match["key"] not in columns:  # such as lr(1e-4)
            columns[match["key"]] = column * float(match["factor"])
            notes.append(
                f"{visible(key, 60)} is used; {visible(match['key'], 60)} equals it times {float(match['factor']):g}"
            )
    step = _step(columns, notes, given.get("step"), trainer.counters)
    columns.pop("step", None)
    rewarding = _rewards(trainer, _trained(columns), given)
    kinds = _kinds(log, columns, step, rewarding)
    held_out, left_out = kinds.held_out, kinds.left_out
    rewarded = _any(columns, rewarding or _trained(columns), len(step)) & ~held_out
    evaluated = roles.evaluated_keys({key: columns[key] for key in columns if key not in CLOCKS}, rewarded)
    scored = _any(columns, list(evaluated), len(step)) & ~left_out
    training = [key for key in columns if key not in evaluated]
    busy = _any(columns, [key for key in training if key not in CLOCKS], len(step)) | ~scored  # all NaN: a row too
    busy &= ~held_out & ~left_out
    summary = _summary(columns, training, busy)
    step = _of_the_row_before(_counted(step, busy), busy, (scored | held_out) & ~busy, notes)
    chosen = several.chosen(log, columns, step, busy, lines, hints.run)
    busy, scored, held_out = busy & chosen, scored & chosen, held_out & chosen
    parts = _parts(log, hints, columns, step, busy, rewarded, lines)
    lost = (busy | scored | held_out) & ~np.isfinite(step)
    if lost.any():
        notes.append(
            f"{int(lost.sum())} rows have no step, the first in {log.place} {lines[lost][0]}, and were left out"
        )
    table, places = _joined(
        {"step": step, **{key: columns[key] for key in training}},
        lines, np.flatnonzero(busy & ~lost), log, rewarding, hints.average or bool(parts),
    )  # fmt: skip
    segments, table = _segments(table, places, log)
    window = log.window or (_window(table["step"], notes) if trainer.windowed else 1)
    settings = trainer.settings(log.logged, log.measured, hints.settings)
    defined, assumptions = trainer.definitions(table, settings, window)
    nothing = unmeasured.found(table, defined)
    if nothing:
        notes.append(unmeasured.note([raw.get(key, key) for key in nothing],
                                     {raw.get(key, key): defined[key] for key in nothing}))  # fmt: skip
    wrong = list(defects.of_log(engine, table, settings))
    notes += map(str, wrong)
    nothing += [key for defect in wrong if defect.left_out for key in defect.keys]
    defined = {key: metric for key, metric in defined.items() if key not in nothing}
    defined = _as_given(defined, table, given)
    made = trainer.worked_out(table, defined)
    notes += assumptions
    evaluations = _evaluation_rows(trainer, columns, evaluated, training, step, held_out, chosen, notes)
    if sparse:
        notes.append(f'{len(sparse)} keys occur too rarely for a column of their own; they are under "unknown"')
    run = Run(
        meta=Meta(log.source, engine, log.name or log.source.resolve().name, log.status, tuple(dict.fromkeys(notes))),
        config={"engine": engine, "settings": settings, "logged": log.logged},
        table=trainer.with_terms(_renamed(table, defined) | {name: one.values for name, one in made.items()}, settings),
        groups=log.groups or no_groups(),
        evaluations=evaluations,
        rollouts=log.rollouts,
        summary=summary,
        keys={
            **{defined.get(key, key): raw.get(key, key) for key in table if key in defined or key in raw},
            **{name: one.formula for name, one in made.items()},
        },
        segments=tuple(
            Segment(_renamed(part, defined) | _worked_out(trainer, part, made), place) for part, place in segments
        ),
        unknown={**log.rows.texts, **sparse},
        window=window,
        reading=Reading(
            step=raw.get(given["step"], given["step"]) if "step" in given else log.step_key,
            rows=int((busy | scored | held_out).sum()),
            left_out=log.left_out.count,
            examples=log.left_out.examples,
            defects=tuple(defect.name for defect in wrong),
        ),
    )
    return replace(run, scopes=parts or scopes.of_columns(run, trainer, table, settings))


def _trainer(name: str, columns: Mapping[str, Floats]) -> Trainer:
    """The trainer of this name, or one that leaves the same files and whose keys these are; without a name, by keys."""
    if not name:
        return trainer_of(columns)
    of_its_files = (one for one in TRAINERS.values() if one.leaves_files_of == name and one.recognises(columns.keys()))
    return next(of_its_files, trainer_named(name))


def _worked_out(trainer: Trainer, table: Mapping[str, Floats], wanted: Iterable[str]) -> dict[str, Floats]:
    """The metrics `wanted` that follow from several columns of a table."""
    made = trainer.worked_out(table, {})
    return {name: made[name].values for name in wanted if name in made}


def _parts(
    log: RawLog, hints: Hints, columns: Mapping[str, Floats], step: Floats, busy: Bools, rewarded: Bools, lines: Ints
) -> dict[str, Run]:
    """The run of each text of a column such as env, where that tells the rows of a step apart; else empty."""
    found = scopes.labelled(log, step, busy & rewarded)
    if found is None:
        return {}
    key, of_row = found
    own = {name: column for name, column in columns.items() if name != "step"} | {"step": step}
    runs = {}
    for text in dict.fromkeys(of_row.values()):
        rows = np.zeros(len(step), bool)
        rows[[row for row, other in of_row.items() if other == text]] = True
        if (rows & busy).any():
            name = f"{log.name or log.source.resolve().name}, {text}"
            runs[text] = normalize(scopes.part(log, own, rows, lines, name), replace(hints, run=None, average=False))
    log.notes.append(
        f"{len(runs)} rows per step, distinguished by {visible(key, 40)}: the run is their mean, and "
        "each is a scope of its own"
    )
    return runs


def _trained(columns: Mapping[str, Floats]) -> list[str]:
    """Keys of metrics that are not evaluated, as far as their names say."""
    return [key for key in columns if key not in CLOCKS and not roles.may_be_evaluated(key)]


def _reward(trainer: Trainer, columns: Mapping[str, Floats], raw: Mapping[str, str], log: RawLog) -> dict[str, str]:
    """ "reward" -> its key, where the trainer knows none but the words of the keys say it; UndecidedError where not.

    Empty where the trainer knows one, in a log of nothing but evaluations, and where others are those of a policy.
    """
    trained = {key: columns[key] for key in _trained(columns)}
    defined = set(trainer.definitions(trained, {}, 1)[0].values())
    if defined & set(VARIANTS["reward"]):
        return {}
    if (key := rewards.found(trained)) is not None:
        shown = raw.get(key, key)
        log.notes.append(rewards.taken(shown, columns[key]))
        return {"reward": key}
    if trainer.without_reward:
        log.notes.append(trainer.without_reward)
        return {}
    own = trainer.usual_keys is not None
    may_be = rewards.candidates(trained)
    if not may_be and {trainer.metric_or_usual(key) for key in trained} >= OF_A_POLICY:
        log.notes.append("no key is named as a reward, but the other metrics are those of reinforcement learning")
        return {}
    if (own and may_be) or not any(rewards.SIGNAL.search(key) for key in columns):
        raise _text_reward(log) or rewards.undecided(log.source, "key", _listed(trainer, columns, raw, may_be))
    return {}


def _listed(
    trainer: Trainer, columns: Mapping[str, Floats], raw: Mapping[str, str], may_be: Sequence[str]
) -> list[Seen]:
    """The keys of a log without a reward: candidates first, then those without a known meaning, then clocks."""
    order = sorted(columns, key=lambda key: (key in CLOCKS, trainer.metric_or_usual(key) is not None))
    return rewards.seen({raw.get(key, key): columns[key] for key in order}, [raw.get(key, key) for key in may_be])


def _kinds(log: RawLog, columns: dict[str, Floats], step: Floats, rewarding: Sequence[str]) -> row_kinds.Kinds:
    """The kinds of the rows; values that are no parts of the training are taken out of the columns."""
    metrics = {key: column for key, column in columns.items() if key not in CLOCKS}
    try:
        kinds = row_kinds.of_rows(log.rows.labels, row_kinds.Cells(metrics, step, rewarding))
    except UserError as error:
        raise UserError(f"{log.source}: {error}") from None
    for key, rows in kinds.blanked:
        columns[key] = np.where(rows, np.nan, columns[key])
    log.notes += kinds.notes
    return kinds


def _unprefixed(columns: dict[str, Floats]) -> tuple[dict[str, Floats], dict[str, str]]:
    """Columns under the keys that `_plain` makes, and new key -> key in the log.

    A common prefix train/ is taken off, as are metrics/ and what all keys begin with.
    """
    plain = {key: _plain(key) for key in columns}
    firsts = {key.partition("/")[0] for key in plain.values()}
    meaning = any(one in roles.WORDS or rewards.SIGNAL.search(one) for one in firsts)
    if len(firsts) == 1 < len(plain) and all("/" in key for key in plain.values()) and not meaning:
        plain = {key: short.partition("/")[2] for key, short in plain.items()}
    strip = sum(key.startswith("train/") for key in plain.values()) >= 3
    renamed: dict[str, Floats] = {}
    raw: dict[str, str] = {}
    for key, column in columns.items():
        new = plain[key].removeprefix("train/") if strip else plain[key]
        new = new if new not in columns and new not in renamed else key
        renamed[new] = column
        if new != key:
            raw[new] = key
    return renamed, raw


def _plain(key: str) -> str:
    """A key with slashes between its parts, without spaces around them and without the word metrics in front."""
    key = re.sub(r" */ *", "/", key) if " / " in key else key
    key = _DOT.sub("/", key) if "/" not in key or key.startswith("metrics/") else key
    return key.removeprefix("metrics/")


def _given(columns: Mapping[str, Floats], raw: Mapping[str, str], hints: Hints, log: RawLog) -> dict[str, str]:
    """Metric -> column, as the user says; UserError for a key that is not in the log, or that already counts steps."""
    given: dict[str, str] = {}
    for metric, key in hints.columns.items():
        same = _same(key, columns, raw)
        if len(same) != 1:
            some = ", ".join([visible(raw.get(name, name), 60) for name in columns][:12])
            raise UserError(f"{log.source}: no key {visible(key, 60)!r}; its keys are {some}")
        if same[0] == "step" and metric != "step":
            raise UserError(
                f'{log.source}: the key "step" counts steps and cannot be {metric}; give another key for '
                f"{metric}, or rename it in the log"
            )
        given[metric] = same[0]
    return given


def _same(key: str, columns: Mapping[str, Floats], raw: Mapping[str, str]) -> list[str]:
    """Columns that a user may mean by a key: of that name, else of that name in the log, else of one that is alike."""
    exact = [name for name in columns if name == key] or [name for name in columns if raw.get(name) == key]
    alike = [name for name in columns if _loose(key) in (_loose(name), _loose(raw.get(name, name)))]
    return exact or alike


def _loose(key: str) -> str:
    """A key in lower case, with slashes for dots, and without train/ in front."""
    return _plain(key.lower()).removeprefix("train/")


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
    return meant or [key for key in training if rewards.SIGNAL.search(key)]


def _text_reward(log: RawLog) -> UserError | None:
    """Why the rewards of a log cannot be read that are texts with a decimal comma; None where there are none."""
    for key, texts in log.rows.texts.items():
        if rewards.SIGNAL.search(key) and (example := next(filter(_COMMA.fullmatch, texts.examples), None)):
            where = f"{log.source}, {log.place} {texts.line}"
            said = (
                f"{visible(key, 60)} is {visible(example, 40)!r}, a number with a decimal comma; write a decimal point"
            )
            return UserError(f"{where}: {said}")
    return None


def _step(columns: Mapping[str, Floats], notes: list[str], given: str | None, counters: Sequence[str]) -> Floats:
    """The step of each row by the key `given`, else by the trainer's own, else the most reliable one.

    NaN for all where none counts steps. counters: as in `Trainer`.
    """
    count = len(next(iter(columns.values())))
    own = [columns[key] for key in counters if key in columns and np.isfinite(columns[key]).any()]
    if len(own) > 1 and given is None:
        return _by_counters(own, notes)
    best, most = given, 0
    for key in STEPS if given is None else ():
        if key in columns and (finite := int(np.isfinite(columns[key]).sum())) > 1.5 * most:
            best, most = key, finite
    if best is None:
        notes.append("no key counts steps, so rows are numbered from 1")
        return np.full(count, np.nan)
    step = columns[best].copy()
    step[~(np.abs(step) < 2.0**53)] = math.nan
    if best == "_step":
        notes.append("steps count calls of wandb.log (_step), which may differ from optimiser steps")
    return step


def _by_counters(counters: Sequence[Floats], notes: list[str]) -> Floats:
    """The step of rows of different kinds by the counter of each; of k updates to a rollout, the rollouts' times k."""
    updates, *others = counters
    times = max(1, round((float(np.nanmax(updates)) + 1) / (max(float(np.nanmax(one)) for one in others) + 1)))
    step = updates.copy()
    for counter in others:
        step = np.where(np.isnan(step), counter * times, step)
    if times > 1:
        notes.append(f"each rollout has {times} updates: steps count updates")
    return step


def _counted(step: Floats, busy: Bools) -> Floats:
    """The steps; where no key counts them (all NaN), rows of training are numbered from 1."""
    if len(step) and not np.isnan(step).all():
        return step
    return np.where(busy, np.cumsum(busy), np.nan)


def _of_the_row_before(step: Floats, busy: Bools, evaluated: Bools, notes: list[str]) -> Floats:
    """The steps, with that of the row of training before for an evaluation without one."""
    without = evaluated & np.isnan(step)
    if not without.any():
        return step
    before = np.maximum.accumulate(np.where(busy & np.isfinite(step), np.arange(len(step)), -1))
    found = without & (before >= 0)
    notes.append(f"{int(found.sum())} evaluations have no step; each is placed at the row before it")
    return np.where(found, step[before], step)


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
        raise UserError(f"{log.source}: no row has a step and a training metric; give the trainer's own log")
    clocks = frozenset(key for key in table if key in CLOCKS or key.startswith(TIMES))
    if (order := interleaved.order(table, clocks)) is not None:
        table, places = {key: column[order] for key, column in table.items()}, places[order]
        log.notes.append("rows of several programs, one ahead of the others, were joined by step")
    merged = same_step.merge(table, clocks, [table[key] for key in rewards if key in table], average, str(log.source))
    log.notes += merged.notes
    return _without_copies(merged.table, log), places[merged.starts]


def _without_copies(table: dict[str, Floats], log: RawLog) -> dict[str, Floats]:
    """The table without values that were copied onto the steps after them."""
    copied = {}
    for key, column in table.items():
        if key not in CLOCKS and not _SCHEDULED.search(key) and (rows := staircase.copies(column)) is not None:
            copied[key] = np.where(rows, np.nan, column)
    if copied:
        some = ", ".join(visible(key, 40) for key in list(copied)[:4]) + (", …" if len(copied) > 4 else "")
        log.notes.append(
            f"values of {len(copied)} keys were copied onto the steps after them ({some}); each counts once"
        )
    return {**table, **copied}


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
            f"{log.source}: the step goes back {len(cuts)} times in {len(step)} rows, so this is not one run; "
            "give the metrics of one run, one row per step"
        )
    edges = [0, *cuts.tolist(), len(step)]
    keep = np.zeros(len(step), bool)
    limit = math.inf
    for begin, end in reversed(list(itertools.pairwise(edges))):
        keep[begin:end] = step[begin:end] < limit
        limit = min(limit, step[begin])
    log.notes.append(
        f"restarted {_times(len(cuts))}, first in {log.place} {places[cuts[0]]} (step {step[cuts[0]]:g} "
        f"after {step[cuts[0] - 1]:g}): the last attempt of every step is used, {int(keep.sum())} of "
        f"{len(step)} rows"
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
        notes.append(
            f"each row is the mean over {window} steps (logging_steps), which hides spikes and lowers variances"
        )
    return max(window, 1)


def _renamed(table: Mapping[str, Floats], defined: Mapping[str, str]) -> dict[str, Floats]:
    return {defined.get(key, key): column for key, column in table.items()}


@dataclass(frozen=True)
class _Evaluated:
    """A column of evaluations: its key, the metric that it is, and its rows (N,)."""

    key: str
    metric: str
    rows: Bools


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
    sources = [
        _Evaluated(key, _evaluated_metric(trainer, key, name), ~np.isnan(columns[key]) & chosen & np.isfinite(step))
        for key, name in evaluated.items()
        if not roles.is_version(name)
    ]
    if held_out.any():
        sources += [
            _Evaluated(key, trainer.metric_or_usual(key) or key, held_out & ~np.isnan(columns[key]) & np.isfinite(step))
            for key in training
            if key not in CLOCKS
        ]
    trained = _any(columns, [key for key in training if key not in CLOCKS], len(step)) & chosen & ~held_out
    sources = _of_training(_once(sources, columns, notes), step, trained, notes)
    values: dict[tuple[float, str], list[float]] = {}
    for one in sources:
        for row in np.flatnonzero(one.rows):
            values.setdefault((float(step[row]), one.metric), []).append(float(columns[one.key][row]))
    one_each = bool(held_out.any())
    again = sum(len(repeated) - 1 for repeated in values.values())
    if again:
        which = "their mean" if one_each else "the last of each step"
        notes.append(f"{again} evaluations repeat a step; {which} is kept")
    rows = [
        (int(at), name, *_of_step(repeated, bool(held_out.any()))) for (at, name), repeated in sorted(values.items())
    ]
    return Evaluations.of_rows([(*row, "" if row[-1] else "no standard error in the log") for row in rows])


def _of_step(repeated: Sequence[float], one_each: bool) -> tuple[float, float, int]:
    """The value of a step with its standard error and n, from what was logged for it.

    one_each: every row has one problem or game, so that the step has their mean; else a later value replaces the first.
    """
    if not one_each or len(repeated) == 1:
        return repeated[-1], math.nan, 0
    return float(np.mean(repeated)), float(np.std(repeated, ddof=1)) / math.sqrt(len(repeated)), len(repeated)


def _evaluated_metric(trainer: Trainer, key: str, name: str) -> str:
    return key if key.startswith(("val-core", "val-aux")) else trainer.metric_or_usual(name) or name


def _once(sources: Sequence[_Evaluated], columns: Mapping[str, Floats], notes: list[str]) -> list[_Evaluated]:
    """The evaluations without those that were copied onto the rows after them."""
    found = []
    for one in sources:
        rows = staircase.copies(np.where(one.rows, columns[one.key], np.nan))
        found.append(one if rows is None else replace(one, rows=one.rows & ~rows))
    copied = sum(one is not other for one, other in zip(sources, found, strict=True))
    if copied:
        notes.append(f"values of {copied} evaluations were copied onto the rows after them; each counts once")
    return found


def _of_training(
    sources: Sequence[_Evaluated], step: Floats, trained: Bools, notes: list[str]
) -> list[_Evaluated]:  # fmt: skip
    """The evaluations up to the first after the last row of training: any further one is of the same weights."""
    last = float(np.max(step[trained & np.isfinite(step)], initial=-math.inf))
    after = np.unique(step[np.logical_or.reduce([one.rows for one in sources])]) if sources else np.empty(0)
    after = after[after > last]
    if len(after) < 2 or not np.isfinite(last):
        return list(sources)
    notes.append(
        f"evaluations at {len(after) - 1} steps after the last row of training ({last:g}) were left out, "
        "because no training happened between them"
    )
    return [replace(one, rows=one.rows & (step <= after[0])) for one in sources]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
