"""A run in progress: its progress, its main metrics as sparklines, and each failure once when it begins.

A record of GRPOscope is read as it grows; the log of another trainer is read again when it changed. Either is diagnosed
when it has grown by a tenth. Reading and diagnosing again take at most READING of the time, or RESTING pass between.
"""

from __future__ import annotations

import math
import os
import platform
import textwrap
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.files import MEND, is_whole, json_number
from grposcope.core.finding import Finding, document
from grposcope.core.metrics import VARIANTS, metric, variant
from grposcope.core.not_finite import not_finite_in
from grposcope.core.run import Floats, Run
from grposcope.core.text import duration, number, percent, span, sparkline, visible
from grposcope.faults import looks
from grposcope.instruments.diagnosis import learning
from grposcope.instruments.diagnosis.verdict import Verdict, findings_of, present_faults, verdict
from grposcope.logs import remote
from grposcope.logs.hints import Hints
from grposcope.logs.native import schema
from grposcope.logs.native.schema import ENDED, RunConfig, RunPhase
from grposcope.logs.sources import OVERFLOW
from grposcope.logs.tail import READING, RESTING, GrowingLog, Pace, Tail
from grposcope.logs.trainers.trl_output import RECORD
from grposcope.maths.intervals import interval
from grposcope.maths.timeseries.change import LATE
from grposcope.maths.timeseries.level import rows
from grposcope.signs import heldout
from grposcope.signs.quantities import MetricSeries
from grposcope.watch.advice import Advice, Adviser
from grposcope.watch.alarms import Alarms
from grposcope.watch.changes import WatchedState
from grposcope.watch.text_looks import TextLooks
from grposcope.watch.wording import alarm_line

SHOWN = (
    "reward", "dead_fraction", "entropy", "kl", "kl_old", "mismatch", "staleness", "length", "truncated", "clip",
    "grad_norm", "tokens_per_second",
)  # fmt: skip
"""Quantities with a line of their own where they have values, each by its first variant that is logged."""

TIMES = ("time", "seconds_sample", "seconds_grade", "seconds_update")
COLUMNS = {name for quantity in SHOWN for name in VARIANTS.get(quantity, (quantity,))} | {*TIMES}
"""Columns that are kept of a record."""

ALARMS_SHOWN = 4
"""Latest alarms that stay on the screen."""

TITLE = 25
"""Characters for the name of a metric."""

RECENT = 50
"""Steps from which the speed is taken."""

SILENT, UNTIMED = 60.0, 1800.0
"""Seconds without a row after which a run may have stalled, where a step takes less than a tenth of it; and where it is
not known how long a step takes."""

CLOCKS = ("time", "wall_time", "_timestamp", "timestamp")
"""Columns of a log that may hold seconds since 1970."""

Values = Sequence[float] | Floats


@dataclass(frozen=True)
class _Snapshot:
    """A run at one look, whoever writes it: all that the screen and the JSON summary show of its progress.

    title: name of the run and what it does. planned: steps, None if unknown. changed: when the run was last written,
    in seconds since 1970. metrics: quantity -> its column and all values. score: name of the held-out score. heldout:
    (step, score) of every evaluation. seconds_per_step, seconds_left: NaN where unknown. stalled: a warning if
    nothing was written for long. problem: why the log cannot be read.
    """

    place: Path
    title: str = ""
    engine: str = ""
    phase: str = "not begun"
    step: int = 0
    planned: int | None = None
    ended: bool = False
    changed: float = 0.0
    metrics: Mapping[str, tuple[str, Values]] = field(default_factory=dict)
    score: str = ""
    heldout: Sequence[tuple[int, Estimate]] = ()
    seconds_per_step: float = math.nan
    seconds_left: float = math.nan
    stalled: str = ""
    problem: str = ""
    rows: int = 0


