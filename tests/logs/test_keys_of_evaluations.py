"""What of a log was evaluated apart from training: told by where and how often it was written, by no adjective."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.core.run import Run
from grposcope.faults.judge import diagnose
from grposcope.logs import read

STEPS = 40


def logged(path: Path, every: dict[str, int], own_rows: bool = False) -> Run:
    """The run in a log of STEPS rows with a falling reward, and these keys in each k-th row, or in own rows."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for step in range(1, STEPS + 1):
        row = {"step": step, "reward": 0.6 - 0.01 * step + 0.02 * rng.normal(), "loss": 0.1}
        extra = {key: 0.97 + 0.001 * rng.normal() for key, k in every.items() if step % k == 0}
        rows += [row, {"step": step, **extra}] if own_rows and extra else [{**row, **extra}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(path)


@pytest.mark.parametrize("key", ["valid_action", "valid_json", "test_parse_ok", "valid/json", "test_pass_rate"])
def test_what_stands_on_every_training_row_is_no_evaluation(tmp_path: Path, key: str) -> None:
    run = logged(tmp_path / "log.jsonl", {key: 1})
    assert run.evaluations.metrics == ()
    assert np.isfinite(run.table[key]).sum() == STEPS


@pytest.mark.parametrize("own_rows", [False, True])
@pytest.mark.parametrize("key", ["test_accuracy", "valid_reward", "validation_score", "dev_acc"])
def test_what_was_evaluated_now_and_then_is_one(tmp_path: Path, key: str, own_rows: bool) -> None:
    run = logged(tmp_path / "log.jsonl", {key: 5}, own_rows)
    assert run.evaluations.metrics == (key.partition("_")[2],)
    assert run.evaluations.step.tolist() == list(range(5, STEPS + 1, 5))
    assert key not in run.table
    assert run.steps == STEPS


@pytest.mark.parametrize(
    ("key", "name"),
    [("eval/acc", "acc"), ("val/acc", "acc"), ("test/acc", "acc"), ("val-core/a/acc/mean@1", "val-core/a/acc/mean@1"),
     ("eval_acc", "acc"), ("val_acc", "acc"), ("validation/acc", "acc"), ("eval-rollout/acc", "acc"),
     ("held_out/acc", "acc")],
)  # fmt: skip
def test_a_path_says_that_it_is_one_however_often(tmp_path: Path, key: str, name: str) -> None:
    run = logged(tmp_path / "log.jsonl", {key: 1})
    assert run.evaluations.metrics == (name,)
    assert len(run.evaluations) == STEPS


def test_a_number_of_the_training_line_of_a_console_is_none(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text("".join(f"step {k} reward: {0.5 + 0.01 * k:.3f} valid action: 0.97\n" for k in range(1, 30)))
    run = read(path)
    assert run.evaluations.metrics == ()
    assert run.table["valid_action"].tolist() == [0.97] * 29
    lines = [f"step {k} reward: {0.01 * k:.3f}\n" + f"step {k} valid reward: 0.4\n" * (k % 5 == 0) for k in range(30)]
    path.write_text("".join(lines))
    assert read(path).evaluations.of("reward").step.tolist() == [0, 5, 10, 15, 20, 25]


def test_an_adjective_makes_no_verdict(tmp_path: Path) -> None:
    """The same run has the same findings whether or not a rate of valid actions is logged beside its reward."""
    found = [
        {finding.fault: finding.status for finding in diagnose(logged(tmp_path / f"{len(every)}.jsonl", every))}
        for every in ({}, {"valid_action": 1})
    ]
    assert found[0] == found[1]
