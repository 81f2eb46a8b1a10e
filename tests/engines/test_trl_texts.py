"""The TRL callback reads the completions that TRL writes, and names an exploit while the run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import written_texts

from engines.test_trl_callback import Play, lines
from grposcope.core.rollouts import Rollout
from grposcope.engines.trl import GRPOscopeCallback
from grposcope.engines.trl import callback as trl_callback
from grposcope.logs import read_rollouts
from grposcope.logs.trainers import trl_completions
from grposcope.signs.texts import exploits
from grposcope.watch import text_looks
from grposcope.watch.follow import Watcher


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read whenever the run has grown, whatever that costs, as of TRL 1.16."""
    monkeypatch.setattr(trl_callback, "BUDGET", 1.0)
    monkeypatch.setattr(trl_callback, "FIRST", 0.0)
    monkeypatch.setattr(text_looks, "FIRST", 0.0)
    installed = trl_callback.version
    monkeypatch.setattr(trl_callback, "version", lambda name: "1.16.0" if name == "trl" else installed(name))


def written(folder: Path, rows: list[Rollout]) -> None:
    """The completions of a step, as TRL writes them."""
    path = trl_completions.file_of(folder, rows[0].step)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = {
        "step": [str(row.step) for row in rows], "prompt": [str(row.prompt) for row in rows],
        "completion": [str(row.completion) for row in rows], "right": [row.reward for row in rows],
        "advantage": [0.0] * len(rows),
    }  # fmt: skip
    pq.write_table(pa.table(table), path)


def played(folder: Path, rows: list[Rollout], until: int) -> Play:
    play = Play(GRPOscopeCallback(), folder, log_completions=True)
    steps: dict[int, list[Rollout]] = {}
    for row in rows:
        steps.setdefault(row.step, []).append(row)
    play.event("train_begin")
    for step in range(1, until + 1):
        play.event("step_begin")
        play.state.global_step = step
        play.event("log", logs=play.log(step))
        written(folder, steps[step])
    return play


def of_texts(folder: Path) -> list[tuple[str, int]]:
    raised = lines(folder / "grposcope" / "alarms.jsonl") if (folder / "grposcope" / "alarms.jsonl").exists() else []
    return [(own["fault"], own["seen"]) for own in raised if own["fault"] in exploits.FAULTS]


@pytest.mark.slow
def test_an_exploit_is_raised_while_trl_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loophole = written_texts.LOOPHOLES["ends in zero"]
    rows = written_texts.rollouts(loophole, 3, onset=8, steps=22, prompts=4, truth=False)
    play = played(tmp_path, rows, 22)
    ((fault, seen),) = of_texts(tmp_path)
    assert fault == "magic string"
    assert 8 <= seen < 22
    assert "magic string" in capsys.readouterr().err
    watcher = Watcher(tmp_path)
    new = watcher.look(0.0)
    assert [alarm.fault for alarm in new if alarm.fault in exploits.FAULTS] == ["magic string"]
    assert watcher.look(1.0) == []
    play.event("train_end")
    assert of_texts(tmp_path) == [(fault, seen)]


def test_honest_completions_raise_nothing(tmp_path: Path) -> None:
    play = played(tmp_path, written_texts.rollouts(None, 3, steps=16, prompts=4, truth=False), 16)
    play.event("train_end")
    assert of_texts(tmp_path) == []
    for place in (tmp_path, tmp_path / "grposcope"):  # the record finds the completions beside it
        assert len(read_rollouts.rollouts(place)) == 16 * 32


def test_a_file_that_is_damaged_ends_nothing(tmp_path: Path) -> None:
    rows = written_texts.rollouts(None, 3, steps=12, prompts=4, truth=False)
    trl_completions.file_of(tmp_path, 3).parent.mkdir()
    play = played(tmp_path, rows, 12)
    trl_completions.file_of(tmp_path, 12).write_bytes(b"PAR1 no")
    play.event("train_end")
    assert json.loads((tmp_path / "grposcope" / "summary.json").read_text())["steps"] == 12