class Watcher:
    """A run while it goes, whoever writes it; the path need not exist yet. minor: minor modes to raise as well.

    While it goes, findings and verdict are those of the last look, whose level allows for the looks before; of a run
    that ended they are those of `diagnose`. learned: what became of it, empty before two evaluations. adviser: gives
    `advice`, where it is asked for.
    """

    def __init__(
        self, path: Path, hints: Hints | None = None, minor: Collection[str] = (), adviser: Adviser | None = None
    ):
        self.adviser = adviser
        self.advice: tuple[Advice, ...] = ()
        self.path = path
        self.hints = hints
        self.record: _GrowingRecord | None = None
        self.log = GrowingLog(path, hints)
        self.alarms = Alarms(minor=minor)
        self.texts = TextLooks(READING, at_once=True)
        self.findings: tuple[Finding, ...] = ()
        self.verdict: Verdict | None = None
        self.learned = ""
        self.problem = ""
        self._pace = Pace(READING, longest=RESTING)
        self._odd: set[str] = set()
        self._read: tuple[tuple[object, ...], _Snapshot] | None = None
        self._drawn: tuple[tuple[object, ...], list[str]] | None = None

    @property
    def question(self) -> str:
        """Field of Hints that the log needs to be read; empty where it needs none."""
        return self.log.question

    @property
    def ended(self) -> bool:
        """Whether the record or log says that the run is over."""
        if self.record is not None:
            return self.record.ended
        return self.log.run is not None and not self.problem and self.log.run.meta.status in ENDED

    def look(self, now: float) -> list[Finding]:
        """Read what is new, and diagnose it if it is time; returns the new alarms.

        `problem` says why a log of another trainer cannot be read now. UserError for a broken record of GRPOscope.
        """
        record = self.path / RECORD if schema.is_record(self.path / RECORD) else self.path
        if self.record is None and schema.is_record(record):
            self.record, self.log = _GrowingRecord(record), GrowingLog(record, self.hints)
        if self.record is not None:
            self.record.look(now)
            self.problem = ""
            return self._diagnose(self.record.rows, self.record.ended) if self.record.rows else []
        if not self.path.parent.is_dir():
            if remote.address(self.path) is not None:
                raise UserError(f"{self.path}: watch follows files; use diagnose for a run that another program keeps")
            raise UserError(f"there is no folder {self.path.parent}; give the path of a run, which may begin later")
        return self._diagnose()

    def _diagnose(self, rows: int | None = None, ended: bool = False) -> list[Finding]:
        """Diagnose a record of `rows` rows, or a log, whose rows are known only once it is read."""
        odd = set() if self.record is None else self.record.not_finite
        urgent, self._odd = not odd <= self._odd, odd
        if not (urgent or self._is_time(rows, ended)):
            return []
        began = time.perf_counter()
        self.log.look()
        run, self.problem = self.log.run, self.log.problem
        if self.problem and rows is not None:
            raise UserError(self.problem)
        new = [] if run is None or self.problem else self._judged(run)
        self._pace.spent(time.perf_counter() - began)
        return new

    def _is_time(self, rows: int | None, ended: bool) -> bool:
        """Whether a look costs next to nothing, or is due and there is time for it."""
        if rows is not None and self.alarms.free(rows):
            return True
        due = rows is None or self.alarms.due(rows) or (ended and rows > self.alarms.rows)
        return due and (ended or self._pace.ready())

    def _judged(self, run: Run) -> list[Finding]:
        """Judge a run as it stands, if it grew enough, ended or is in danger; returns the new alarms."""
        over = run.meta.status in ENDED
        ended = over and run.steps > self.alarms.rows
        if not (self.alarms.due(run.steps) or ended or self.alarms.urgent(run)):
            return []
        going = looks.first_rows(run, run.steps, "running") if run.meta.status == "unknown" else run
        new = self.alarms.look(going, self.texts.look(run.rollouts, now=ended))
        self.findings = findings_of(run) if over else self.alarms.findings
        self.verdict = verdict(run, self.findings) if self.findings else None
        self.advice = self.advice if self.adviser is None else self.adviser(run, self.alarms.raised)
        self.learned = learning.of_run(run).sentence if len(learning.evaluations(run)) > 1 else ""
        return new

    def snapshot(self, now: float) -> _Snapshot:
        """The run as it was at the last look."""
        if self.record is not None:
            return self.record.snapshot(now)
        read = (id(self.log.run), self.log.changed, self.problem)
        if self._read is None or self._read[0] != read:
            self._read = (read, _of_log(self.log, self.problem))
        run = self._read[1]
        silent = now - run.changed if run.rows and not run.ended else 0.0
        return replace(run, stalled=_silence(silent, run.seconds_per_step, UNTIMED))

    def state(self, now: float) -> WatchedState:
        """What the last look found, to be compared with that of another look."""
        run = self.snapshot(now)
        problem = run.problem if run.changed else ""
        return WatchedState(run.step, self.verdict, self.findings, run.stalled, problem, self.advice)

    def screen(self, now: float, width: int) -> str:
        """The run as lines of at most `width` characters."""
        run = self.snapshot(now)
        if not run.title:
            name = visible(str(run.place))
            if not run.changed:
                return f"{name} has not begun; waiting for it"
            return "\n".join(textwrap.wrap(f"{name}: waiting; {visible(run.problem, 500)}", width))
        rows = [visible(run.title), _progress(run, width), "", *self._metric_lines(run, width)]
        if self.learned:
            rows += ["", *textwrap.wrap(visible(self.learned), width)]
        if self.verdict:
            rows += ["", *textwrap.wrap(visible(str(self.verdict), 900), width)]
        for alarm in self.alarms.raised[-ALARMS_SHOWN:]:
            rows += textwrap.wrap(f"✗ {visible(alarm_line(alarm), 600)}", width, subsequent_indent="  ")
        for decision in self.advice[-ALARMS_SHOWN:]:
            rows += textwrap.wrap(visible(f"→ {decision}", 600), width, subsequent_indent="  ")
        warning = run.stalled or run.problem
        if warning:
            rows += ["", *textwrap.wrap(f"! {visible(warning, 500)}", width)]
        if not run.ended:
            rows += ["", f"last written {duration(max(now - run.changed, 0))} ago"]
        return "\n".join(row[:width] for row in rows)

    def _metric_lines(self, run: _Snapshot, width: int) -> list[str]:
        """A line per metric, drawn again only where something was read."""
        drawn = (id(self.log.run), run.rows, run.changed, len(run.heldout), width)
        if self._drawn is None or self._drawn[0] != drawn:
            self._drawn = (drawn, _metrics(run, width))
        return self._drawn[1]

    def summary(self, now: float) -> dict[str, Any]:
        """The run as a JSON document."""
        run = self.snapshot(now)
        latest = {name: float(run.metrics[name][1][-1]) if name in run.metrics else None for name in SHOWN}
        return {
            "run": str(run.place),
            "phase": run.phase,
            "step": run.step,
            "steps": run.planned,
            "engine": run.engine or None,
            "seconds_per_step": run.seconds_per_step,
            "seconds_left": run.seconds_left,
            "heldout": {"step": run.heldout[-1][0], run.score: run.heldout[-1][1]} if run.heldout else None,
            "latest": latest if run.metrics else {},
            "stalled": run.stalled or None,
            "problem": run.problem or None,
            "verdict": str(self.verdict) if self.verdict else None,
            "grade": self.verdict.word if self.verdict else None,
            "present": present_faults(self.findings),
            "alarms": [document(alarm) for alarm in self.alarms.raised],
            "advice": [decision.document() for decision in self.advice],
        }


