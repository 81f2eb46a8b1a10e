"""GRPOscopeTrainer(autopilot=…): the run of a trainer ends where its policy got worse, and says how to go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("trl")
pytest.importorskip("datasets")

from engines import tiny_trl
from grposcope.core.errors import UserError
from grposcope.engines.trl import GRPOscopeTrainer, steering
from grposcope.instruments.autopilot import events
from grposcope.instruments.autopilot.pilot import Pilot, PilotAlarm


def falling(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """The pilot raises an alarm after optimiser step `at`, where a checkpoint of step 1 is shown to be sound."""
    monkeypatch.setattr(
        Pilot, "alarm", lambda self, step: PilotAlarm("reward", step, 99.0, at, 0.7, 0.6, 0.2) if step == at else None
    )
    monkeypatch.setattr(Pilot, "sound", lambda self, alarm, steps: 1 if 1 in steps else -1)


def test_a_run_ends_with_the_line_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    falling(monkeypatch, 2)
    saving = {"save_strategy": "steps", "save_steps": 1, "max_steps": 4}
    trainer = tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours={"autopilot": "act"}, **saving)
    trainer.train()
    assert trainer.state.global_step == 2
    assert "checkpoint-1 as the model of a new run, with learning_rate=" in caplog.text
    (path,) = tmp_path.rglob(events.EVENTS)
    story = events.read(path.parent)
    assert story is not None
    (one,) = story.decisions
    assert (one.action, one.to, one.factor) == ("rollback", 1, 0.25)
    assert len(list(tmp_path.rglob(steering.CHECKPOINT))) == 2


def test_advice_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    falling(monkeypatch, 1)
    trainer = tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours={"autopilot": "advise"}, max_steps=2)
    trainer.train()
    assert trainer.state.global_step == 2
    assert "the mean reward was at least 0.7 and is 0.2" in caplog.text


def test_what_the_monitors_have_seen_survives_a_checkpoint(tmp_path: Path) -> None:
    class Nothing:
        """No trainer."""

    one = steering.Steering(Nothing(), "act")
    draw = np.random.default_rng(0)
    for step in range(1, 30):
        one.take(step, torch.from_numpy((draw.random((16, 4)) < 0.7).astype(float)))
    arguments: Any = type("Args", (), {"output_dir": str(tmp_path)})()
    state: Any = type("State", (), {"global_step": 29, "is_world_process_zero": True})()
    (tmp_path / "checkpoint-29").mkdir()
    one.on_save(arguments, state, None)
    other = steering.Steering(Nothing(), "act")
    other.restore(tmp_path / "checkpoint-29")
    assert other.pilot.state() == one.pilot.state()


def test_a_policy_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give one of off, advise, act"):
        tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours={"autopilot": "fly"})
