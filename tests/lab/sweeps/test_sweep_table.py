"""The comparison of cells agrees with SciPy's paired test and with Holm's rule worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from grposcope.core.estimate import Estimate
from grposcope.lab.sweeps import answer, table
from grposcope.render import terminal


def values(cells: int, seeds: int) -> dict[str, dict[int, float]]:
    drawn = np.random.default_rng(0).normal(size=(cells, seeds)) + np.arange(cells)[:, None]
    return {f"c{i}": dict(enumerate(row.tolist())) for i, row in enumerate(drawn)}


def test_means_differences_and_p_are_those_of_scipy() -> None:
    by_cell = values(4, 8)
    result = table._compared(by_cell, "c0", "reward")
    first = list(by_cell["c0"].values())
    ps = []
    for row in result.cells:
        own = list(by_cell[row.cell].values())
        assert row.mean.value == pytest.approx(np.mean(own))
        assert row.mean.se == pytest.approx(stats.sem(own))
        if row.difference is None:
            assert row.cell == "c0"
            continue
        assert row.difference.value == pytest.approx(np.mean(np.subtract(own, first)))
        assert row.p == pytest.approx(stats.ttest_rel(own, first).pvalue)
        ps.append(row.p)
    order = sorted(ps)
    holm = np.minimum(1, np.maximum.accumulate([(3 - i) * p for i, p in enumerate(order)]))
    adjusted = {row.p: row.adjusted for row in result.cells if row.difference is not None}
    assert [adjusted[p] for p in order] == pytest.approx(holm.tolist())


def test_only_common_seeds_are_paired_and_values_that_are_not_finite_left_out() -> None:
    by_cell = {"a": {0: 1.0, 1: 2.0, 2: 4.0}, "b": {1: 3.0, 2: 4.5, 7: 9.0, 0: math.nan}}
    _, b = table._compared(by_cell, "a", "reward").cells
    assert b.difference is not None
    assert (b.difference.n, b.difference.value) == (2, pytest.approx(0.75))
    assert b.mean.n == 3


def test_one_seed_tells_nothing() -> None:
    result = table._compared({"a": {0: 1.0}, "b": {0: 2.0}, "c": {}}, "a", "reward")
    said = answer._answer(result, [])
    assert said.word == "cannot tell"
    assert said.sentence.startswith("Cannot tell")
    assert "no run" in terminal.text(said)


def test_the_sentence_names_what_differs() -> None:
    clear = {
        "a": dict(enumerate([0.0, 0.1, 0.2])),
        "b": dict(enumerate([1.0, 1.11, 1.19])),
        "c": dict(enumerate([0.1, 0.0, 0.3])),
    }
    assert "these differ from a: b by +1" in answer._sentence(table._compared(clear, "a", "reward"))
    assert answer._sentence(table._compared({key: clear[key] for key in "ac"}, "a", "reward")).startswith(
        "No setting differs from a"
    )


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.5, 0.0)])
def test_differences_without_noise(value: float, p: float) -> None:
    assert table._paired_p(Estimate(value, 0.0, 3)) == p


def test_the_test_keeps_its_level() -> None:
    """Of 2,000 sweeps of three equal cells and four seeds, about 5 % at most name a difference."""
    rng = np.random.default_rng(1)
    named = 0
    for _ in range(2000):
        shared = rng.normal(size=4)
        by_cell = {name: dict(enumerate((shared + rng.normal(size=4)).tolist())) for name in "abc"}
        named += answer._sentence(table._compared(by_cell, "a", "reward")).startswith("Beyond")
    assert named / 2000 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
