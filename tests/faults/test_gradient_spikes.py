"""Gradient spikes and gradient explosion: the distributions that the p-values are taken from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

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
