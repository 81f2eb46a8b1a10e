"""Runs a plan to its end: finished runs are kept, interrupted ones go on, one that dies is tried once more.

What is finished stands in the record of each run. OUT/sweep.json holds the plan and how each run stands, for people and
programs; OUT/CELL/seed-N.log what a run printed. One driver at a time works in a folder.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from grposcope.core.errors import UserError
from grposcope.core.files import alone, write_json
from grposcope.core.text import duration
from grposcope.lab.sweeps.plan import PlannedRun, SweepPlan
from grposcope.lab.sweeps.worker import MENDABLE
from grposcope.logs.native import schema

Status = Literal["waiting", "running", "finished", "failed"]

TRIES = 2
"""How often a run that dies is started in one call."""

STATE = "sweep.json"

Say = Callable[[str], None]


class Launcher(Protocol):
    """What starts runs: processes of this machine, or tasks of a Ray cluster.

    slots: runs at a time. threads: of each.
    """

    slots: int
    threads: int

    def start(self, number: int, settings: Path, log: Path) -> None:
        """Start a run whose settings are in a file."""

    def ended(self) -> list[tuple[int, int]]:
        """Wait a little; (run, exit status) of those that have ended, a negative status for a signal."""

    def stop(self, grace: float = 30.0) -> None:
        """End all runs, with a checkpoint where that is possible."""


@dataclass(frozen=True)
class RunState:
    """How a run of a sweep stands. deaths: how it ended before its end, one entry for each time."""

    run: PlannedRun
    status: Status = "waiting"
    deaths: tuple[str, ...] = ()
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """The state as JSON."""
        run = {"cell": self.run.cell, "seed": self.run.seed, "folder": str(self.run.folder)}
        return {**run, "status": self.status, "deaths": self.deaths, "seconds": round(self.seconds, 1)}


def sweep(plan: SweepPlan, launcher: Launcher, say: Say = lambda line: None) -> list[RunState]:
    """Run everything in the plan that is not finished; the state of each run at the end.

    say: is told each start, end and death, a line each. Raises UserError where another driver works in the folder, or a
    run there has other settings than the plan; KeyboardInterrupt once all runs have left with a checkpoint.
    """
    plan.out.mkdir(parents=True, exist_ok=True)
    with alone(plan.out, "sweep"):
        for run in plan.runs:
            _check_same(run)
        states = [RunState(run, "finished" if _finished(run.folder) else "waiting") for run in plan.runs]
        return _Driver(plan, launcher, say, states).drive()


class _Driver:
    """The queue of runs and their states, which are written down at every change."""

    def __init__(self, plan: SweepPlan, launcher: Launcher, say: Say, states: list[RunState]):
        self.plan, self.launcher, self.say, self.states = plan, launcher, say, states
        self.waiting = deque(number for number, state in enumerate(states) if state.status == "waiting")
        self.running: dict[int, float] = {}
        self.began = time.monotonic()

    def drive(self) -> list[RunState]:
        """Until nothing waits and nothing runs."""
        finished, todo = len(self.states) - len(self.waiting), len(self.waiting)
        self.say(f"{len(self.states)} runs: {finished} are finished, {todo} to do, {self.launcher.slots} at a time, "
                 f"{self.launcher.threads} threads each")  # fmt: skip
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < self.launcher.slots:
                    self.start(self.waiting.popleft())
                for number, code in self.launcher.ended():
                    self.end(number, code)
        except BaseException:
            self.say("interrupted: every run writes a checkpoint at the end of its batch")
            for number in self.running:
                self.note(number, status="waiting")
            raise
        finally:
            self.launcher.stop()
        return self.states

    def start(self, number: int) -> None:
        """Start a run, from its record where there is one."""
        run = self.states[number].run
        if run.folder.exists() and not (run.folder / "config.json").exists():
            shutil.rmtree(run.folder)  # killed before its record began
        run.folder.parent.mkdir(parents=True, exist_ok=True)
        settings = run.folder.with_suffix(".json")
        write_json(settings, asdict(run.config))
        self.running[number] = time.monotonic()
        self.note(number, status="running")
        self.launcher.start(number, settings, _log_of(run))

    def end(self, number: int, code: int) -> None:
        """Note how a run ended, and put it back into the queue if it died for the first time."""
        state = self.states[number]
        seconds = time.monotonic() - self.running.pop(number)
        if code == 0 and _finished(state.run.folder):
            self.note(number, status="finished", seconds=seconds)
            self.say(f"{self.progress()} {state.run.label}: finished after {duration(seconds)}")
            return
        deaths = (*state.deaths, _death(code, _log_of(state.run)))
        again = code != MENDABLE and len(deaths) < TRIES
        self.note(number, status="waiting" if again else "failed", deaths=deaths, seconds=seconds)
        self.say(f"{self.progress()} {state.run.label}: died, {deaths[-1]}; "
                 + ("it is tried once more" if again else f"see {_log_of(state.run)}"))  # fmt: skip
        if again:
            self.waiting.append(number)

    def note(self, number: int, **changes: Any) -> None:
        """Change the state of a run, and write all down."""
        self.states[number] = replace(self.states[number], **changes)
        content = {**self.plan.document(), "runs": [state.document() for state in self.states]}
        write_json(self.plan.out / STATE, content)

    def progress(self) -> str:
        """Runs that are over, of all, and the time that the others will take at this pace."""
        over = sum(state.status in ("finished", "failed") for state in self.states)
        timed = [state.seconds for state in self.states if state.seconds and state.status == "finished"]
        remaining = len(self.states) - over
        if not timed or not remaining:
            return f"[{over}/{len(self.states)}]"
        seconds = remaining * sum(timed) / len(timed) / min(self.launcher.slots, remaining)
        return f"[{over}/{len(self.states)}, about {duration(seconds)} left]"


def _finished(folder: Path) -> bool:
    """Whether the record in a folder is that of a run that reached its last step."""
    if not schema.is_record(folder):
        return False
    summary = schema.read_summary(folder)
    steps = schema.read_config(folder).settings.get("steps", 0)
    return summary is not None and not summary.interrupted and (summary.steps or 0) >= steps


def _check_same(run: PlannedRun) -> None:
    """UserError where the record in a run's folder has other settings than the plan."""
    if not schema.is_record(run.folder):
        return
    before = schema.read_config(run.folder).settings
    now = asdict(run.config)
    different = [f"{name} {before.get(name)} there, {value} here" for name, value in now.items()
                 if name != "out" and before.get(name, value) != value]  # fmt: skip
    if different:
        raise UserError(
            f"{run.folder} holds a run with other settings ({', '.join(different[:3])}); choose another folder for "
            f"this "
            "sweep, or delete that run"
        )


def _log_of(run: PlannedRun) -> Path:
    """The file with what a run printed."""
    return run.folder.with_suffix(".log")


def _death(code: int, log: Path) -> str:
    """How a run ended: the signal, or the last line that it printed."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    return f"{lines[-1].strip()[:300]} (status {code})" if lines else f"status {code}"