class _GrowingRecord:
    """A record of GRPOscope in progress; `look` reads what was added since the last look.

    not_finite: metrics that were not finite in a row so far (`core.not_finite.not_finite_in`).
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.rows = 0
        self.ended = False
        self.not_finite: set[str] = set()
        self._config = RunConfig()
        self._phase = RunPhase()
        self._step = 0
        self._columns: dict[str, list[float]] = {}
        self._scores: dict[str, list[tuple[int, Estimate]]] = {}
        self._changed = 0.0
        self._steps, self._evals = (Tail(folder / f"{name}.jsonl") for name in ("steps", "evals"))

    def look(self, now: float) -> None:
        """Read what was added. UserError for a record of a newer version, or a broken one."""
        if not (self.folder / "config.json").exists():
            return
        self._config = schema.read_config(self.folder)
        rows, afresh = self._steps.read()
        if afresh:
            self._step, self.rows, self._columns, self.not_finite = 0, 0, {}, set()
        for row in rows:
            self._step = self._whole(row.get("step"), "steps.jsonl")
            self.not_finite = self.not_finite | not_finite_in(row)
            for name in COLUMNS & row.keys():
                self._columns.setdefault(name, [math.nan] * self.rows)
            for name, values in self._columns.items():
                value = json_number(row.get(name))
                values.append(math.nan if value is None else _with_overflow(value))
            self.rows += 1
        evals, afresh = self._evals.read()
        self._scores = {} if afresh else self._scores
        for row in evals:
            for name, score in row.items():
                if isinstance(score, dict) and (value := json_number(score.get("value"))) is not None:
                    error = json_number(score.get("se"))
                    count = self._whole(score.get("n", 0), "evals.jsonl")
                    estimate = Estimate(value, math.nan if error is None else error, count)
                    step = self._whole(row.get("step"), "evals.jsonl")
                    self._scores.setdefault(name, []).append((step, estimate))
        self._phase = schema.read_phase(self.folder) or self._phase
        phase = self._phase.phase
        self.ended = phase in ENDED if phase else (self.folder / "summary.json").exists()
        if rows or evals or not self._changed:
            self._changed = self._written() or now
        self._changed = max(self._changed, self._phase.time)

    def _whole(self, value: Any, file: str) -> int:
        """A step or a count in a line of `file`; UserError where it is no whole number."""
        if not is_whole(value):
            raise UserError(f"{self.folder / file}: a line has no step number; {MEND}")
        return int(value)

    def snapshot(self, now: float) -> _Snapshot:
        """The run as it was at the last look; now: seconds since 1970."""
        config, settings, model = self._config, self._config.settings, self._config.model.name or "?"
        planned = self._phase.steps or settings.get("steps")
        planned = planned if isinstance(planned, int) else None
        what = f"{settings.get('recipe', '?')} on {config.resolved.get('task', '?')}, {model}"
        engine = "" if config.engine == "grposcope" else config.engine
        if engine:
            what = f"{engine}, {settings.get('loss_type', '?')} loss, {model}"
        pace = self.seconds_per_step()
        values = {name: [score.value for _, score in rows] for name, rows in self._scores.items()}
        score = next(iter(heldout.scores(values)), "")
        scored = heldout.with_errors(self._scores.get(score, ()))
        remaining = 0.0 if self.ended else (planned - self._step) * pace if planned else math.nan
        return _Snapshot(
            self.folder,
            title=f"{config.name or self.folder.name} · {what}",
            engine=engine,
            phase=self._phase.phase or ("finished" if self.ended else "running"),
            step=self._step,
            planned=planned,
            ended=self.ended,
            changed=self._changed,
            metrics=_logged(self._columns),
            score=score,
            heldout=scored,
            seconds_per_step=pace,
            seconds_left=remaining,
            stalled=self._stalled(now),
            rows=self.rows,
        )

    def seconds_per_step(self) -> float:
        """Pace of the last steps, by the clock if rows carry it, else by the phases; NaN before two steps."""
        times = [t for t in self._columns.get("time", [])[-RECENT:] if math.isfinite(t)]
        if len(times) > 1:
            return max(times[-1] - times[0], 0.0) / (len(times) - 1)
        count = min(self.rows, RECENT)
        phases = [self._columns.get(name, [])[-RECENT:] for name in TIMES[1:]]
        return math.fsum(v for seconds in phases for v in seconds if math.isfinite(v)) / count if count else math.nan

    def _stalled(self, now: float) -> str:
        """A warning if the process of the run is gone, or if nothing was written for long; empty otherwise."""
        if self.ended:
            return ""
        silent, usual = now - self._changed, self.seconds_per_step()
        pid, host = self._phase.pid, self._config.environment.get("host")
        gone = isinstance(pid, int) and host in (None, platform.node()) and not _is_alive(pid)
        if gone and host:
            return f"its process {pid} was killed before the run ended; the run can be resumed"
        stalled = _silence(silent, usual, SILENT)
        if not stalled:
            return ""
        return (
            f"{stalled}; process {pid} does not run here: it has ended, or runs on another machine" if gone else stalled
        )

    def _written(self) -> float:
        """When the last row was written, in seconds since 1970; 0 if there is none."""
        times = [t for t in self._columns.get("time", [])[-1:] if math.isfinite(t)]
        if times:
            return times[0]
        try:
            return (self.folder / "steps.jsonl").stat().st_mtime
        except FileNotFoundError:
            return 0.0


def _with_overflow(value: float) -> float:
    """The value, infinite where it is beyond OVERFLOW."""
    return math.copysign(math.inf, value) if abs(value) > OVERFLOW else value


def _silence(silent: float, usual: float, untimed: float) -> str:
    """That nothing was written for `silent` seconds, where that is long for steps of `usual` seconds; else empty.

    untimed: what is long where `usual` is NaN.
    """
    if silent < (max(SILENT, 10 * usual) if math.isfinite(usual) else untimed):
        return ""
    told = f"nothing was written for {duration(silent)}"
    return f"{told}, and a step takes {duration(usual)}" if math.isfinite(usual) else told


def _pace(run: Run) -> float:
    """Seconds per step by the clock of a log's last rows; NaN where it logs none."""
    for key in CLOCKS:
        if key in run.table:
            times, steps = run.table[key][-RECENT:], run.table["step"][-RECENT:]
            logged = np.isfinite(times) & np.isfinite(steps) & (times > 1e9)
            if logged.sum() > 1 and (span := float(np.ptp(steps[logged]))) > 0:
                return float(np.ptp(times[logged])) / span
    return math.nan


