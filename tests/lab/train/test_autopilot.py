"""A run that is steered: weights go back, settings change, and a kill at any moment changes nothing of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import config, rows, start, stopped_at, timeless, weights

from grposcope.core.errors import UserError
from grposcope.core.finding import Finding
from grposcope.instruments.autopilot import answer, events, pilot
from grposcope.instruments.autopilot.alarm import explained, fall
from grposcope.instruments.autopilot.pilot import Decision, Situation
from grposcope.lab.policies import Policy
from grposcope.lab.train import autopilot, checkpoint
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import resume, train
from grposcope.logs import read

AT, TO = 6, 3


@pytest.fixture
def settings(policy: Policy, tmp_path: Path) -> TrainConfig:
    return config(
        policy, tmp_path, steps=9, eval_every=3, eval_problems=3, threads=1, checkpoint_every=3, keep_checkpoints=2,
        rollouts_every=0, autopilot="act", warmup=0, schedule="constant",
    )  # fmt: skip


def deciding(monkeypatch: pytest.MonkeyPatch, **what: Any) -> None:
    """The pilot raises an alarm after step AT, and decides `what`."""
    monkeypatch.setattr(
        pilot.Pilot, "alarm", lambda self, step: fall("heldout", step, 4.6, None, 0.6, 0.5, 0.3) if step == AT else None
    )

    def decide(self: pilot.Pilot, alarm: Finding, now: Situation) -> Decision:
        given = {"action": "rollback", "to": TO, "interval": now.interval, "factor": 0.5, "done": True, **what}
        found = Decision(alarm.seen or 0, why=explained(alarm, "c"), **given)
        self._counted(alarm, found)
        return found

    monkeypatch.setattr(pilot.Pilot, "decide", decide)


def saved(folder: Path, step: int) -> bytes:
    return (checkpoint.folder_of(folder, step) / "model" / "model.safetensors").read_bytes()


def assert_same(one: Path, other: Path, *also: str) -> None:
    """The two runs have the same steps, groups, evaluations and last weights, and the same lines of `also`."""
    for name in ("steps", "groups", "evals", *also):
        assert timeless(rows(one, name)) == timeless(rows(other, name)), name
    for before, after in zip(weights(one), weights(other), strict=True):
        assert before == after


def test_weights_go_back_and_the_run_goes_on(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    deciding(monkeypatch)
    train(replace(settings, keep_checkpoints=0))
    folder = Path(settings.out or "")
    assert saved(folder, AT) == saved(folder, TO)
    taken = [row["lr"] for row in rows(folder, "steps")]
    assert taken == pytest.approx([1e-2] * AT + [5e-3] * 3)
    assert [row["step"] for row in rows(folder, "steps")] == list(range(1, 10))
    story = events.read(folder)
    assert story is not None
    assert [(one.step, one.to) for one in story.decisions] == [(AT, TO)]
    said = answer._section([read(folder)])
    assert said is not None
    assert said.sentence == "The autopilot acted once."
    assert "The run goes back to the weights of step 3 and continues with 0.5 × the scheduled" in said.text[0]


@pytest.mark.slow
def test_the_batch_after_is_a_new_one(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data is not drawn again: the problems of later steps are those of a run without an autopilot."""
    train(replace(settings, autopilot="off", out=f"{settings.out}-off"))
    deciding(monkeypatch)
    train(settings)
    steered, plain = (rows(Path(f"{settings.out}{end}"), "groups") for end in ("", "-off"))
    assert [row["problem"] for row in steered] == [row["problem"] for row in plain]


