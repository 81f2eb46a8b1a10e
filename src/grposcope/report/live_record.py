"""A run of ours in progress as text: what `grposcope watch` shows of its record, built anew at each look."""

from __future__ import annotations

import json
import math
import os
import platform
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grposcope.facts.learning import interval, of_curves
from grposcope.formatting import duration, number, percent, visible
from grposcope.records import Estimate
from grposcope.runs.metrics import metric
from grposcope.runs.native import lines, reader
from grposcope.runs.tail import Tail

SHOWN = ("reward", "dead_fraction", "entropy", "kl", "kl_old", "length", "truncated", "grad_norm", "tokens_per_second")
"""Metrics with a line of their own, if they have values."""

ENDED = ("finished", "interrupted", "failed")

BLOCKS = "▁▂▃▄▅▆▇█"

TITLE = 25
"""Characters for the name of a metric."""

RECENT = 50
"""Steps from which the speed is taken."""


@dataclass
class Watched:
    """What is known of a run so far; `look` reads what was added."""

    folder: Path
    config: dict[str, Any] | None = None
    phase: dict[str, Any] = field(default_factory=dict)
    step: int = 0
    columns: dict[str, list[float]] = field(default_factory=dict)
    heldout: list[tuple[int, Estimate]] = field(default_factory=list)
    ended: bool = False
    changed: float = 0.0

    def __post_init__(self) -> None:
        self._steps, self._evals = (Tail(self.folder / f"{name}.jsonl") for name in ("steps", "evals"))

    def look(self, now: float) -> None:
        """Read what was added since the last look. UserError for a record of a newer version, or a broken one."""
        if not (self.folder / "config.json").exists():
            return
        self.config = reader.configuration(self.folder)
        rows, afresh = self._steps.read()
        if afresh:
            self.step, self.columns = 0, {}
        for row in rows:
            self.step = int(row.get("step", self.step))
            for name in (*SHOWN, "time", "seconds_sample", "seconds_grade", "seconds_update"):
                value = lines.number(row.get(name))
                self.columns.setdefault(name, []).append(math.nan if value is None else value)
        evals, afresh = self._evals.read()
        self.heldout = [] if afresh else self.heldout
        for row in evals:
            found = row.get("pass@1")
            if isinstance(found, dict):
                value, error = (lines.number(found.get(part)) or 0.0 for part in ("value", "se"))
                self.heldout.append((int(row["step"]), Estimate(value, error, int(found.get("n", 0)))))
        self._look_at_phase()
        if rows or evals or not self.changed:
            self.changed = self._written() or now
        self.changed = max(self.changed, float(self.phase.get("time", 0)))

    @property
    def steps(self) -> int | None:
        """Steps planned."""
        planned = self.phase.get("steps") or ((self.config or {}).get("settings") or {}).get("steps")
        return planned if isinstance(planned, int) else None

    @property
    def doing(self) -> str:
        """The phase in a word."""
        if self.config is None:
            return "not begun"
        return str(self.phase.get("phase") or ("finished" if self.ended else "running")).strip()

    def seconds_per_step(self) -> float:
        """Of the last steps, by the clock if rows carry it, else by the phases; NaN before two steps."""
        times = [t for t in self.columns.get("time", [])[-RECENT:] if math.isfinite(t)]
        if len(times) > 1:
            return max(times[-1] - times[0], 0.0) / (len(times) - 1)
        phases = [self.columns.get(f"seconds_{name}", [])[-RECENT:] for name in ("sample", "grade", "update")]
        count = len(phases[0])
        return math.fsum(v for part in phases for v in part if math.isfinite(v)) / count if count else math.nan

    def seconds_left(self) -> float:
        """An estimate from the speed of the last steps; NaN if it cannot be told, 0 when the run has ended."""
        if self.ended:
            return 0.0
        return (self.steps - self.step) * self.seconds_per_step() if self.steps else math.nan

    def stalled(self, now: float) -> str:
        """What to say when nothing was written for long; empty otherwise."""
        if self.ended or self.config is None:
            return ""
        silent, usual = now - self.changed, self.seconds_per_step()
        if silent < max(60.0, 10 * usual if math.isfinite(usual) else 0.0):
            return ""
        said = f"nothing was written for {duration(silent)}"
        if math.isfinite(usual):
            said += f", and a step takes {duration(usual)}"
        pid, host = self.phase.get("pid"), ((self.config or {}).get("environment") or {}).get("host")
        if isinstance(pid, int) and host in (None, platform.node()) and not _alive(pid):
            gone = (
                f"its process, {pid}, is gone" if host else f"no process {pid} runs here: it is gone, or runs elsewhere"
            )
            return f"{said}; {gone}"
        return said

    def _look_at_phase(self) -> None:
        try:
            content = json.loads((self.folder / "phase.json").read_bytes().strip(b"\0 \n"))
            self.phase = content if isinstance(content, dict) else self.phase
        except (FileNotFoundError, ValueError):
            pass  # not there, or caught while it was being written: the last one stands
        said = self.phase.get("phase")
        self.ended = said in ENDED if said else (self.folder / "summary.json").exists()

    def _written(self) -> float:
        times = [t for t in self.columns.get("time", [])[-1:] if math.isfinite(t)]
        if times:
            return times[0]
        try:
            return (self.folder / "steps.jsonl").stat().st_mtime
        except FileNotFoundError:
            return 0.0


