"""Gradient spikes and gradient explosion: the distributions that the p-values are taken from."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic_series as made
from scipy import stats

from grposcope.core.finding import Finding
from grposcope.faults.judge import diagnose
from grposcope.signs import gradient_norms as gradient_spikes


def running_median(logs: np.ndarray, window: int) -> np.ndarray:
    """Of `window` rows around each; of the first or the last so many where there are not as many on both sides."""
    half = min(window, len(logs)) // 2
    first = [min(max(i - half, 0), max(len(logs) - 2 * half - 1, 0)) for i in range(len(logs))]
    return np.array([np.median(logs[i : i + 2 * half + 1]) for i in first])


def test_dead_steps_and_lasting_levels_are_no_spikes() -> None:
    rng = np.random.default_rng(1)
    norms = np.exp(rng.normal(0, 0.2, 200))
    norms[rng.random(200) < 0.6] *= 1e-5
    assert 0.3 < gradient_spikes.live(norms).mean() < 0.5
    assert gradient_spikes._spikes(norms[gradient_spikes.live(norms)])[0] == 1
    first = np.exp(rng.normal(0, 0.2, 200))
    first[:10] *= 12  # a warm-up of its own
    assert gradient_spikes._spikes(first)[0] == 1


@pytest.mark.parametrize("rows", [31, 300, 5000])
def test_the_p_value_is_that_of_two_of_n_under_students_t(rows: int) -> None:
    rng = np.random.default_rng(rows)
    norms = np.exp(rng.normal(0, 0.3, rows))
    norms[[3, 8]] *= 20
    p, multiples, spikes = gradient_spikes._spikes(norms)
    logs = np.log(norms)
    deviation = logs - np.maximum(running_median(logs, 31), running_median(logs, 7))
    scale = 1.4826 * np.median(np.abs(deviation))
    tail = stats.t.sf(np.sort(deviation)[-2] / scale, gradient_spikes.TAILS)
    assert p == pytest.approx(stats.binom.sf(1, rows, tail), rel=1e-12)
    assert sorted(spikes) == [3, 8]
    assert multiples == pytest.approx(np.sort(np.exp(deviation))[:-3:-1])


def found(norms: np.ndarray, reward: np.ndarray, every: int = 1) -> dict[str, Finding]:
    """What is present of a run with these gradient norms (n,), logged every so many rows, and rewards (n,)."""
    logged = np.where(np.arange(len(norms)) % every == 0, norms, np.nan)
    run = made.run({"reward": reward, "grad_norm": logged})
    return {finding.fault: finding for finding in diagnose(run) if finding.present}


def course(fall: float) -> tuple[np.ndarray, np.ndarray]:
    """Norms and rewards of 240 rows, of which the rewards fall by so much from row 150 on."""
    rng, k = np.random.default_rng(2), np.arange(240)
    reward = 0.4 + 0.002 * k - fall * (k >= 150) + 0.03 * rng.normal(size=240)
    return 0.25 * np.exp(rng.normal(0, 0.15, 240)), reward


@pytest.mark.parametrize(("fall", "told"), [(0.3, True), (0.0, False)])
def test_one_jump_where_the_reward_falls_is_said(fall: float, told: bool) -> None:
    norms, reward = course(fall)
    norms[150:155] *= [7.5, 4.5, 3.4, 2.8, 1.6]
    spikes = found(norms, reward).get("gradient spikes")
    assert (spikes is not None) == told
    if spikes is not None:
        assert "at step 151, where the reward falls from" in spikes.because
        assert "optimiser's state" in spikes.remedy
        assert spikes.grade == "warning"
    assert "gradient spikes" not in found(course(fall)[0], reward)


def test_an_explosion_of_norms_that_few_rows_have() -> None:
    norms, reward = course(0.5)
    norms[155:] *= 8
    explosion = found(norms, reward, every=10)["gradient explosion"]
    assert "in the median of the 16 rows before step 161" in explosion.because
    assert explosion.onset == 161
    assert not {"gradient explosion", "gradient spikes"} & set(found(course(0.5)[0], reward, every=10))
