"""Which checkpoint a remedy sends back to: never one behind a fall, and never one that throws a gain away."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import synthetic_series as made

from grposcope.core.finding import Interval
from grposcope.core.run import Run
from grposcope.instruments.diagnosis import diagnose
from grposcope.signs import checkpoints, run_outcome

REMEDY = "lower the rate; go back to the checkpoint before the onset"


def rose_and_fell(seed: int = 0, top: int = 70) -> Run:
    """A reward that rises up to a row and falls after it to where it began."""
    rows = np.arange(120)
    course = np.where(rows < top, rows / top, 1 - (rows - top) / (120 - top))
    table = made.healthy(seed)
    table["reward"] = 0.2 + 0.6 * course + 0.03 * made.ar1(np.random.default_rng(seed), 120, 0.3)
    return made.run(table)


def told(run: Run, since: Interval | None = None, gamed: bool = False) -> str:
    back = checkpoints.back(run, run_outcome.of_run(run), since, gamed)
    return checkpoints.advised(REMEDY, back, since)


def test_a_fall_after_a_rise_sends_back_to_its_top() -> None:
    for seed in range(4):
        run = rose_and_fell(seed)
        remedy = next(finding for finding in diagnose(run) if finding.fault == "reward decline").remedy
        step = int(re.findall(r"step (\d+)", remedy)[0])
        assert 60 <= step <= 80, remedy


def test_a_fault_that_began_before_the_top_sends_back_to_the_top_too() -> None:
    said = told(rose_and_fell(), Interval(18, 10, 25))
    assert 60 <= int(re.findall(r"step (\d+)", said)[0]) <= 80


def test_a_gain_that_goes_on_is_not_thrown_away() -> None:
    assert told(made.run(made.healthy()), Interval(40, 38, 45)) == "lower the rate"


def test_gaming_is_judged_by_no_gain_of_the_reward() -> None:
    said = told(made.run(made.healthy()), Interval(40, 38, 45), gamed=True)
    assert said == "lower the rate; go back to the last checkpoint from before step 38"


def test_a_checkpoint_that_is_there_is_named(tmp_path: Path) -> None:
    run = rose_and_fell()
    fall = run_outcome.of_run(run).fall
    assert fall is not None
    named = replace(run, meta=replace(run.meta, source=tmp_path / "trainer_state.json"))
    for step in (20, 50, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
    assert f"the checkpoint of step 50, the last from before step {fall.first}" in told(named)
    for step in (20, 50):
        (tmp_path / f"checkpoint-{step}").rmdir()
    assert "the starting weights (no checkpoint is from before step" in told(named)
