"""The TRL callback: its record equals what TRL logs, it warns once, stops, resumes, and never ends a run by failing."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from places import ROOT, TESTS

from engines import tiny_trl
from grposcope.core.errors import UserError
from grposcope.engines.trl import GRPOscopeCallback
from grposcope.engines.trl import callback as trl_callback
from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.dynamics import stability
from grposcope.logs import read
from grposcope.logs.trainers import trl_completions, trl_output

FUNCTION = "right"


def arguments(folder: Path, **more: Any) -> SimpleNamespace:
    """What the callback needs of a GRPOConfig."""
    given = {
        "output_dir": str(folder), "logging_steps": 1, "log_completions": False, "reward_weights": None,
        "num_generations": 4, "beta": 0.0, "scale_rewards": "group", "hub_token": "<HUB_TOKEN>", **more,
    }  # fmt: skip
    config = SimpleNamespace(**given)
    config.to_dict = lambda: dict(given)
    return config


def logged(step: int, **more: Any) -> dict[str, Any]:
    """A row as TRL 1.16 logs it."""
    wobble = 0.01 * math.sin(step * step)
    return {
        "loss": 0.0, "grad_norm": 0.5 + wobble, "learning_rate": 1e-6, f"rewards/{FUNCTION}/mean": 0.4,
        f"rewards/{FUNCTION}/std": 0.5, "reward": 0.4 + wobble, "reward_std": 0.5 + wobble,
        "frac_reward_zero_std": 0.25, "completions/mean_length": 20.0, "completions/clipped_ratio": 0.1,
        "entropy": 0.8 + wobble, "epoch": step / 100, "step_time": 0.1, **more,
    }  # fmt: skip


class Play:
    """Plays the events of a transformers Trainer to a callback; `log(step)` is what TRL logs at a step."""

    def __init__(self, callback: GRPOscopeCallback, folder: Path, log: Any = logged, main: bool = True, **more: Any):
        self.callback, self.log = callback, log
        self.args = arguments(folder, **more)
        self.state = SimpleNamespace(global_step=0, max_steps=100, is_world_process_zero=main)
        self.control = SimpleNamespace(should_training_stop=False)

    def event(self, name: str, **more: Any) -> None:
        getattr(self.callback, f"on_{name}")(self.args, self.state, self.control, **more)

    def run(self, until: int, since: int = 0, end: bool = True, evaluate: Sequence[int] = ()) -> Play:
        self.state.global_step = since
        self.event("train_begin", model=None)
        for step in range(since + 1, until + 1):
            self.event("step_begin")
            self.state.global_step = step
            self.event("step_end")
            self.event("log", logs=self.log(step))
            if step in evaluate:
                self.event("prediction_step")
                self.event("log", logs={"eval_reward": 0.3, "eval_loss": 0.1, "epoch": 1.0})
            if self.control.should_training_stop:
                break
        if end:
            self.event("log", logs={"train_runtime": 1.5, "train_loss": 0.0})
            self.event("train_end")
        return self


@pytest.fixture(autouse=True)
def version(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What is played, in tests that are not of TRL itself, is what TRL 1.16 logs, whatever is installed."""
    if request.node.get_closest_marker("slow") is None:
        installed = trl_callback.version
        monkeypatch.setattr(trl_callback, "version", lambda name: "1.16.0" if name == "trl" else installed(name))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge whenever the run has grown, whatever that costs."""
    monkeypatch.setattr(trl_callback, "BUDGET", 1.0)
    monkeypatch.setattr(trl_callback, "FIRST", 0.0)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_record_is_what_was_logged_under_our_names(tmp_path: Path) -> None:
    Play(GRPOscopeCallback(), tmp_path).run(40, evaluate=(20, 40))
    run = read(tmp_path / "grposcope")
    assert (run.meta.engine, run.meta.name, run.meta.status) == (
        "trl",
        tmp_path.name,
        "interrupted",
    )
    assert run.table["step"].tolist() == list(range(1, 41))
    same = {
        "reward": "reward", "reward_std_batch": "reward_std", "dead_fraction": "frac_reward_zero_std",
        f"component/{FUNCTION}": f"rewards/{FUNCTION}/mean", "lr": "learning_rate", "seconds_step": "step_time",
        "length": "completions/mean_length", "truncated": "completions/clipped_ratio", "grad_norm": "grad_norm",
    }  # fmt: skip
    for name, key in same.items():
        assert run.table[name].tolist() == [logged(step)[key] for step in range(1, 41)], name
    assert run.evaluations.of("reward").step.tolist() == [20, 40]
    assert run.evaluations.of("reward").value.tolist() == [0.3, 0.3]
    assert np.isnan(run.evaluations.of("reward").se).all()
    assert (run.setting("group"), run.setting("kl")) == (4, 0.0)
    assert run.summary is not None
    assert run.summary["train_runtime"] == 1.5
    assert "not recorded" in run.config["groups"]


def test_the_page_describes_the_record(tmp_path: Path) -> None:
    """docs/record.md names every file, the keys of config.json and summary.json, and the fields of an alarm."""
    page = (ROOT / "docs" / "record.md").read_text("utf-8")
    Play(
        GRPOscopeCallback(), tmp_path, lambda step: logged(step, **({"grad_norm": math.nan} if step == 5 else {}))
    ).run(8)
    folder = tmp_path / "grposcope"
    told = {path.name for path in folder.iterdir() if path.name != ".lock"}
    for name in ("config.json", "summary.json", "alarms.jsonl"):
        told |= json.loads((folder / name).read_text("utf-8")).keys()
    assert not [name for name in told if f"`{name}`" not in page]


def test_the_version_decides_what_reward_std_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grposcope.engines.trl.callback.version", lambda _: "0.25.1")
    Play(GRPOscopeCallback(), tmp_path).run(3)
    assert "reward_std" in read(tmp_path / "grposcope").table


def test_rows_of_one_step_are_one(tmp_path: Path) -> None:
    """As when another callback logs a number of its own before TRL does; what is no number is left out."""
    play = Play(GRPOscopeCallback(), tmp_path)
    play.event("train_begin")
    play.state.global_step = 1
    play.event("log", logs={"mine": 7.0, "note": "text"})
    play.event("log", logs=logged(1, entropy=None))
    play.event("step_begin")
    play.event("log", logs={"late": 1.0})
    play.event("train_end")
    (row,) = lines(tmp_path / "grposcope" / "steps.jsonl")
    assert (row["mine"], row["reward"], row["entropy"]) == (7.0, logged(1)["reward"], "NaN")
    assert not {"note", "late"} & row.keys()


def test_windows_are_recorded(tmp_path: Path) -> None:
    Play(GRPOscopeCallback(), tmp_path, logging_steps=10).run(1)
    assert read(tmp_path / "grposcope").window == 10


def test_it_says_at_the_start_what_will_not_be_seen(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    Play(GRPOscopeCallback(), tmp_path / "a", logging_steps=10).run(1)
    said = capsys.readouterr().err
    assert "Without log_completions=True the record has no single rewards" in said
    assert "each row is the mean of 10 steps, 10 rows in all, and changes are tested from 30 rows on: set log" in said
    Play(GRPOscopeCallback(), tmp_path / "b", log_completions=True).run(1)
    assert "set log" not in capsys.readouterr().err


def states(folder: Path, *steps: int, since: int = 1, shift: float = 0.0) -> None:
    """Checkpoints of a run whose log is `logged`, with the files of a model; shift: of its rewards."""
    for last in steps:
        rows = [{**logged(n), "step": n, "reward": logged(n)["reward"] + shift} for n in range(since, last + 1)]
        place = folder / f"checkpoint-{last}"
        place.mkdir(parents=True)
        (place / "trainer_state.json").write_text(json.dumps({"log_history": rows, "global_step": last}))
        (place / "config.json").write_text('{"model_type": "llama"}')


def test_either_folder_is_the_whole_run(tmp_path: Path) -> None:
    """A record that began at step 16, checkpoints with the steps before, and completions of one step."""
    Play(GRPOscopeCallback(), tmp_path, log_completions=True).run(30, since=15)
    states(tmp_path, 15, 30)
    completions(trl_completions.file_of(tmp_path, 20), ["p"] * 4, right=[0.0, 1.0, 1.0, 0.0])
    for place in (tmp_path, tmp_path / "grposcope"):
        run = read(place)
        assert run.table["step"].tolist() == list(range(1, 31))
        assert run.table["reward"].tolist() == [logged(step)["reward"] for step in range(1, 31)]
        assert run.groups.rewards.tolist() == [0.0, 1.0, 1.0, 0.0]
        assert [rollout.reward for rollout in run.rollouts[1]] == [0.0, 1.0, 1.0, 0.0]
        assert (run.setting("group"), run.meta.source, run.meta.status) == (4, place, "interrupted")
        assert trl_output.models(place) == {n: tmp_path / f"checkpoint-{n}" for n in (15, 30)}
        assert "steps up to 15 come from checkpoint-30, because the record began later" in run.meta.notes


def test_records_and_checkpoints_of_different_runs_are_not_joined(tmp_path: Path) -> None:
    Play(GRPOscopeCallback(), tmp_path).run(30)
    states(tmp_path, 30, shift=0.1)
    with pytest.raises(UserError, match=r"of different runs: their rewards at step 1 differ; give .*grposcope or "):
        read(tmp_path)
    run = read(tmp_path / "grposcope")
    assert run.table["reward"][0] == logged(1)["reward"]
    assert "only the record was read" in " ".join(run.meta.notes)


def test_checkpoints_of_different_runs_are_named(tmp_path: Path) -> None:
    states(tmp_path, 10, 20, 30)
    assert read(tmp_path).steps == 30
    states(tmp_path, 12, shift=0.2)
    os.utime(tmp_path / "checkpoint-12" / "trainer_state.json", (2e9, 2e9))
    with pytest.raises(UserError, match=r"checkpoint-30.* and .*checkpoint-12.* are of different runs"):
        read(tmp_path)


def test_the_optimizer_that_was_recorded_is_seen(tmp_path: Path) -> None:
    more = {"optim": "adamw_torch_fused", "adam_beta1": 0.9, "learning_rate": 1e-6, "num_iterations": 1}
    play = Play(GRPOscopeCallback(), tmp_path, **more)
    play.run(5)
    rule = stability.update_rule(read(tmp_path))
    assert (rule.momentum, rule.optimizer, rule.interval) == (0.9, "adamw", 1)


def test_only_the_main_process_writes(tmp_path: Path) -> None:
    Play(GRPOscopeCallback(), tmp_path, main=False).run(3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("hasty")
def test_it_warns_once_per_onset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture
) -> None:
    def log(step: int) -> dict[str, Any]:
        return logged(step, grad_norm=math.nan) if step in (10, 11, 30) else logged(step)

    callback = GRPOscopeCallback()
    with caplog.at_level(logging.WARNING, "grposcope"):
        Play(callback, tmp_path, log).run(60)
    warned = [record.getMessage() for record in caplog.records if "non-finite" in record.getMessage()]
    assert len(warned) == 1
    assert warned[0].startswith(
        "grposcope: step 10: failing: non-finite, since step 10, because grad_norm is not finite on 1 row"
    )
    assert capsys.readouterr().err.count(warned[0]) == 1
    (alarm,) = lines(tmp_path / "grposcope" / "alarms.jsonl")
    assert (alarm["fault"], alarm["seen"], alarm["since"]["step"]) == ("non-finite", 10, 10)
    summary = json.loads((tmp_path / "grposcope" / "summary.json").read_text())
    assert "non-finite" in summary["present"]
    assert summary["verdict"].startswith("failing: grad_norm is not finite in 3 of 60 steps; reward ")


def test_a_line_is_on_the_terminal_once(capsys: pytest.CaptureFixture) -> None:
    """Also where the log is shown there."""
    shown = logging.StreamHandler(sys.stderr)
    trl_callback.logger.addHandler(shown)
    try:
        trl_callback.say("here", logging.WARNING)
    finally:
        trl_callback.logger.removeHandler(shown)
    assert capsys.readouterr().err == "here\n"


@pytest.mark.parametrize(("stop_on", "last"), [((), 40), (("non-finite",), 11), ("failing", 11), (("length",), 40)])
def test_it_stops_only_if_asked_to(tmp_path: Path, stop_on: Any, last: int) -> None:
    """A loss that is not finite does not wait for the budget of judging: it ends the run one step later."""
    callback = GRPOscopeCallback(stop_on=stop_on)
    play = Play(callback, tmp_path, lambda step: logged(step, grad_norm=math.inf if step >= 10 else 0.5)).run(40)
    assert play.state.global_step == last
    status = json.loads((tmp_path / "grposcope" / "phase.json").read_text())
    assert (status["phase"], status["step"]) == ("interrupted", last)
    assert len(read(tmp_path / "grposcope").table["step"]) == last


def test_what_is_no_mode_is_refused() -> None:
    with pytest.raises(
        UserError,
        match="stop_on 'nan' is neither a grade nor a fault; give failing, warning, note, or one of:",
    ):
        GRPOscopeCallback(stop_on=("nan",))
    with pytest.raises(UserError, match="alert_on 'nan' is neither a grade"):
        GRPOscopeCallback(alert_on="nan")
    with pytest.raises(UserError, match="is not an http or https URL"):
        GRPOscopeCallback(alert_to="ftp://x")
    with pytest.raises(UserError, match="alert_to 'mlflow' is unknown; give wandb, tensorboard, or a URL"):
        GRPOscopeCallback(alert_to=("wandb", "mlflow"))


def test_resumed_it_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    """Rows after the checkpoint and a half-written line are taken back; warnings are not repeated."""
    folder = tmp_path / "grposcope"

    def log(step: int) -> dict[str, Any]:
        return logged(step, grad_norm=math.nan) if step == 5 else logged(step)

    killed = Play(GRPOscopeCallback(), tmp_path, log)
    killed.run(25, end=False, evaluate=(10, 20))
    killed.callback._record.close()
    (first,) = lines(folder / "alarms.jsonl")
    assert first["seen"] < 15
    with (folder / "steps.jsonl").open("a") as file:
        file.write('{"step": 25, "rew')
    with (folder / "alarms.jsonl").open("a") as file:
        file.write(json.dumps({**lines(folder / "alarms.jsonl")[0], "fault": "length", "seen": 24}) + "\n{")
    Play(GRPOscopeCallback(), tmp_path, log).run(30, since=15, evaluate=(20,))
    run = read(folder)
    assert run.table["step"].tolist() == list(range(1, 31))
    assert run.evaluations.of("reward").step.tolist() == [10, 20]
    assert [(alarm["fault"], alarm["seen"]) for alarm in lines(folder / "alarms.jsonl")] == [
        ("non-finite", first["seen"])
    ]
    assert not (tmp_path / "grposcope-1").exists()


def test_resumed_without_a_record_it_begins_one(tmp_path: Path) -> None:
    Play(GRPOscopeCallback(), tmp_path).run(30, since=15)
    assert read(tmp_path / "grposcope").table["step"].tolist() == list(range(16, 31))


def test_a_new_run_in_the_folder_does_not_delete_the_old_one(tmp_path: Path) -> None:
    for count in (3, 4, 5):
        Play(GRPOscopeCallback(), tmp_path).run(count)
    steps = {path.name: read(path).steps for path in tmp_path.iterdir()}
    assert steps == {"grposcope-1": 3, "grposcope-2": 4, "grposcope": 5}


@pytest.mark.parametrize("broken", ["a file in the way", "steps.jsonl gone", "another process"])
def test_its_failures_do_not_end_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    callback = GRPOscopeCallback(stop_on="note")
    play = Play(callback, tmp_path)
    if broken == "a file in the way":
        (tmp_path / "grposcope").write_text("")
    elif broken == "another process":
        other = Play(GRPOscopeCallback(tmp_path / "grposcope"), tmp_path)
        other.event("train_begin")
        callback.folder = tmp_path / "grposcope"
        play.state.global_step = 1
    else:
        monkeypatch.setattr("grposcope.logs.RunWriter.step", lambda *_: 1 / 0)
    play.run(5, since=play.state.global_step)
    assert not play.control.should_training_stop
    assert capsys.readouterr().err.count("the training continues without a record") == 1


def completions(path: Path, prompts: Sequence[Any], **rewards: Sequence[float | None]) -> None:
    path.parent.mkdir(exist_ok=True)
    count = len(prompts)
    table = {
        "step": [1] * count, "prompt": list(prompts), "completion": ["x"] * count, **rewards, "extra": [9.0] * count,
        "advantage": [0.0] * count,
    }  # fmt: skip
    pq.write_table(pa.table(table), path)


def test_groups_are_the_weighted_sums(tmp_path: Path) -> None:
    path = trl_completions.file_of(tmp_path, 7)
    none = [None, None, None, 2.0]
    completions(path, ["p", "p", "q", "q"], a=[1.0, 0.0, None, 1.0], b=none)
    rows = trl_completions.group_rows(path, 7, ["a", "b"], [2.0, 0.5], 2)
    assert rows[0]["rewards"] == [2.0, 0.0]
    assert math.isnan(rows[1]["rewards"][0])
    assert rows[1]["rewards"][1] == 3.0
    assert len({row["problem"] for row in rows}) == 2
    assert rows[0]["problem"].endswith(" p")
    for names, size, words in (
        (["a"], 3, "do not divide into groups of 3"),
        (["c"], 2, "lacks the column 'c'"),
        (["a"], 4, "mixes prompts"),
    ):
        with pytest.raises(UserError, match=words):
            trl_completions.group_rows(path, 7, names, None, size)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(UserError, match="cannot be read"):
        trl_completions.group_rows(path, 7, ["a"], None, 2)


def test_names_of_problems() -> None:
    talk = [{"role": "system", "content": "s" * 500}, {"role": "user", "content": "1+1?"}]
    assert trl_completions.problem_name(talk).endswith(" 1+1?")
    assert trl_completions.problem_name(talk) != trl_completions.problem_name(
        [talk[0], {"role": "user", "content": "1+2?"}]
    )
    assert "\n" not in trl_completions.problem_name("a\nb")
    assert len(trl_completions.problem_name("a" * 9999)) < 80


def test_groups_of_steps_whose_rollouts_were_logged(tmp_path: Path) -> None:
    """TRL writes the file after it logs; where it cannot be used, that is said once and the run goes on."""
    play = Play(GRPOscopeCallback(), tmp_path, log_completions=True)
    play.event("train_begin")
    for step in (1, 2, 3):
        play.event("step_begin")
        play.state.global_step = step
        play.event("log", logs=logged(step))
        extra = 4 if step < 3 else 3
        path = trl_completions.file_of(tmp_path, step)
        completions(path, ["p"] * 4 + ["q"] * extra, right=[0.0, 1.0] * 2 + [1.0] * extra)
    play.event("train_end")
    groups = read(tmp_path / "grposcope").groups
    assert groups.step.tolist() == [1, 1, 2, 2]
    assert groups.rewards[:8].tolist() == [0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_judging_keeps_to_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock where a step takes 1 s and a look 2 s, looks behind the first seven are 2/BUDGET s apart."""
    now, looks = 0.0, []

    def judge(self: GRPOscopeCallback) -> None:
        nonlocal now
        looks.append(now)
        self._alarms.rows = self._rows
        now += 2.0

    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(GRPOscopeCallback, "_judge", judge)
    monkeypatch.setattr("grposcope.watch.alarms.Alarms.due", lambda self, rows, pace, changed: pace.ready())

    def log(step: int) -> dict[str, Any]:
        nonlocal now
        now += 1.0
        return logged(step)

    Play(GRPOscopeCallback(), tmp_path, log).run(2000, end=False)
    assert looks[:7] == pytest.approx([10, 22, 34, 51, 78, 110, 162])  # rows 10, 20 … 100, 150, and the looks before
    assert np.diff(looks[7:]) == pytest.approx(2.0 / trl_callback.BUDGET, abs=2)