def _of_log(log: GrowingLog, problem: str) -> _Snapshot:
    """The log of another trainer as it was last read."""
    run = log.run
    if run is None:
        return _Snapshot(log.path, changed=log.changed, problem=problem)
    planned = run.setting("steps") or run.setting("max_steps")
    score = learning.score(run)
    return _Snapshot(
        log.path,
        title=f"{run.meta.name} · {run.meta.engine}",
        engine=run.meta.engine,
        phase="the log does not say whether the run ended" if run.meta.status == "unknown" else run.meta.status,
        step=_last_step(run),
        planned=planned if isinstance(planned, int) else None,
        ended=run.meta.status in ENDED and not problem,
        changed=log.changed,
        metrics=_logged(run.table),
        score=score,
        heldout=learning.evaluations(run),
        seconds_per_step=_pace(run),
        problem=problem,
        rows=run.steps,
    )


def _logged(columns: Mapping[str, Values]) -> dict[str, tuple[str, Values]]:
    """Quantity -> its column and values, for those of SHOWN that are logged."""
    names = {quantity: variant(quantity, columns) for quantity in SHOWN}
    return {quantity: (name, columns[name]) for quantity, name in names.items() if name is not None}


def _last_step(run: Run) -> int:
    steps = run.table["step"]
    return int(steps[-1]) if len(steps) and np.isfinite(steps[-1]) else 0


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _progress(run: _Snapshot, width: int) -> str:
    """Steps done, with a bar and the time left where they are known."""
    if not run.planned:
        return f"step {run.step:,} · {run.phase}"
    share = min(run.step / run.planned, 1.0)
    text = f"step {run.step:,} of {run.planned:,} ({percent(share)}) · {run.phase}"
    if not run.ended and math.isfinite(run.seconds_left):
        text += f" · about {duration(run.seconds_left)} left"
    room = max(8, width - len(text) - 2)
    done = round(share * room)
    return f"{'━' * done}{'─' * (room - done)}  {text}"