@pytest.mark.slow
def test_advice_changes_nothing(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    train(replace(settings, autopilot="off", out=f"{settings.out}-off"))
    deciding(monkeypatch, done=False)
    train(replace(settings, autopilot="advise"))
    for before, after in zip(weights(Path(settings.out or "")), weights(Path(f"{settings.out}-off")), strict=True):
        assert before == after


def test_a_stop_keeps_the_sound_weights(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    deciding(monkeypatch, action="stop", factor=1.0)
    result = train(replace(settings, keep_checkpoints=0))
    folder = Path(settings.out or "")
    assert result.steps == AT
    assert (folder / "model" / "model.safetensors").read_bytes() == saved(folder, TO)


def test_the_interval_is_cut(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    deciding(monkeypatch, interval=1, factor=1.0)
    train(replace(settings, interval=3))
    generated = [row["tokens_generated"] > 0 for row in rows(Path(settings.out or ""), "steps")]
    assert generated == [True, False, False, True, False, False, True, True, True]


def test_the_token_limit_is_raised(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of later batches and of evaluations is the new one; the objective stays as it was."""
    deciding(monkeypatch, action="change", to=-1, setting="tokens", tokens=9, factor=1.0)
    train(replace(settings, max_tokens=4))
    folder = Path(settings.out or "")
    longest = [row["length"] for row in rows(folder, "steps")]
    assert max(longest[:AT]) <= 4 < max(longest[AT:]) <= 9


def test_a_correction_is_put_on(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    deciding(monkeypatch, action="change", to=-1, setting="correction", correction="sequence_cap:2", factor=1.0)
    train(replace(settings, staleness="2"))
    corrected = ["importance/weight" in row for row in rows(Path(settings.out or ""), "steps")]
    assert corrected == [False] * AT + [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [
        {"setting": "tokens", "tokens": 9, "factor": 1.0},
        {"setting": "correction", "correction": "sequence_cap:2", "factor": 1.0},
    ],
)
def test_a_change_outlives_a_kill(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, what: dict[str, Any]) -> None:
    given = replace(settings, max_tokens=4, staleness="2")
    whole, cut = replace(given, out=f"{settings.out}-whole"), given
    deciding(monkeypatch, action="change", to=-1, **what)
    start(whole)
    stopped_at(monkeypatch, cut, AT + 2)
    resume(Path(cut.out or ""))
    assert_same(Path(whole.out or ""), Path(cut.out or ""), "autopilot")


@pytest.mark.slow
@pytest.mark.parametrize(
    "killed", ["between", *(pytest.param(each, marks=pytest.mark.slow) for each in ("before", "after"))]
)
def test_killed_and_resumed_it_is_the_same_run(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """before the decision; between the decision and its checkpoint; in the step after it."""
    whole, cut = replace(settings, out=f"{settings.out}-whole"), settings
    deciding(monkeypatch)
    start(whole)
    if killed == "between":
        with monkeypatch.context() as patch:
            restored = checkpoint.restore

            def dies(*given: Any) -> Any:
                restored(*given)
                raise KeyError("power cut")

            patch.setattr(checkpoint, "restore", dies)
            with pytest.raises(KeyError):
                start(cut)
    else:
        stopped_at(monkeypatch, cut, AT if killed == "before" else AT + 2)
    resume(Path(cut.out or ""))
    assert_same(Path(whole.out or ""), Path(cut.out or ""), "autopilot")


@pytest.mark.slow
def test_watched_without_an_alarm_it_is_the_run_left_alone(settings: TrainConfig) -> None:
    """Nearly all completions of the random model are cut, which is not watched here."""
    for mode in ("off", "act:monitors=reward+heldout"):
        train(replace(settings, autopilot=mode, out=f"{settings.out}-{mode[:3]}"))
    one, other = (Path(f"{settings.out}-{mode}") for mode in ("off", "act"))
    assert events.read(other) is None
    assert_same(one, other)


@pytest.mark.slow
def test_a_full_disk_in_a_rollback_loses_nothing(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint after the rollback cannot be written: one line; resumed, the run is as if there had been room."""
    whole, cut = replace(settings, out=f"{settings.out}-whole"), settings
    deciding(monkeypatch)
    start(whole)
    own = checkpoint.save

    def full(folder: Path, state: Any, *rest: Any) -> None:
        if state.step == AT:
            raise UserError(f"cannot write {folder}: No space left on device; make room")
        own(folder, state, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", full)
        with pytest.raises(UserError, match="No space left on device; make room"):
            start(cut)
    resume(Path(cut.out or ""))
    assert_same(Path(whole.out or ""), Path(cut.out or ""), "autopilot")


@pytest.mark.slow
def test_real_monitors_bring_a_run_back(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part is replaced: weights are destroyed in mid-run, the reward falls, and the run is brought back."""
    settings = config(policy, tmp_path, steps=26, prompts=16, eval_problems=0, threads=1, checkpoint_every=4, lr=0.0,
                      rollouts_every=0, autopilot="act:fall=0.05", keep_checkpoints=0)  # fmt: skip
    from grposcope.lab.train import loop

    own = loop.update

    def destroys(model: Any, *rest: Any) -> Any:
        destroys.count += 1  # type: ignore[attr-defined]
        if destroys.count == 14:  # type: ignore[attr-defined]
            with torch.no_grad():
                next(iter(model.parameters())).fill_(7.0)
        return own(model, *rest)

    destroys.count = 0  # type: ignore[attr-defined]

    def batch(self: autopilot._RunAutopilot, step: int, _: Any) -> None:
        whole = float(next(iter(self.setup.policy.model.parameters())).abs().max()) < 7.0
        values = np.random.default_rng(step).random((16, 4)) < (0.8 if whole else 0.1)
        self.pilot.batch(step, values.astype(float))

    monkeypatch.setattr(loop, "update", destroys)
    monkeypatch.setattr(autopilot._RunAutopilot, "batch", batch)
    train(settings)
    story = events.read(Path(settings.out or ""))
    assert story is not None
    (one,) = story.decisions
    assert (one.action, one.fault) == ("rollback", "reward decline")
    assert isinstance(one.why, Finding)
    assert one.why.onset == 15
    assert one.to in (8, 12)  # two batches after the checkpoint of step 12 may be too few to show that it is sound
    assert 15 <= one.step <= 18
    (outcome,) = story.outcomes
    assert outcome.came_true


def test_a_policy_that_cannot_be_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a policy has no setting 'speed'"):
        train(TrainConfig(model=str(tmp_path / "none"), autopilot="act:speed=2"))


def test_without_checkpoints_it_is_said(settings: TrainConfig, capsys: pytest.CaptureFixture[str]) -> None:
    train(replace(settings, checkpoint_every=0, steps=1))
    assert "cannot go back, as no checkpoints are taken" in capsys.readouterr().err


def test_a_broken_line_of_events_is_named(tmp_path: Path) -> None:
    (tmp_path / events.EVENTS).write_text('{"kind": "decision", "step": 3}\n{"ki')
    with pytest.raises(UserError, match=r"autopilot.jsonl, line 1 is not an event of an autopilot"):
        events.read(tmp_path)
    events_only = json.dumps({"kind": "outcome", "step": 9, "of": 3, "came_true": True,
                              "mean": {"value": 0.5, "se": "NaN", "n": 1, "flag": ""}})  # fmt: skip
    (tmp_path / events.EVENTS).write_text(events_only + "\n")
    story = events.read(tmp_path)
    assert story is not None
    assert story.outcomes[0].of == 3