@pytest.mark.parametrize("seconds", [0.02, 0.125, 0.7])
def test_a_run_that_is_dead_from_the_start_is_stopped_however_fast_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    now = 0.0

    def dead(step: int) -> dict[str, Any]:
        nonlocal now
        now += seconds
        nothing = {"reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0, "grad_norm": 0.0, "loss": 0.0}
        return {**logged(step), **nothing}

    monkeypatch.setattr("time.monotonic", lambda: now)
    play = Play(GRPOscopeCallback(stop_on=("failing",)), tmp_path, dead).run(400)
    assert play.control.should_training_stop
    assert play.state.global_step <= 31


def test_a_sound_run_is_looked_at_as_early_and_goes_on(tmp_path: Path) -> None:
    play = Play(GRPOscopeCallback(stop_on=("failing",)), tmp_path).run(120)
    assert play.state.global_step == 120


@pytest.mark.slow
def test_with_trl_itself(tmp_path: Path) -> None:
    """The record equals TRL's own state row by row, and its groups TRL's own mean reward; a resumed run goes on."""
    pytest.importorskip("trl")
    options = {
        "log_completions": True, "eval_strategy": "steps", "eval_steps": 3, "per_device_eval_batch_size": 8,
        "num_generations_eval": 4, "save_strategy": "steps", "save_steps": 4, "reward_weights": [1.0, 0.5],
        "max_steps": 8,
    }  # fmt: skip
    functions = [tiny_trl.reward_letters, tiny_trl.reward_length]
    trainer = tiny_trl.trainer(tmp_path, [GRPOscopeCallback()], functions, **options)
    trainer.train()
    check(tmp_path, trainer.state.log_history, 8)
    again = tiny_trl.trainer(tmp_path, [], functions, **{**options, "max_steps": 12})
    again.add_callback(GRPOscopeCallback())
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    check(tmp_path, again.state.log_history, 12)
    assert not (tmp_path / "grposcope-1").exists()


@pytest.mark.slow
def test_any_supported_trl_is_recorded(tmp_path: Path) -> None:
    """What every version logs; the oldest writes no completions, and so no groups are recorded there."""
    pytest.importorskip("trl")
    trainer = tiny_trl.trainer(tmp_path, [GRPOscopeCallback()], [tiny_trl.reward_letters], max_steps=4)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    run = read(tmp_path / "grposcope")
    assert run.meta.status == "finished"
    assert run.table["step"].tolist() == [row["step"] for row in rows] == [1, 2, 3, 4]
    for name in ("reward", "loss", "grad_norm"):
        assert run.table[name].tolist() == [row[name] for row in rows]
    assert read(tmp_path).table["step"].tolist() == [1, 2, 3, 4]
    moved = run.table["weights_moved"]
    assert (moved[np.isfinite(moved)] > 0.9).all()
    assert np.isfinite(moved).any()


@pytest.mark.parametrize(("name", "share"), [("AcceleratedOptimizer", 1.0), ("DeepSpeedOptimizerWrapper", None)])
def test_the_share_of_weights_that_moved(tmp_path: Path, name: str, share: float | None) -> None:
    """A wrapper of DeepSpeed is asked for a step that its engine has made before."""
    model = torch.nn.Linear(4, 4)
    model(torch.ones(2, 4)).sum().backward()
    inner = torch.optim.SGD(model.parameters(), 0.1)
    more = {"model": model, "optimizer": type(name, (), {})()}
    play = Play(GRPOscopeCallback(), tmp_path)
    play.event("train_begin")
    play.event("pre_optimizer_step", **more)
    inner.step()
    play.event("optimizer_step", **more)
    play.state.global_step = 1
    play.event("log", logs=logged(1))
    play.event("train_end")
    (row,) = lines(tmp_path / "grposcope" / "steps.jsonl")
    assert row.get("weights_moved") == share


def check(folder: Path, history: list[dict[str, Any]], count: int) -> None:
    run = read(folder / "grposcope")
    rows = [row for row in history if "loss" in row]
    assert run.table["step"].tolist() == [row["step"] for row in rows] == list(range(1, count + 1))
    for name, key in {"reward": "reward", "reward_std_batch": "reward_std", "entropy": "entropy"}.items():
        assert run.table[name].tolist() == [row[key] for row in rows]
    held = [row for row in history if "eval_reward" in row]
    assert run.evaluations.of("reward").value.tolist() == [row["eval_reward"] for row in held]
    groups = run.groups
    assert set(groups.sizes.tolist()) == {4}
    means = [groups.rewards[np.repeat(groups.step == step, groups.sizes)].mean() for step in run.table["step"]]
    np.testing.assert_allclose(means, run.table["reward"], atol=1e-6)
    assert run.meta.status == "finished"
    assert {finding.status for finding in diagnose(run)} <= {"excluded", "cannot tell", "present"}


@pytest.mark.slow
def test_two_processes_stop_together(tmp_path: Path) -> None:
    """Only the first writes, and both end after the same step, although only the first knows why."""
    pytest.importorskip("trl")
    import subprocess

    script = tmp_path / "train.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(TESTS)!r})\n"
        "import os\n"
        "from engines import tiny_trl\n"
        "from grposcope.engines.trl import GRPOscopeCallback\n"
        "def reward(completions, trainer_state, **_):\n"
        "    bad = trainer_state.global_step >= 3\n"
        "    return [float('inf') if bad else len(text) for text in completions]\n"
        f"t = tiny_trl.trainer({str(tmp_path / 'out')!r}, [GRPOscopeCallback(stop_on='non-finite')], reward,\n"
        "                     max_steps=20, per_device_train_batch_size=4)\n"
        "t.train()\n"
        "print('ended', os.environ['RANK'], t.state.global_step, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29617", str(script)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    ended = re.findall(r"ended \d (\d+)", done.stdout)  # two processes may write into one line
    assert len(ended) == 2, done.stdout + done.stderr[-2000:]
    steps = set(ended)
    assert len(steps) == 1
    assert int(steps.pop()) < 20
    assert read(tmp_path / "out" / "grposcope").steps >= 4


def nan_from_10(step: int) -> dict[str, Any]:
    return logged(step, grad_norm=math.inf if step >= 10 else 0.5)


@pytest.mark.usefixtures("hasty")
def test_alarms_reach_wandb_and_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told: list[dict[str, Any]] = []
    active = SimpleNamespace(alert=lambda **alert: told.append(alert))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=active))
    Play(GRPOscopeCallback(alert_to=("wandb", "tensorboard")), tmp_path, nan_from_10).run(30)
    ((title, level),) = {(alert["title"], alert["level"]) for alert in told}
    assert (title, level) == ("failing: non-finite, since step 10", "ERROR")
    events = EventAccumulator(str(tmp_path / "grposcope" / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("grposcope/alarm/non-finite")] == [(10, 3.0)]
    assert "No alerts" not in capsys.readouterr().err
    assert read(tmp_path / "grposcope").steps == read(tmp_path).steps == 30  # its event files are no second log


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("wandb", [None, SimpleNamespace(run=None)], ids=["absent", "no run"])
def test_a_receiver_that_is_absent_is_said_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, wandb: Any
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    play = Play(GRPOscopeCallback(alert_to="wandb"), tmp_path, nan_from_10).run(30)
    said = capsys.readouterr().err
    assert said.count("grposcope: No alerts to wandb") == 1
    assert said.count("grposcope: wandb: ") == 1
    assert play.state.global_step == 30
    assert read(tmp_path / "grposcope").steps == 30


@pytest.mark.usefixtures("hasty")
def test_a_receiver_that_hangs_does_not_slow_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("grposcope.watch.webhook.TIMEOUT", 60.0)
    monkeypatch.setattr("grposcope.watch.alerts.wait.__defaults__", (0.2,))
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and never answers
        url = f"slack:http://127.0.0.1:{silent.getsockname()[1]}/"
        callback = GRPOscopeCallback(alert_to=url)
        began = time.monotonic()
        play = Play(callback, tmp_path, nan_from_10).run(30)
    assert time.monotonic() - began < 10
    assert play.state.global_step == 30
    assert "webhook: no answer in time" in capsys.readouterr().err


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("alert_on", "sent"), [("warning", 1), (("kl blow-up",), 0), (("non-finite",), 1), ("note", 1)]
)
def test_what_is_told_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alert_on: Any, sent: int) -> None:
    told: list[Any] = []
    monkeypatch.setattr("grposcope.watch.alerts.Sender.send", lambda _, alert: told.append(alert.fault))
    Play(GRPOscopeCallback(alert_to="https://example.org", alert_on=alert_on), tmp_path, nan_from_10).run(30)
    assert told.count("non-finite") == sent


def test_what_ends_the_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr("grposcope.watch.alerts.Sender.send", lambda _, alert: told.append(alert.fault))
    callback = GRPOscopeCallback(stop_on="non-finite", alert_to="https://example.org", alert_on="length")
    Play(callback, tmp_path, nan_from_10).run(30)
    assert told == ["non-finite"]
