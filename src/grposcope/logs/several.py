"""Several runs in one log: told apart by a label such as run_id, or by steps that begin anew; the user says which.

A step that falls back to the first one begins another run, unless less than FEWEST steps came before it, which were a
false start. A step that falls back to a later one goes on from a checkpoint, and is the same run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from grposcope.core.run import Bools, Floats, Ints
from grposcope.core.text import visible
from grposcope.logs.columns import RUNS, RawLog
from grposcope.logs.hints import LAST, UndecidedError

NUMBERED = (*RUNS, "seed", "trial", "fold")
"""Keys whose number, or text for those of RUNS, names the run of a row."""

FEWEST = 12
"""Steps below which a beginning is a false start: nothing could be said of it anyway."""

_SHOWN = 6


def chosen(
    log: RawLog, columns: Mapping[str, Floats], step: Floats, training: Bools, lines: Ints, run: int | None
) -> Bools:
    """Rows (N,) of the run number `run` (from 1, LAST for the last); all rows of a log of one run.

    training (N,): rows of training. UndecidedError, which lists the runs, where there are several and none is named.
    """
    of_row, names = _labelled(log, columns, len(step))
    if len(names) < 2:
        of_row = _begun_anew(step, training)
        names = [""] * (int(of_row.max(initial=0)) + 1)
    if len(names) < 2 and (log.numbered or run in (None, LAST, 1)):
        return np.ones(len(step), bool)
    told = [_told(k, name, of_row == k, step, training, lines, log.place) for k, name in enumerate(names)]
    which = len(names) - 1 if run == LAST else -1 if run is None else run - 1
    if not 0 <= which < len(names):
        more = f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
        many = f"{len(names)} runs" if len(names) > 1 else "one run only"
        raise UndecidedError(f"{log.source}: {many} in it: {'; '.join(told[:_SHOWN])}{more}", "run")
    log.notes.append(f"of {len(names)} runs in this log, this is {told[which]}")
    return of_row == which


def _told(number: int, name: str, rows: Bools, step: Floats, training: Bools, lines: Ints, place: str) -> str:
    """A run in words: its number and label, its steps, and where it stands."""
    own = np.flatnonzero(rows & training & np.isfinite(step))
    label = f" ({visible(name, 60)})" if name else ""
    if not len(own):
        return f"{number + 1}{label}: no steps"
    first, last = step[own].min(), step[own].max()
    return f"{number + 1}{label}: steps {first:g} to {last:g}, from {place} {lines[own[0]]}"


def _labelled(log: RawLog, columns: Mapping[str, Floats], count: int) -> tuple[Ints, list[str]]:
    """Run of each row by a label, and the labels in order; rows without one belong to the run before them."""
    for key in NUMBERED:
        texts: Mapping[int, str] = log.rows.labels.get(key, {}) if key in RUNS else {}
        if not texts and key in columns:
            numbers = columns[key]
            texts = {int(row): f"{key} {numbers[row]:g}" for row in np.flatnonzero(np.isfinite(numbers))}
            if len(set(texts.values())) * FEWEST > len(texts):  # a number that changes all the time is no label
                continue
        names = list(dict.fromkeys(texts.values()))
        if len(names) > 1:
            of_row, now = np.zeros(count, np.int64), 0
            places = {name: k for k, name in enumerate(names)}
            for row in range(count):
                now = places[texts[row]] if row in texts else now
                of_row[row] = now
            return of_row, names
    return np.zeros(count, np.int64), [""]


def _begun_anew(step: Floats, training: Bools) -> Ints:
    """Run of each row by its steps; rows that are not of training belong to the run before them."""
    rows = np.flatnonzero(training & np.isfinite(step))
    of_row = np.zeros(len(step), np.int64)
    falls = rows[1:][np.diff(step[rows]) < 0]
    begin, run = 0, 0
    for fall in falls.tolist():
        before = step[rows[(rows >= begin) & (rows < fall)]]
        if len(before) and step[fall] <= before.min() and len(np.unique(before)) >= FEWEST:
            run, begin = run + 1, fall
            of_row[fall:] = run
    return of_row
