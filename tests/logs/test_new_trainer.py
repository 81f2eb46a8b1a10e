"""A new trainer or format that resembles others: it is found by what it recognises, under its own keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grposcope.instruments.diagnosis import diagnose
from grposcope.logs import read, trainers
from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats import FORMATS
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.trainers import TRAINERS, how_to_log
from grposcope.logs.trainers.trainer import Trainer

MINE = {"mytrainer/step": 0.0, "mytrainer/score": 0.5, "mytrainer/h": 1.0}
"""A row whose keys share one prefix."""

LIKE_TRL = {"mytrainer/kl": 0.01, "mytrainer/completions/mean_length": 30.0}
"""Keys that are TRL's without the prefix."""


def written(path: Path, row: dict[str, float]) -> Path:
    """A log of five such rows, a step after the other."""
    rows = [{key: 10 * step if key.endswith("step") else value for key, value in row.items()} for step in range(1, 6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """A trainer, entered in TRAINERS, all of whose metrics begin with mytrainer/."""
    mine = Trainer(
        "mytrainer", "My trainer", recognises=lambda keys: "mytrainer/score" in keys,
        keys={"reward": ("mytrainer/score",), "entropy": ("mytrainer/h",)},
    )  # fmt: skip
    monkeypatch.setitem(TRAINERS, "mytrainer", mine)
    return mine


@pytest.mark.usefixtures("trainer")
@pytest.mark.parametrize("others", [{}, LIKE_TRL], ids=["own keys", "with keys like those of TRL"])
def test_a_trainer_whose_keys_share_a_prefix_is_recognised(tmp_path: Path, others: dict[str, float]) -> None:
    run = read(written(tmp_path / "metrics.jsonl", MINE | others))
    assert run.meta.engine == "mytrainer"
    assert run.keys["reward"] == "mytrainer/score"
    assert run.table["step"].tolist() == [10, 20, 30, 40, 50]
    assert run.keys["step"] == "mytrainer/step"
    assert run.table["entropy"].tolist() == [1.0] * 5
    assert others.keys() <= run.table.keys(), "what the trainer does not define keeps its name"


@pytest.mark.usefixtures("trainer")
def test_scores_of_evaluations_below_the_prefix_are_those_of_the_run(tmp_path: Path) -> None:
    run = read(written(tmp_path / "metrics.jsonl", MINE | {"mytrainer/eval/math": 0.4}))
    assert run.evaluations.metric == ("math",) * 5
    assert run.evaluations.step.tolist() == [10, 20, 30, 40, 50]


@pytest.mark.parametrize("told", [{"keys": {"step": ("round",)}}, {"counters": ("round",)}], ids=["a key", "a counter"])
def test_the_key_that_a_trainer_says_counts_the_steps(
    told: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Trainer("rounds", "Rounds", recognises=lambda keys: "round" in keys, **told)
    monkeypatch.setitem(TRAINERS, "rounds", rounds)
    row = {"round": 0.0, "reward": 0.5, "eval/math": 0.4}
    lines = [{**row, "round": 50 * step} for step in range(1, 9)]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read(path)
    assert run.table["step"].tolist() == [50 * step for step in range(1, 9)]
    assert run.evaluations.step.tolist() == [50 * step for step in range(1, 9)]
    assert not [note for note in run.meta.notes if "counts steps" in note]


def test_a_prefix_of_a_run_before_keys_that_are_known_is_taken_off(tmp_path: Path) -> None:
    row = {f"myrun/{key}": value for key, value in
           {"step": 0.0, "reward": 0.5, "kl": 0.1, "completions/mean_length": 30.0}.items()}  # fmt: skip
    run = read(written(tmp_path / "metrics.jsonl", row))
    assert run.meta.engine == "trl"
    assert run.keys["length"] == "myrun/completions/mean_length"


def test_a_trainer_that_says_nothing_of_its_keys_is_read_and_diagnosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = Trainer("bare", "Bare", recognises=lambda keys: "bare_marker" in keys)
    monkeypatch.setitem(TRAINERS, "bare", bare)
    run = read(written(tmp_path / "metrics.jsonl", {"step": 0.0, "reward": 0.5, "bare_marker": 1.0}))
    assert (run.meta.engine, run.table["reward"].tolist()) == ("bare", [0.5] * 5)
    assert {finding.status for finding in diagnose(run)} <= {"present", "possible", "excluded", "cannot tell"}
    assert "Bare" not in how_to_log("kl")


@pytest.mark.parametrize("first", [False, True])
def test_a_trainer_with_the_keys_of_another_is_asked_before_it_where_it_stands_in_first(
    first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = Trainer("fork", "Fork", recognises=lambda keys: "fork_marker" in keys, keys={"reward": ("reward",)})
    monkeypatch.setitem(TRAINERS, "fork", fork)
    monkeypatch.setattr(trainers, "FIRST", (*trainers.FIRST, *(["fork"] if first else [])))
    row = {"step": 0.0, "reward": 0.5, "kl": 0.1, "completions/mean_length": 30.0, "fork_marker": 1.0}
    assert read(written(tmp_path / "metrics.jsonl", row)).meta.engine == ("fork" if first else "trl")


def test_every_trainer_is_entered_under_its_own_name() -> None:
    assert [trainer.name for trainer in TRAINERS.values()] == list(TRAINERS)
    assert set(trainers.FIRST) <= TRAINERS.keys()


@pytest.mark.usefixtures("trainer")
def test_a_new_format_that_looks_like_another_is_tried_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of JSON lines below a line of their own, whose keys all share a prefix and which name no trainer."""

    def read_toy(file: LogFile, hints: Hints) -> RawLog:
        rows = ColumnBuilder()
        for number, text, _ in file.lines():
            if number > 1:
                rows.row(number, {f"mytrainer/{key}": value for key, value in json.loads(text).items()})
        return RawLog(file.path, rows)

    path = written(tmp_path / "log.jsonl", {"step": 0.0, "score": 0.5, "h": 1.0})
    path.write_text('{"toy": 1}\n' + path.read_text())
    monkeypatch.setitem(FORMATS, "toy", LogKind(read_toy, file=lambda file: file.head.startswith(b'{"toy"')))
    run = read(path)
    assert (run.meta.engine, run.keys["reward"]) == ("mytrainer", "mytrainer/score")
    assert run.table["step"].tolist() == [10, 20, 30, 40, 50]
