"""A metric that changes its name in mid-run is one metric; one that only ends there is said to."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from grposcope.core.errors import UserError
from grposcope.core.run import Run
from grposcope.logs import read


def renamed(folder: Path, one: str, other: str, at: int = 60, last: int = 120) -> Run:
    """A run whose reward is called otherwise from step `at` + 1 on."""
    path = folder / "log.jsonl"
    with path.open("w") as file:
        for step in range(1, last + 1):
            row = {"step": step, "entropy": 0.8 + 0.01 * math.sin(step), "length": 100.0, "reward_std": 0.1}
            row[one if step <= at else other] = 0.003 * step
            file.write(json.dumps(row) + "\n")
    return read(path)


@pytest.mark.parametrize(
    ("one", "other"),
    [("reward", "reward_mean"), ("reward", "train/reward"), ("rollout/rewards/mean", "reward"), ("reward", "rewards")],
)
def test_both_names_are_one_metric(tmp_path: Path, one: str, other: str) -> None:
    run = renamed(tmp_path, one, other)
    assert run.table["reward"].tolist() == pytest.approx([0.003 * step for step in range(1, 121)])
    assert f"{one} is called {other} from mid-run on; both are read as one metric" in run.meta.notes


def test_another_quantity_is_not_put_together(tmp_path: Path) -> None:
    run = renamed(tmp_path, "critic/score/mean", "critic/rewards/mean")
    assert sum(map(math.isfinite, run.table["reward"])) == 60
    note = "critic/score/mean ends mid-run, where critic/rewards/mean begins; the reward is judged up to there only"
    assert any(one.startswith(note) for one in run.meta.notes)


@pytest.mark.parametrize("other", ["eval/reward", "reward_max", "entropy_2", "reward_raw2"])
def test_an_evaluation_or_another_statistic_stays_apart(tmp_path: Path, other: str) -> None:
    run = renamed(tmp_path, "reward", other)
    assert sum(map(math.isfinite, run.table["reward"])) == 60
    assert not any("goes on as" in note for note in run.meta.notes)


def test_what_ends_with_the_log_is_no_change(tmp_path: Path) -> None:
    run = renamed(tmp_path, "reward", "reward_mean", at=118)
    assert not any("mid-run" in note for note in run.meta.notes)


@pytest.mark.parametrize(
    ("training", "row"),
    [
        ("preference training", {"rewards/chosen": 0.1, "rewards/rejected": -0.1, "rewards/accuracies": 0.6}),
        ("a reward model", {"margin": 0.2, "mean_reward": 0.1, "min_reward": -1.0, "max_reward": 2.0}),
        ("supervised fine-tuning", {"mean_token_accuracy": 0.7, "entropy": 0.4, "grad_norm": 1.0}),
    ],
)
def test_the_log_of_another_training_is_named(tmp_path: Path, training: str, row: dict[str, float]) -> None:
    path = tmp_path / "log.jsonl"
    lines = [{"step": step, "loss": 1 / step, **row} for step in range(1, 41)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UserError, match=f"is the log of .*{training}.*no rollouts are rewarded"):
        read(path)
    path.write_text("".join(json.dumps(line | {"reward": 0.01 * line["step"]}) + "\n" for line in lines))
    assert math.isfinite(read(path).table["reward"][0])
