"""Runs that learn are not called failing, and failing ones not healthy; all kinds and rates in benchmarks/grades.py."""

from __future__ import annotations

import graded_runs as graded
import numpy as np
import pytest
import synthetic_series as series

from grposcope.instruments.diagnosis import diagnose
from grposcope.instruments.diagnosis.verdict import verdict


@pytest.mark.parametrize("name", graded.HEALTHY)
def test_a_run_that_learns_is_not_failing(name: str) -> None:
    run = graded.run(graded.HEALTHY[name], 1, 106)
    assert verdict(run, diagnose(run)).word in ("healthy", "warning", "cannot tell")


@pytest.mark.parametrize("name", ["ppo_baseline", "entropy_spent", "small_swing", "solved"])
def test_what_stands_beside_learning_is_a_note(name: str) -> None:
    run = graded.run(graded.HEALTHY[name], 1, 106)
    assert str(verdict(run, diagnose(run))).startswith("healthy: ")


@pytest.mark.parametrize("name", graded.FAILING)
def test_a_failing_run_is_not_healthy(name: str) -> None:
    run = graded.run(graded.FAILING[name], 1, 106)
    said = verdict(run, diagnose(run)).word
    assert said == "failing" or (said == "warning" and name in ("hacked", "explosion"))


@pytest.mark.parametrize("seed", range(3))
def test_harder_prompts_are_a_note_where_the_held_out_score_rose(seed: int) -> None:
    rng = np.random.default_rng(seed)
    u = np.arange(120) / 120
    table = graded.columns(rng, np.where(u < 0.5, 0.5 + 0.2 * u, 0.2 + 0.2 * u))
    run = series.run(table, 0.2 + 0.5 * np.linspace(0, 1, 12) + 0.01 * rng.normal(size=12))
    findings = {finding.fault: finding for finding in diagnose(run)}
    assert findings["reward decline"].grade == "note"
    assert verdict(run, tuple(findings.values())).word == "healthy"
