"""The rows of a log on their way to a Run, as the steps of `logs.normalize` hand them on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from grposcope.core.run import Bools, Evaluations, Floats, Ints, Run, Segment, Sparse, no_evaluations
from grposcope.logs.columns import RawLog
from grposcope.logs.hints import Hints
from grposcope.logs.keys import CLOCKS
from grposcope.logs.trainers import generic
from grposcope.logs.trainers.trainer import Made, Trainer

_NO_ROWS = np.zeros(0, bool)


@dataclass(frozen=True)
class LogTable:
    """A log of N rows, and the table of M optimiser steps that is made of them.

    Every step of `logs.normalize` returns a table with some fields set or changed; the fields stand in that order.

    log, hints: what the reader found, and what the user says.
    lines: (N,) where the rows stand in the log. columns: key -> (N,), NaN where a row has no value; a step may change
    the keys, never the arrays. sparse: keys without a column of their own.
    notes: a sentence for what was assumed, joined or left out.
    raw: key -> key in the log, where it has another name here.
    given: metric -> its key, as the user says or as the words of a key do.
    engine, trainer: whose log it is, and whose tables of keys hold for it.
    step: (N,) NaN where it is not known.
    rewarding: keys of the reward. rewarded: rows (N,) of training with a reward.
    held_out: rows (N,) of evaluation. left_out: rows (N,) of other kinds.
    evaluated: key -> its name, of keys that were evaluated apart from training. training: all other keys.
    busy, scored: rows (N,) of training, and with a key that was evaluated. chosen: rows (N,) of the run that is read.
    summary: what the last row says of the run as a whole.
    parts: environment -> its run, where rows of one step are of different ones.
    table: key -> (M,), a row per optimiser step. places: (M,) where each stands. segments: one per restart.
    window: optimiser steps that each row is the mean over. settings: of the trainer, under our names.
    defined: key -> metric. made: metrics that follow from several keys. defects: names of those the log has.
    evaluations: scores apart from training.
    """

    log: RawLog
    hints: Hints
    lines: Ints
    columns: Mapping[str, Floats]
    sparse: Mapping[str, Sparse]
    notes: tuple[str, ...] = ()
    raw: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""
    trainer: Trainer = generic.GENERIC
    step: Floats = field(default_factory=lambda: np.empty(0))
    rewarding: tuple[str, ...] = ()
    rewarded: Bools = field(default_factory=lambda: _NO_ROWS)
    held_out: Bools = field(default_factory=lambda: _NO_ROWS)
    left_out: Bools = field(default_factory=lambda: _NO_ROWS)
    evaluated: Mapping[str, str] = field(default_factory=dict)
    training: tuple[str, ...] = ()
    busy: Bools = field(default_factory=lambda: _NO_ROWS)
    scored: Bools = field(default_factory=lambda: _NO_ROWS)
    chosen: Bools = field(default_factory=lambda: _NO_ROWS)
    summary: Mapping[str, Any] | None = None
    parts: Mapping[str, Run] = field(default_factory=dict)
    table: Mapping[str, Floats] = field(default_factory=dict)
    places: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    segments: tuple[Segment, ...] = ()
    window: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    defined: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, Made] = field(default_factory=dict)
    defects: tuple[str, ...] = ()
    evaluations: Evaluations = field(default_factory=no_evaluations)

    def noting(self, *notes: str, **changes: Any) -> LogTable:
        """The table with further notes, and with these fields changed."""
        return replace(self, notes=(*self.notes, *notes), **changes)

    def key_in_log(self, key: str) -> str:
        """A key as the log writes it."""
        return self.raw.get(key, key)

    def rows_with(self, keys: Iterable[str]) -> Bools:
        """Rows (N,) in which any of the keys has a value, clocks aside."""
        present = np.zeros(len(self.lines), bool)
        for key in keys:
            if key in CLOCKS:
                continue
            present |= ~np.isnan(self.columns[key])
            if present.all():
                break
        return present
