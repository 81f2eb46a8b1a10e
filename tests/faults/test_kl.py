"""The rule of kl: what it flags, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic_series as made
from synthetic_series import U, flagged

from grposcope.core.finding import Finding
from grposcope.instruments.diagnosis import diagnose


@pytest.mark.parametrize(("ends", "found"), [((0.6, 0.7), False), ((1e-3, 0.2), False), ((0.05, 3), True)])
def test_kl_must_be_far_and_steep(ends: tuple[float, float], found: bool) -> None:
    table = made.healthy()
    table["kl"] = np.where(U < 0.6, *ends)
    assert ("kl blow-up" in flagged(table)) == found


@pytest.mark.parametrize(("value", "found"), [(1e6, True), (150.0, True), (3.0, False)])
def test_a_single_row_that_exploded_is_not_silent(value: float, found: bool) -> None:
    table = made.healthy()
    table["kl"] = np.full(len(U), 0.02)
    table["kl"][len(U) // 2] = value
    assert ("kl blow-up" in flagged(table)) == found


def judged(gains: bool, kl: np.ndarray) -> Finding:
    """What is found of a run whose reward gains or stays, with this KL."""
    table = made.healthy()
    if not gains:
        noise = np.random.default_rng(0).normal(0, 0.01, len(U))
        table["reward"] = 0.4 + noise
        table.pop("accuracy", None)
    table["kl"] = kl
    return next(finding for finding in diagnose(made.run(table)) if finding.fault == "kl blow-up")


AWAY = 1.6 * (1 - np.exp(-U / 0.1)) + 0.002
"""A KL that leaves 0 early and then stays."""


@pytest.mark.parametrize(("gains", "grade"), [(False, "warning"), (True, "note")])
def test_a_policy_that_went_away_has_to_gain_for_it(gains: bool, grade: str) -> None:
    assert judged(gains, AWAY).grade == grade


def test_a_policy_that_went_away_did_so_where_it_left_its_start() -> None:
    wobble = np.exp(np.random.default_rng(1).normal(0, 0.1, len(U)))
    rows = np.arange(len(U))
    finding = judged(False, np.minimum(1.6, 0.02 * np.exp(0.2 * rows)) * wobble)
    assert finding.since is not None
    assert finding.since.step <= 10
    assert finding.evidence[1].limit == "1, and 4 × the first rows"


@pytest.mark.parametrize("kl", [np.full(len(U), 1.6), AWAY / 3], ids=["from the start", "not far"])
def test_a_policy_that_was_away_or_is_near_is_no_finding(kl: np.ndarray) -> None:
    wobble = np.exp(np.random.default_rng(1).normal(0, 0.05, len(U)))
    assert judged(False, kl * wobble).status == "excluded"
