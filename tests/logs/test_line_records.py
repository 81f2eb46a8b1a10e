"""Logs that spread a step over several lines, in a file or printed by the cells of a notebook."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from grposcope.logs import read

STEPS = 30
REWARD = np.round(np.random.default_rng(0).normal(0.4, 0.2, STEPS), 4)
KL = np.round(np.abs(np.random.default_rng(1).normal(0.01, 0.004, STEPS)), 6)

STYLES: dict[str, Callable[[int, float, float], str]] = {
    "a head": lambda s, r, k: f"=== Step {s}/500 ===\nreward: {r}\nkl: {k}\n",
    "a head with a loss": lambda s, r, k: f"step {s}, loss 0.1\n  mean reward: {r}\n  KL divergence = {k}\n\n",
    "an end": lambda s, r, k: f"Average Reward: {r}\nkl: {k}\nIteration 1/1, Step {s}/500, loss: 0.1\n",
    "an end, prose between": lambda s, r, k: (
        f"kl {k}\nSaving to /tmp/out-3b\nReward = {r}\nInput batch size: 7, device: cuda:0\nupdate {s} - loss: 0.1\n"
    ),
}


def text_of(style: str) -> str:
    lines = [STYLES[style](s, REWARD[s - 1].item(), KL[s - 1].item()) for s in range(1, STEPS + 1)]
    return "Loading checkpoint shards: 100%\n" + "".join(lines)


def check(path: Path) -> None:
    run = read(path)
    assert run.table["step"].tolist() == list(range(1, STEPS + 1))
    np.testing.assert_array_equal(run.table["reward"], REWARD)
    np.testing.assert_allclose(run.table["kl"], KL)
    assert any("a step takes several lines" in note for note in run.meta.notes)


@pytest.mark.parametrize("style", STYLES)
def test_a_step_of_several_lines_is_a_row(tmp_path: Path, style: str) -> None:
    (tmp_path / "out.log").write_text(text_of(style))
    check(tmp_path / "out.log")


@pytest.mark.parametrize("style", STYLES)
def test_the_cells_of_a_notebook_may_have_printed_it(tmp_path: Path, style: str) -> None:
    output = {"output_type": "stream", "name": "stdout", "text": text_of(style).splitlines(keepends=True)}
    cells = [{"cell_type": "markdown", "source": ["reward 3, step 2"]}, {"cell_type": "code", "outputs": [output]}]
    (tmp_path / "run.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    check(tmp_path / "run.ipynb")


def test_a_step_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(text_of("an end").rsplit("Iteration", 1)[0])
    run = read(tmp_path / "out.log")
    assert run.table["step"].tolist() == list(range(1, STEPS))


def test_a_reward_of_each_rollout_is_no_record(tmp_path: Path) -> None:
    """Four rewards a step: which is the step's cannot be told, so rows are counted, and a note says so."""
    lines = [f"Step {s}/500\n" + f"reward: {REWARD[s - 1]}\n" * 4 for s in range(1, STEPS + 1)]
    (tmp_path / "out.log").write_text("".join(lines))
    run = read(tmp_path / "out.log")
    assert len(run.table["step"]) == 4 * STEPS
    assert any("rows are numbered from 1" in note for note in run.meta.notes)


def test_evaluations_between_records_stay_evaluations(tmp_path: Path) -> None:
    held_out = "eval accuracy: 0.5\n[eval] reward: 5.0\n"
    lines = [f"Step {s}/500\nreward: {REWARD[s - 1]}\n" + held_out * (s % 10 == 0) for s in range(1, 31)]
    (tmp_path / "out.log").write_text("".join(lines))
    run = read(tmp_path / "out.log")
    np.testing.assert_array_equal(run.table["reward"], REWARD)
    assert run.evaluations.of("accuracy").step.tolist() == [10, 20, 30]
    assert run.evaluations.of("reward").value.tolist() == [5.0] * 3


def test_of_a_number_that_occurs_again_the_first_is_taken(tmp_path: Path) -> None:
    lines = [f"Step {s}/500\nreward: {REWARD[s - 1]}\nloss: {s / 10}\nloss: 9.0\n" for s in range(1, STEPS + 1)]
    (tmp_path / "out.log").write_text("".join(lines))
    np.testing.assert_allclose(read(tmp_path / "out.log").table["loss"], np.arange(1, STEPS + 1) / 10)
