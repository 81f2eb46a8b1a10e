"""Since when metrics of a run have changed, and what is told of it."""

from __future__ import annotations

import numpy as np
import onset_curves
import synthetic_series as made

from grposcope.core.finding import Interval, measured
from grposcope.faults.policy import kl_blow_up
from grposcope.signs import onset
from grposcope.signs.quantities import MetricSeries, Quantities

ROWS = np.arange(120)
STEPS = ROWS + 1.0


def series(values: np.ndarray, seed: int = 0, spread: float = 0.03) -> MetricSeries:
    noise = spread * made.ar1(np.random.default_rng(seed), len(values), 0.3)
    return MetricSeries("x", np.arange(1.0, len(values) + 1), values + noise)


def test_an_outlier_is_no_onset() -> None:
    values = np.full(100, 0.1)
    values[60:] = 0.95
    values[[20, 40]] = 1.0
    since = onset.since(MetricSeries("dead_fraction", np.arange(1.0, 101), values), 1)
    assert since is not None
    assert since.step == 61


def test_a_score_that_stands_still_parts_from_the_reward_there() -> None:
    reward = 0.2 + 0.6 * ROWS / 120
    score = 0.2 + 0.5 * np.minimum(ROWS, 60) / 120
    since = onset.parting(series(reward, 1, 0.01), series(score, 2, 0.01))
    assert since is not None
    assert since.first <= 67 <= since.last  # a tenth of what it then stays behind
    assert 55 <= since.step <= 80


def test_a_score_that_falls_parts_at_its_fall() -> None:
    reward = 0.2 + 0.6 * ROWS / 120
    score = np.where(ROWS < 70, 0.2 + 0.5 * ROWS / 120, 0.49 - 0.4 * (ROWS - 70) / 50)
    since = onset.parting(series(reward, 1), series(score, 2))
    assert since is not None
    assert abs(since.step - 76) <= 6


def test_a_score_that_never_followed_parts_where_the_reward_rises() -> None:
    reward = 0.2 + 0.6 * onset_curves.ramp(120, 50, 30)
    since = onset.parting(series(reward, 1), series(np.full(120, 0.2), 2))
    assert since is not None
    assert abs(since.step - 54) <= 5


def test_one_exploded_row_is_told_at_its_step() -> None:
    table = made.healthy()
    table["kl"][39] = 3400.0
    finding = kl_blow_up.FAULT.log.check(Quantities(made.run(table)))
    assert str(finding.since) == "at step 40"
    assert "3,400 nats per token at step 40" in finding.because
    assert finding.brief.endswith("at step 40")


def test_a_kl_is_dated_where_it_leaves_its_course() -> None:
    for at in (45, 70, 85):
        table = made.healthy()
        table["kl"] = table["kl"] * np.exp(np.maximum(ROWS - at, 0) * 6 / (120 - at))
        finding = kl_blow_up.FAULT.log.check(Quantities(made.run(table)))
        assert finding.begins is not None
        since = finding.begins()
        assert since is not None
        assert abs(since.step - (at + 1 + 0.1 * (120 - at))) <= 6


def test_a_kl_that_grows_on_its_course_is_not_dated() -> None:
    finding = kl_blow_up.FAULT.log.check(Quantities(made.run(made.healthy())))
    assert finding.begins is not None
    assert finding.begins() is None


def test_what_is_told_of_a_step() -> None:
    assert str(Interval(1234)) == "since step 1,234"
    assert (Interval(9).first, Interval(9, 7, 12).first, Interval(9, 7, 12).last) == (9, 7, 12)
    assert ", first at step 3," in repr(measured(0.0, "it spiked", since=Interval(3, told="first at")))
