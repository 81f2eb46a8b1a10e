"""GRPOscopeTrainer(autopilot=…): the run of a trainer ends where its policy got worse, and says how to go on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("trl")
pytest.importorskip("datasets")

from safetensors.torch import load_file

from engines import tiny_trl
from grposcope.core.errors import UserError
from grposcope.engines.trl import GRPOscopeTrainer, steering
from grposcope.instruments.autopilot import events
from grposcope.instruments.autopilot.alarm import fall
from grposcope.instruments.autopilot.pilot import Pilot


def falling(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """The pilot raises an alarm after optimiser step `at`, where a checkpoint of step 1 is shown to be sound."""
    monkeypatch.setattr(
        Pilot, "alarm", lambda self, step: fall("reward", step, 4.6, at, 0.7, 0.6, 0.2) if step == at else None
    )
    monkeypatch.setattr(Pilot, "sound", lambda self, alarm, steps: 1 if 1 in steps else -1)


SAVING = {
    "save_strategy": "steps",
    "save_steps": 1,
    "max_steps": 4,
    "logging_steps": 1,
    "lr_scheduler_type": "constant",
}


def story_of(folder: Path) -> events.Story:
    (path,) = folder.rglob(events.EVENTS)
    story = events.read(path.parent)
    assert story is not None
    return story


def weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    (path,) = folder.rglob(f"checkpoint-{step}/model.safetensors")
    return load_file(path)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def moments(folder: Path, step: int) -> list[torch.Tensor]:
    (path,) = folder.rglob(f"checkpoint-{step}/optimizer.pt")
    state = torch.load(path, weights_only=True)["state"]
    return [state[number]["exp_avg"] for number in state]


def test_weights_and_optimiser_go_back_within_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "grposcope")
    falling(monkeypatch, 2)
    trainer = tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours={"autopilot": "act"}, **SAVING)
    trainer.train()
    assert trainer.state.global_step == 4
    assert "token limit of TRL are set when a run begins" in caplog.text
    assert same(weights(tmp_path, 2), weights(tmp_path, 1))
    assert all(map(torch.equal, moments(tmp_path, 2), moments(tmp_path, 1)))
    assert not same(weights(tmp_path, 3), weights(tmp_path, 2))
    rates = [row["learning_rate"] for row in trainer.state.log_history if "learning_rate" in row]
    assert np.array(rates[-2:]) == pytest.approx(np.array(rates[:2]) / 4)
    (one,) = story_of(tmp_path).decisions
    assert (one.action, one.to, one.factor) == ("rollback", 1, 0.25)


@pytest.mark.slow
def test_resumed_after_it_the_run_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the step after: the checkpoint that was taken at once has weights, optimiser, rate and decisions."""
    falling(monkeypatch, 2)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    saving = {**SAVING, "shuffle_dataset": False}  # TRL shuffles anew when it is resumed in a later pass
    for folder in (whole, cut):
        folder.mkdir()
        tiny_trl.trainer(folder, [], kind=GRPOscopeTrainer, ours={"autopilot": "act"}, **saving).train()
    for step in (3, 4):
        (path,) = cut.rglob(f"checkpoint-{step}")
        shutil.rmtree(path)
    again = tiny_trl.trainer(cut, [], kind=GRPOscopeTrainer, ours={"autopilot": "act"}, **saving)
    again.train(resume_from_checkpoint=True)
    assert same(weights(whole, 4), weights(cut, 4))
    assert len(story_of(cut).decisions) == 1


def test_without_the_optimiser_the_run_ends_with_the_line_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    falling(monkeypatch, 2)
    saving = {**SAVING, "save_only_model": True}
    trainer = tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours={"autopilot": "act"}, **saving)
    trainer.train()
    assert trainer.state.global_step == 2
    assert "checkpoint-1 as the model of a new run, with learning_rate=" in caplog.text
    (one,) = story_of(tmp_path).decisions
    assert (one.action, one.to, one.factor) == ("stop", 1, 0.25)
    assert len(list(tmp_path.rglob(steering.CHECKPOINT))) == 2


@pytest.mark.parametrize("at", [1, 2])
def test_advice_ends_nothing(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does it say so at the last step, at which TRL ends the run itself."""
    falling(monkeypatch, at)
    trainer = tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours={"autopilot": "advise"}, max_steps=2)
    trainer.train()
    assert trainer.state.global_step == 2
    assert "the mean reward was at least 0.7 and has been 0.2" in caplog.text
    assert "the run was ended" not in caplog.text


def test_cut_completions_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No token ends a completion of the random model within the limit; the shares are those of TRL's own metric."""
    seen: list[np.ndarray] = []
    taken = Pilot.batch
    monkeypatch.setattr(
        Pilot, "batch", lambda self, step, rewards, cut: seen.append(cut) or taken(self, step, rewards, cut)
    )
    trainer = tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours={"autopilot": "advise"}, max_steps=2)
    trainer.train()
    logged = [
        row["completions/clipped_ratio"] for row in trainer.state.log_history if "completions/clipped_ratio" in row
    ]
    assert [float(cut.mean()) for cut in seen] == pytest.approx(logged)


def test_what_the_monitors_have_seen_survives_a_checkpoint(tmp_path: Path) -> None:
    class Nothing:
        """No trainer."""

    one = steering.Steering(Nothing(), "act")
    draw = np.random.default_rng(0)
    for step in range(1, 30):
        one.take(step, torch.from_numpy((draw.random((16, 4)) < 0.7).astype(float)), torch.zeros(16, 4))
    arguments: Any = type("Args", (), {"output_dir": str(tmp_path)})()
    state: Any = type("State", (), {"global_step": 29, "is_world_process_zero": True})()
    (tmp_path / "checkpoint-29").mkdir()
    one.on_save(arguments, state, None)
    other = steering.Steering(Nothing(), "act")
    other.restore(tmp_path / "checkpoint-29")
    assert repr(other.pilot.state()) == repr(one.pilot.state())  # NaN is not equal to itself


def test_a_policy_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give one of off, advise, act"):
        tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours={"autopilot": "fly"})
