"""A new trainer whose keys resemble those of others: it is found by its own `recognises`, under its own keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grposcope.logs import read
from grposcope.logs.trainers import TRAINERS
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


def test_a_prefix_of_a_run_before_keys_that_are_known_is_taken_off(tmp_path: Path) -> None:
    row = {f"myrun/{key}": value for key, value in
           {"step": 0.0, "reward": 0.5, "kl": 0.1, "completions/mean_length": 30.0}.items()}  # fmt: skip
    run = read(written(tmp_path / "metrics.jsonl", row))
    assert run.meta.engine == "trl"
    assert run.keys["length"] == "myrun/completions/mean_length"
