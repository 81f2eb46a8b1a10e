"""Any run in progress: its metrics as lines of text, and what is wrong with it, said once per onset.

A record of ours is followed by what is appended to it; the log of another trainer is read again when it changed.
Either is judged when it has grown by a tenth. Reading and judging again take at most READING of the time.
"""

from __future__ import annotations

import json
import math
import textwrap
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.diagnosis.alarms import Alarm, Alarms
from grposcope.diagnosis.quantities import Quantities
from grposcope.errors import UserError
from grposcope.facts.diagnosis import alarm_line, flagged_modes, verdict
from grposcope.formatting import number, percent, visible
from grposcope.report import live_record
from grposcope.runs.metrics import metric, variant
from grposcope.runs.run import Run
from grposcope.runs.tail import READING, Log, Pace

SHOWN = ("reward", "dead_fraction", "entropy", "kl", "kl_old", "length", "truncated", "clip", "grad_norm")
"""Quantities with a line of their own in the log of another trainer; each by its nearest relative."""

RECORD = "grposcope"
"""Folder within another trainer's output folder that a callback of ours records to."""

SAID = 4
"""Alarms that stay on the screen."""


class Watching:
    """A run while it goes, whoever writes it; the path need not exist yet. minor: minor modes to raise as well."""

    def __init__(self, path: Path, settings: Mapping[str, Any] | None = None, minor: Collection[str] = ()):
        self.path = path
        self.settings = settings
        self.own: live_record.Watched | None = None
        self.log = Log(path, settings)
        self.alarms = Alarms(minor=minor)
        self.verdict = ""
        self.problem = ""
        self._pace = Pace(READING)

    @property
    def ended(self) -> bool:
        """Whether the record says that the run is over."""
        if self.own is not None:
            return self.own.ended
        return self.log.run is not None and not self.problem and self.log.run.meta.status in live_record.ENDED

    def look(self, now: float) -> list[Alarm]:
        """Read what is new, and judge it if it is time; the alarms that are new.

        `problem` says why a log of another trainer cannot be read now. UserError for a broken record of ours.
        """
        place = self.path / RECORD if _ours(self.path / RECORD) else self.path
        if self.own is None and _ours(place):
            self.own, self.log = live_record.Watched(place), Log(place, self.settings)
        if self.own is not None:
            self.own.look(now)
            self.problem = ""
            rows = len(self.own.columns.get("reward", ()))
            return self._judge(rows, self.own.ended) if rows else []
        if not self.path.parent.is_dir():
            raise UserError(f"there is no folder {self.path.parent}; give the path of a run, even one that is to begin")
        return self._judge()

    def _judge(self, rows: int | None = None, ended: bool = False) -> list[Alarm]:
        """Judge a record of `rows` rows, or a log of which the rows are known when it is read."""
        due = rows is None or self.alarms.due(rows) or (ended and rows > self.alarms.rows)
        if not (due and (ended or self._pace.ready())):
            return []
        began = time.perf_counter()
        self.log.look()
        run, self.problem = self.log.run, self.log.problem
        if self.problem and rows is not None:
            raise UserError(self.problem)
        new: list[Alarm] = []
        if run is not None and not self.problem and (self.alarms.due(run.steps) or self._over(run)):
            new = self.alarms.look(run)
            self.verdict = str(verdict(run, self.alarms.findings)) if self.alarms.findings else ""
        self._pace.spent(time.perf_counter() - began)
        return new

    def _over(self, run: Run) -> bool:
        return run.meta.status in live_record.ENDED and run.steps > self.alarms.rows

    def frame(self, now: float, width: int) -> str:
        """One look, as lines of at most `width` characters."""
        if self.own is not None:
            return live_record.frame(self.own, now, width, self._judged(width))
        name = visible(str(self.path))
        if self.log.run is None and not self.log.changed:
            return f"{name}: not begun; waiting for it"
        if self.log.run is None:
            return "\n".join(textwrap.wrap(f"{name}: waiting; {visible(self.problem, 500)}", width))
        rows = [f"{visible(self.log.run.meta.name)} · {self.log.run.meta.engine}", *_metrics(self.log.run, width)]
        rows += self._judged(width)
        if self.problem:
            rows += ["", *textwrap.wrap(f"! {visible(self.problem, 500)}", width)]
        if not self.ended:
            rows += ["", live_record.written(now, self.log.changed)]
        return "\n".join(row[:width] for row in rows)

    def summary(self, now: float) -> dict[str, Any]:
        """The same for programs."""
        run = self.log.run
        judged = {
            "verdict": self.verdict or None,
            "flagged": flagged_modes(self.alarms.findings),
            "alarms": self.alarms.raised,
        }
        if self.own is not None:
            return live_record.summary(self.own, now) | judged
        if run is None:
            return {"run": str(self.path), "phase": "not begun", "step": 0, "problem": self.problem} | judged
        latest = {name: float(run.table[found][-1]) for name in SHOWN if (found := variant(name, run.table))}
        return {
            "run": str(self.path),
            "phase": run.meta.status,
            "step": _last(run),
            "steps": run.setting("steps"),
            "engine": run.meta.engine,
            "latest": latest,
            "problem": self.problem or None,
        } | judged

    def _judged(self, width: int) -> list[str]:
        """The verdict and the last alarms."""
        rows = ["", *textwrap.wrap(visible(self.verdict, 600), width)] if self.verdict else []
        for alarm in self.alarms.raised[-SAID:]:
            rows += textwrap.wrap(f"✗ {visible(alarm_line(alarm), 600)}", width, subsequent_indent="  ")
        return rows


def _ours(folder: Path) -> bool:
    """Whether it holds a record of ours."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "format" in config


def _metrics(run: Run, width: int) -> list[str]:
    """Progress, and a line per quantity that says something."""
    planned = run.setting("steps") or run.setting("max_steps")
    of = f" of {planned:,}" if isinstance(planned, int) else ""
    rows = [f"step {_last(run):,}{of} · {run.meta.status}", ""]
    for quantity in SHOWN:
        name = variant(quantity, run.table)
        values = run.table[name].tolist() if name else []
        if name and any(math.isfinite(value) and value != 0 for value in values):
            rows.append(live_record.line(metric(name).title, values, live_record.shown(name, values[-1]), width))
        if quantity == "reward" and (held := Quantities(run).heldout) is not None:
            last = float(held.values[-1])
            said = percent(last) if held.values.min() >= 0 and held.values.max() <= 1 else number(last)
            title = "Held-out " + visible(held.name, 40)
            rows.append(live_record.line(title, held.values.tolist(), f"{said} at step {int(held.steps[-1]):,}", width))
    return rows


def _last(run: Run) -> int:
    steps = run.table["step"]
    return int(steps[-1]) if len(steps) and np.isfinite(steps[-1]) else 0
