"""Alarms of `train`: what the loggers of its metrics are told while it goes, and that nothing of it can end a run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import synthetic
import written_texts

from grposcope.faults import looks
from grposcope.logs.native import reader
from grposcope.logs.tail import Pace
from grposcope.signs.texts import exploits
from grposcope.watch import live as live_alarms
from grposcope.watch import text_looks
from grposcope.watch.alarms import FREE, Alarms
from grposcope.watch.alerts import Alert
from grposcope.watch.live import LiveAlarms


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge whenever the run has grown, whatever that costs."""
    monkeypatch.setattr(live_alarms, "BUDGET", 1.0)
    monkeypatch.setattr(live_alarms, "FIRST", 0.0)
    monkeypatch.setattr(text_looks, "FIRST", 0.0)


def broken_from(folder: Path, step: int) -> Path:
    """A record of 40 steps whose gradient is infinite from `step` on."""
    path = synthetic.make(folder) / "steps.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [{**row, "grad_norm": "Infinity"} if row["step"] >= step else row for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_loggers_are_told_once_also_after_a_resume(tmp_path: Path) -> None:
    folder, told, said = broken_from(tmp_path / "run", 10), [], []
    logger: Any = SimpleNamespace(name="wandb", alert=told.append)
    for done in (0, 40):
        alarms = LiveAlarms(folder, [logger], done, said.append)
        alarms.step({})
        alarms.end()
    assert [(alert.fault, alert.grade) for alert in told if alert.fault == "non-finite"] == [("non-finite", "failing")]
    assert {alert.grade for alert in told} <= {"failing", "warning"}
    assert sum("failing: non-finite, since step 10" in line for line in said) == 1
    assert '"fault": "non-finite"' in (folder / "alarms.jsonl").read_text()
    LiveAlarms(folder, [logger], 5, said.append)
    assert (folder / "alarms.jsonl").read_text() == ""  # taken back to a step before any of them


def test_a_failure_is_said_once(tmp_path: Path) -> None:
    def fails(alert: Alert) -> None:
        raise RuntimeError("no connection")

    said: list[str] = []
    alarms = LiveAlarms(tmp_path / "nothing here", [SimpleNamespace(name="wandb", alert=fails)], 0, said.append)  # type: ignore[list-item]
    for _ in range(3):
        alarms.step({})
    alarms.end()
    assert len(said) == 1
    assert said[0].startswith("no further alarms: ")
    alarms = LiveAlarms(broken_from(tmp_path / "run", 10), [SimpleNamespace(name="wandb", alert=fails)], 0, said.append)  # type: ignore[list-item]
    alarms.step({})
    alarms.end()
    assert "wandb: no connection" in said


def test_without_loggers_alarms_are_said_too(tmp_path: Path) -> None:
    folder, said = broken_from(tmp_path / "run", 10), list[str]()
    alarms = LiveAlarms(folder, [], 0, said.append)
    alarms.step({})
    alarms.end()
    assert sum("failing: non-finite, since step 10" in line for line in said) == 1
    assert '"fault": "non-finite"' in (folder / "alarms.jsonl").read_text()


@pytest.mark.parametrize(("name", "wanted"), [("hedge", ["hedges"]), ("", [])])
def test_loggers_are_told_of_what_the_texts_do(name: str, wanted: list[str], tmp_path: Path) -> None:
    folder, told, asked = synthetic.make(tmp_path / "run"), list[Alert](), list[int]()
    rows = written_texts.rollouts(written_texts.LOOPHOLES.get(name), 3, onset=10, steps=20, prompts=4)
    logger: Any = SimpleNamespace(name="wandb", alert=told.append)
    alarms = LiveAlarms(folder, [logger], 0, lambda line: None)
    for step in range(1, 21):

        def drawn(groups: int, step: int = step) -> list[Any]:
            asked.append(groups)
            return [row for row in rows if row.step == step]

        alarms.take(step, drawn)
    alarms.step({})
    alarms.end()
    assert [alert.fault for alert in told if alert.fault in exploits.FAULTS] == wanted
    assert asked == [text_looks.GROUPS] * 20


def test_texts_are_kept_of_every_step_at_first_and_later_as_time_allows(tmp_path: Path) -> None:
    folder, asked = synthetic.make(tmp_path / "run"), list[int]()
    alarms = LiveAlarms(folder, [], 0, lambda line: None)

    def drawn(groups: int) -> list[Any]:
        asked.append(groups)
        time.sleep(0.002)  # two seconds of rest at a thousandth
        return []

    for step in range(1, 6):
        alarms.take(step, drawn)
    assert len(asked) == 5
    alarms._rows = FREE
    for step in range(6, 11):
        alarms.take(step, drawn)
    assert len(asked) == 5


def test_a_metric_that_changed_is_looked_at_at_once_among_the_first_rows_and_later_where_there_is_time(
    tmp_path: Path,
) -> None:
    alarms, resting, rested = Alarms(), Pace(0.5, rest=60.0), Pace(0.5)
    alarms.look(looks.first_rows(reader.read(synthetic.make(tmp_path / "run", steps=160)), FREE - 2))
    assert alarms.due(FREE - 1, resting, changed=True)
    assert not alarms.due(FREE, resting, changed=True)
    assert alarms.due(FREE, rested, changed=True)
    assert not alarms.due(FREE - 1, resting)
    assert not alarms.due(FREE - 1, rested)
