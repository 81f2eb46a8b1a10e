"""Metrics sent on to other tools, through their own libraries."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grposcope.core.errors import UserError
from grposcope.watch.alerts import Alert
from grposcope.watch.loggers import names, open_all


def test_tensorboard_reads_back_what_was_logged(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for done, last in ((0, 3), (2, 4)):  # the second session goes on from step 2
        (sink,) = open_all("tensorboard", tmp_path, {}, done)
        for step in range(done + 1, last + 1):
            sink.log({"reward": step / 10 + done, "kl": math.nan}, step)
        sink.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, pytest.approx(e.value)) for e in events.Scalars("reward")] == [
        (1, 0.1), (2, 0.2), (3, 2.3), (4, 2.4)
    ]  # fmt: skip
    assert all(math.isnan(e.value) for e in events.Scalars("kl"))


@pytest.mark.slow
def test_wandb_writes_its_files_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    (sink,) = open_all("wandb", tmp_path, {"seed": 1}, 0)
    sink.log({"reward": 0.5}, 1)
    sink.close()
    assert list(tmp_path.glob("wandb/*/*.wandb"))


@pytest.mark.parametrize("library", ["wandb", "trackio"])
def test_projects_get_every_row_and_the_settings(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    run = SimpleNamespace(
        log=lambda metrics, step: calls.append((step, metrics)), finish=lambda: calls.append("finished")
    )
    told = lambda **alert: calls.append(alert)  # noqa: E731
    run.alert = told  # wandb's is the run's, trackio's is the library's
    levels = SimpleNamespace(ERROR="ERROR")
    monkeypatch.setitem(
        sys.modules,
        library,
        SimpleNamespace(init=lambda **settings: calls.append(settings) or run, alert=told, AlertLevel=levels),
    )
    (sink,) = open_all(library, tmp_path / "mine", {"seed": 1}, 0)
    sink.log({"reward": 0.5}, 7)
    sink.alert(Alert("mine", "failing: length, since step 3", "it grew", "failing", "length", 7))
    sink.close()
    told = calls.pop(2)
    assert told["title"] == "failing: length, since step 3"
    assert "it grew" in told["text"]
    assert told["level"] == "ERROR"
    assert calls[0]["name"] == "mine"
    assert calls[0]["config"] == {"seed": 1}
    assert calls[1:] == [(7, {"reward": 0.5}), "finished"]


def test_unknown_and_missing_sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(None) == names("") == []
    with pytest.raises(UserError, match="log_to mlflow: unknown; use one or more of tensorboard, wandb, trackio"):
        names("tensorboard,mlflow")
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(UserError, match="needs the package trackio: pip install trackio"):
        open_all("trackio", tmp_path, {}, 0)
    assert not list(tmp_path.iterdir())
