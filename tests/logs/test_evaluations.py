"""Evaluations in a log: several games, environments or data sets of one step, and what a restart evaluates again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from grposcope.core.run import Run
from grposcope.logs import read
from grposcope.signs.heldout import heldout_scores
from grposcope.signs.quantities import Quantities

Row = Mapping[str, Any]


def run_of(folder: Path, rows: Iterable[Row]) -> Run:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(path)


def trained(*steps: int) -> list[Row]:
    return [{"split": "train", "step": step, "reward": 0.1 + 0.01 * step, "loss": 0.1} for step in steps]


def games(step: int, *solved: float, **more: Any) -> list[Row]:
    return [{"split": "eval", "step": step, "solved": one, **more} for one in solved]


def solved(run: Run) -> list[float]:
    return run.evaluations.of("solved").value.tolist()


def test_several_games_of_a_step_count_as_their_mean(tmp_path: Path) -> None:
    rows = [*trained(*range(1, 11)), *games(10, 0, 0, 0, 1), *trained(*range(11, 21)), *games(20, 1, 1, 0, 1)]
    run = run_of(tmp_path, rows)
    assert solved(run) == [0.25, 0.75]
    assert run.evaluations.step.tolist() == [10, 20]
    assert "8 evaluations are several of one metric at a step; the mean of each step is used" in run.meta.notes


@pytest.mark.parametrize(("counts", "expected"), [((100, 300), 0.8), ((100, None), 0.7), ((100, 0), 0.7)])
def test_data_sets_count_by_their_problems_where_all_say_them(
    tmp_path: Path, counts: tuple[Any, Any], expected: float
) -> None:
    """(0.5 × 100 + 0.9 × 300) / 400 = 0.8; where one does not say, each counts alike."""
    sets = [{**games(10, value)[0], "num_samples": n} for value, n in zip((0.5, 0.9), counts, strict=True)]
    assert solved(run_of(tmp_path, [*trained(*range(1, 21)), *sets])) == [pytest.approx(expected)]


def test_what_was_evaluated_again_after_a_restart_replaces_what_was_before(tmp_path: Path) -> None:
    first = [*trained(*range(1, 21)), *games(20, 0, 0), *trained(*range(21, 24))]
    again = [*trained(*range(15, 21)), *games(20, 1, 0), *trained(*range(21, 31))]
    run = run_of(tmp_path, [*first, *again])
    assert solved(run) == [0.5]
    assert "2 evaluations repeat a step after a restart; the last of each step are kept" in run.meta.notes


def test_rows_flagged_as_evaluation_are_so_although_no_other_row_has_the_flag(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with path.open("w") as file:
        for step in range(0, 200, 5):
            file.write(json.dumps({"step": step, "reward_mean": 0.1 + 0.001 * step, "kl": 0.01}) + "\n")
            if step % 50 == 0:
                file.write(json.dumps({"step": step, "eval": True, "ndcg@10": 0.3, "cold_recall@10": 0.1}) + "\n")
    run = read(path)
    assert run.evaluations.of("ndcg@10").step.tolist() == [0, 50, 100, 150]
    assert heldout_scores(Quantities(run))[0].score.name == "ndcg@10"


@pytest.mark.parametrize(("later", "left"), [(1.1, 3), (22.0, 6), (20.0, 6)])
def test_evaluations_on_another_number_of_samples_are_left_out(tmp_path: Path, later: float, left: int) -> None:
    rows: list[Row] = []
    for k in range(6):
        seconds = 22.0 if k < 3 else later
        rows += [{"step": s, "reward": 0.1, "loss": 0.1} for s in range(10 * k + 1, 10 * k + 11)]
        rows.append({"step": 10 * k + 10, "eval_reward": 0.3 + 0.1 * k, "eval_runtime": seconds,
                     "eval_samples_per_second": 9.091})  # fmt: skip
    run = run_of(tmp_path, rows)
    assert run.evaluations.of("reward").step.tolist() == [10, 20, 30, 40, 50, 60][:left]
    assert any("at 3 steps, the first at step 40, are on 10 samples" in note for note in run.meta.notes) == (left == 3)
