"""Causes that rows combined tell apart from their symptoms: each is named first, and its twin has it not."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic_series as made
from causes import CASES, STEP, Case, N, with_columns

from grposcope.core.finding import Finding
from grposcope.faults.judge import diagnose


def present(columns: made.Columns) -> dict[str, Finding]:
    """What diagnose shows, the first to look at first."""
    return {finding.fault: finding for finding in diagnose(made.run(columns)) if finding.present}


@pytest.mark.parametrize("case", CASES, ids=[f"{k}-{case.fault}" for k, case in enumerate(CASES)])
def test_the_cause_is_named_first_and_its_twin_has_it_not(case: Case) -> None:
    faulty = present(case.faulty())
    assert next(iter(faulty)) == case.fault
    remedy = faulty[case.fault].remedy
    assert any(word in remedy for word in case.said.split("|")), remedy
    assert case.not_said not in remedy
    assert case.fault not in present(case.twin())


def test_a_norm_logged_as_zero_beside_a_policy_that_moves_is_a_note() -> None:
    """DeepSpeed lets some trainers log a norm of 0: the run learns, and nothing is to be mended in it."""
    found = present(with_columns(grad_norm=np.zeros(N))())
    assert found["lost gradient"].grade == "note"
    assert "norm" in found["lost gradient"].remedy


def test_the_symptoms_stand_behind_the_cause() -> None:
    """What all completions at the limit do to rewards and groups is told after it."""
    columns = CASES[2].faulty()
    columns |= {"reward_std": np.where(STEP, 0.0, 0.4), "grad_norm": np.where(STEP, 0.0, 0.5)}
    names = list(present(columns))
    assert names[0] == "degenerate output"
    assert {"length", "constant reward"} <= set(names[1:])


def test_a_spike_just_before_the_reward_falls_is_told_before_it() -> None:
    rng = np.random.default_rng(3)
    reward = 0.3 + 0.004 * made.ar1(rng, N, 0.2) - np.where(np.arange(N) >= 80, 0.08, 0.0)
    norm = made.healthy()["grad_norm"]
    spiked = np.where(np.isin(np.arange(N), (40, 41, 79)), 400.0, norm)
    names = list(present(with_columns(reward=reward, grad_norm=spiked, clip_fraction=np.zeros(N))()))
    assert names.index("gradient spikes") < names.index("reward decline")
    early = np.where(np.isin(np.arange(N), (20, 21, 22)), 400.0, norm)
    names = list(present(with_columns(reward=reward, grad_norm=early, clip_fraction=np.zeros(N))()))
    assert names.index("gradient spikes") > names.index("reward decline")