def frame(run: Watched, now: float | None = None, width: int = 80, judged: Sequence[str] = ()) -> str:
    """One look at the run, as lines of at most `width` characters; judged: lines of the diagnosis."""
    now = time.time() if now is None else now
    if run.config is None:
        return f"{visible(str(run.folder))}: not begun; waiting for it"
    text = [visible(f"{_name(run)} · {_what(run.config)}"), _progress(run, width), ""]
    for name in SHOWN:
        values = run.columns.get(name, [])
        if any(math.isfinite(v) and v != 0 for v in values):
            text.append(line(metric(name).title, values, shown(name, values[-1]), width))
        if name == "reward" and run.heldout:
            step, last = run.heldout[-1]
            low, high = interval(last)
            said = f"{percent(last.value)} ({percent(low)}-{percent(high)}) at step {step:,}"
            text.append(line("Held-out pass@1", [e.value for _, e in run.heldout], said, width))
    if run.columns and not run.step:
        text.append("no step yet")
    if len(run.heldout) > 1:
        text += ["", *textwrap.wrap(of_curves(run.heldout, [], run.step).sentence, width)]
    text += judged
    alarm = run.stalled(now)
    if not run.ended:
        text += ["", *textwrap.wrap(f"! {alarm}", width)] if alarm else []
        text += ["", written(now, run.changed)]
    return "\n".join(row[:width] for row in text)


def written(now: float, changed: float) -> str:
    """How long ago something was written, in seconds since 1970."""
    return f"last written {duration(max(now - changed, 0))} ago"


def _name(run: Watched) -> str:
    return str((run.config or {}).get("name") or run.folder.name)


def _what(config: dict[str, Any]) -> str:
    """Objective, task or engine, and model, in a few words."""
    settings, model = config.get("settings") or {}, (config.get("model") or {}).get("name", "?")
    if "engine" in config:
        return f"{config['engine']}, {settings.get('loss_type', '?')} loss, {model}"
    return f"{settings.get('recipe', '?')} on {config.get('task', '?')}, {model}"


def summary(run: Watched, now: float) -> dict[str, Any]:
    """The same for programs."""
    latest = {name: values[-1] for name, values in run.columns.items() if values and name in SHOWN}
    return {
        "run": str(run.folder),
        "phase": run.doing,
        "step": run.step,
        "steps": run.steps,
        "seconds_per_step": run.seconds_per_step(),
        "seconds_left": run.seconds_left(),
        "heldout": {"step": run.heldout[-1][0], "pass@1": run.heldout[-1][1]} if run.heldout else None,
        "latest": latest,
        "stalled": run.stalled(now) or None,
    }


def spark(values: Sequence[float], width: int) -> str:
    """The values as blocks between their least and largest, means of bins; × where none is finite."""
    count = min(width, len(values))
    bins = [values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)]
    means = []
    for part in bins:
        finite = [v for v in part if math.isfinite(v)]
        means.append(math.fsum(finite) / len(finite) if finite else math.nan)
    known = [m for m in means if math.isfinite(m)]
    if not known:
        return "×" * count
    least, span = min(known), max(known) - min(known)
    return "".join(
        "×" if not math.isfinite(m) else BLOCKS[min(7, int(8 * (m - least) / span))] if span > 0 else BLOCKS[3]
        for m in means
    )


def line(title: str, values: Sequence[float], said: str, width: int) -> str:
    """A metric on a line of about `width` characters: its name, its course, and what is said of its last value."""
    room = max(10, width - TITLE - 30)
    return f"{title[:TITLE]:{TITLE}} {spark(values, room):{room}} {said}"


def _progress(run: Watched, width: int) -> str:
    if not run.steps:
        return f"step {run.step:,} · {run.doing}"
    share = min(run.step / run.steps, 1.0)
    said = f"step {run.step:,} of {run.steps:,} ({percent(share)}) · {run.doing}"
    left = run.seconds_left()
    if not run.ended and math.isfinite(left):
        said += f" · about {duration(left)} left"
    room = max(8, width - len(said) - 2)
    done = round(share * room)
    return f"{'━' * done}{'─' * (room - done)}  {said}"


def shown(name: str, value: float) -> str:
    """A value of a metric with its unit."""
    unit = metric(name).unit
    return percent(value) if unit == "share" else f"{number(value)} {unit}".rstrip()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
