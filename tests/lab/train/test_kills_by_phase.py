"""Kills at exact places of a run, from its first tenth to its last."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import config, rows, start, timeless
from test_resume import content

from grposcope.core.finding import Finding
from grposcope.instruments.autopilot import events, pilot
from grposcope.instruments.autopilot.alarm import explained, fall
from grposcope.instruments.autopilot.pilot import Decision, Situation
from grposcope.lab.policies import Policy
from grposcope.lab.sampling import rollouts
from grposcope.lab.train import checkpoint, loop
from grposcope.lab.train import update as updating
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import resume
from grposcope.watch import alarm_file, live, loggers

STEPS = 40
FALLS = range(3, STEPS, 4)
"""Steps after which the autopilot goes back; two steps before, an alarm is raised."""

PLACES = ("draw", "update", "evaluation", "save", "rename", "prune", "rollback", "event", "alarm", "line", "phase")
"""Where a process kills itself: in the midst of what the name says."""


class Silent:
    """A logger that hears of metrics and alarms and does nothing, so that alarms are looked for."""

    name = "silent"

    def log(self, metrics: Any, step: int) -> None: ...

    def alert(self, alert: Any) -> None: ...

    def close(self) -> None: ...


def falling(own: Any) -> None:
    """The autopilot sees a fall after each step of FALLS, and goes back with a lower rate; alarms come."""
    look = live.Alarms.look

    def looked(self: Any, run: Any, of_texts: Any = (), last: bool = False) -> list[Finding]:
        step = int(run.table["step"][-1])
        more = [fall("heldout", step, 4.6, None, 0.6, 0.5, 0.3)] if step + 2 in FALLS else []
        return look(self, run, of_texts, last) + more

    own.setattr(live.Alarms, "look", looked)
    own.setattr(live.Alarms, "due", lambda self, rows, pace, changed: True)
    own.setattr(live.Pace, "ready", lambda self: True)
    own.setattr(
        pilot.Pilot,
        "alarm",
        lambda self, step: fall("heldout", step, 4.6, None, 0.6, 0.5, 0.3) if step in FALLS else None,
    )

    def decide(self: pilot.Pilot, alarm: Finding, now: Situation) -> Decision:
        back = now.checkpoints[-2] if len(now.checkpoints) > 1 else 0
        decision = Decision(
            alarm.seen or 0, why=explained(alarm, "c"), action="rollback", to=back,
            interval=now.interval, factor=0.75, done=True,
        )  # fmt: skip
        self._counted(alarm, decision)
        return decision

    own.setattr(pilot.Pilot, "decide", decide)


class Patched:
    """Attributes that stay replaced while the process lives, which is its own."""

    def setattr(self, holder: Any, name: str, value: Any) -> None:
        setattr(holder, name, value)


def session(settings: TrainConfig, kill: tuple[str, int] | None) -> None:
    """A process of the run, new or resumed; kill: the place and the step from which on it kills itself there."""
    torch.set_num_threads(1)
    own, step = Patched(), [0]
    falling(own)
    own.setattr(loggers, "open_all", lambda *_: [Silent()])
    begin = loop._Session.begin_batch

    def begun(self: Any, at: int, position: int) -> None:
        step[0] = at
        begin(self, at, position)

    own.setattr(loop._Session, "begin_batch", begun)

    def dies(place: str) -> None:
        if kill is not None and kill[0] == place and step[0] >= kill[1]:
            (Path(settings.out or "").parent / "killed").write_text(json.dumps([place, step[0]]))
            os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(holder: Any, name: str, place: str, before: bool = False) -> None:
        whole: Callable[..., Any] = getattr(holder, name)

        def does(*given: Any, **named: Any) -> Any:
            if before:
                dies(place)
            done = whole(*given, **named)
            dies(place)
            return done

        own.setattr(holder, name, does)

    wrapped(rollouts, "sample", "draw")
    wrapped(updating, "accumulate", "update")
    wrapped(loop, "evaluate", "evaluation")
    wrapped(checkpoint, "save_file", "save")
    wrapped(checkpoint, "prune", "prune", before=True)
    wrapped(checkpoint, "restore", "rollback", before=True)
    wrapped(events, "append", "event")
    rename, write, pwrite = Path.rename, os.write, os.pwrite

    own.setattr(os, "pwrite", lambda file, data, at: (dies("phase"), pwrite(file, data, at))[1])

    def renamed(self: Path, target: Any) -> Any:
        dies("rename")
        return rename(self, target)

    own.setattr(Path, "rename", renamed)

    def written(file: int, data: bytes) -> int:
        """Half of what is written, where that is what it dies of."""
        name = os.readlink(f"/proc/self/fd/{file}")
        place = "alarm" if name.endswith(alarm_file.ALARMS) else "line" if name.endswith("jsonl") else ""
        if kill is not None and kill[0] == place and step[0] >= kill[1] and len(data) > 20:
            write(file, data[: len(data) // 2])
            dies(place)
        return write(file, data)

    own.setattr(os, "write", written)
    run = Path(settings.out or "")
    if (run / "summary.json").exists():
        return
    random.seed(7)
    if (run / "config.json").exists():
        resume(run)
    else:
        start(settings)


@pytest.mark.slow
def test_kills_in_every_phase_leave_nothing_behind(policy: Policy, tmp_path: Path) -> None:
    """33 kills; weights, record, alarms and decisions are those of a run that was left alone."""
    settings = config(
        policy, tmp_path, "noisy", steps=STEPS, eval_every=5, eval_problems=3, eval_samples=2, threads=1,
        checkpoint_every=3, keep_checkpoints=3, rollouts_every=4, rollouts_groups=2,
        autopilot="act", warmup=0, schedule="constant",
    )  # fmt: skip
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["test_kills_by_phase"])

    def lasted(out: Path, kill: tuple[str, int] | None) -> int | None:
        process = context.Process(target=session, args=(replace(settings, out=str(out)), kill))
        process.start()
        process.join(120)
        return process.exitcode

    assert lasted(tmp_path / "whole", None) == 0
    expected = content(tmp_path / "whole")
    decisions = timeless(rows(tmp_path / "whole", "autopilot"))
    alarms = rows(tmp_path / "whole", "alarms")
    assert len(decisions) >= len(FALLS)
    assert len(alarms) >= len(FALLS)
    kills: Counter[tuple[str, int]] = Counter()
    for turn in range(3):
        out = tmp_path / f"run{turn}"
        for number in range(len(PLACES)):
            due = 4 + round(32 * number / (len(PLACES) - 1))
            assert lasted(out, (PLACES[(4 * turn + number) % len(PLACES)], due)) == -signal.SIGKILL
            kills[tuple(json.loads((tmp_path / "killed").read_text()))] += 1  # type: ignore[index]
        assert lasted(out, None) == 0
        assert content(out) == expected
        assert timeless(rows(out, "autopilot")) == decisions
        assert rows(out, "alarms") == alarms
        assert not list(out.rglob("*.part"))
    by_place = Counter(place for place, _ in kills.elements())
    by_tenth = Counter(1 + (10 * step - 1) // STEPS for _, step in kills.elements())
    print(f"\n{kills.total()} kills; by place {dict(by_place)}; by tenth of the run {dict(sorted(by_tenth.items()))}")
    assert kills.total() >= 30
    assert set(by_place) == set(PLACES)