def _metrics(run: _Snapshot, width: int) -> list[str]:
    """A line per quantity with a value other than 0, the held-out score after the reward."""
    lines: list[tuple[str, Sequence[float], str]] = []
    for quantity in SHOWN:
        if quantity in run.metrics:
            name, values = run.metrics[quantity]
            values = list(map(float, values))
            if any(math.isfinite(value) and value != 0 for value in values):
                unit = metric(name).unit
                text = _last_level(name, values) if quantity == "reward" else _as_unit(values[-1], unit)
                lines.append((metric(name).title, values, text))
        if quantity == "reward" and run.heldout:
            scores = [score.value for _, score in run.heldout]
            title = f"Held-out {heldout.name(run.score)}"
            lines.append((title, scores, _last_score(run.heldout, scores)))
    longest = max((len(text) for _, _, text in lines), default=0)
    return [_line(*line, max(10, width - TITLE - 2 - longest)) for line in lines]


def _as_unit(value: float, unit: str) -> str:
    """A value of a metric in its unit."""
    return percent(value) if unit == "share" else f"{number(value)} {unit}".rstrip()


def _last_level(name: str, values: Sequence[float]) -> str:
    """The last level of a metric, which is that of the verdict, and its last row."""
    finite = np.array([value for value in values if math.isfinite(value)])
    seen = MetricSeries(name, np.arange(len(finite), dtype=np.float64), finite).present.last.value
    return number(seen) + (f", last row {number(values[-1])}" if values[-1] != seen else "")


def _last_score(heldout: Sequence[tuple[int, Estimate]], scores: Sequence[float]) -> str:
    """The last level of the held-out score, the mean of the last fifth of the evaluations, which is that of the
    verdict; of one evaluation, with its interval where it has one."""
    step, last = heldout[-1]
    form = percent if min(scores) >= 0 and max(scores) <= 1 else number
    late = scores[rows(len(scores), LATE, least=1)]
    if len(late) > 1:
        return f"{form(math.fsum(late) / len(late))}, mean of the last {len(late)} up to step {step:,}"
    text = form(last.value)
    low, high = interval(last)
    if math.isfinite(low):
        text += f" ({span(low, high, form)})"
    return f"{text} at step {step:,}"


def _line(title: str, values: Sequence[float], text: str, room: int) -> str:
    """A metric on a line: its name, its course in `room` characters, and its last value."""
    return f"{title[:TITLE]:{TITLE}} {sparkline(values, room):{room}} {text}"
