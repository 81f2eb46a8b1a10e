"""The fast scan of level shifts against the plain one with whitened columns."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_series import ar1

from grposcope.maths.timeseries import change, change_points
from grposcope.maths.timeseries.noise import Design, prepare, scan


@pytest.fixture(scope="module")
def library() -> change_points.ShiftCandidates:
    n = 40
    design = Design(np.column_stack([np.ones(n), np.linspace(-1, 1, n)]), coarse=True)
    return change_points.library(design, *change_points.candidates(n, 4))


def test_inner_products_are_those_of_the_columns(library: change_points.ShiftCandidates) -> None:
    y = ar1(np.random.default_rng(0), 40, 0.6)
    columns = prepare(library.design, change_points.columns(40, library.start, library.width)[:, None, :])
    (p, posterior), fast = scan(library.design, columns, y), change_points.scan(library, y)
    np.testing.assert_allclose(fast.posterior, posterior, rtol=1e-6)
    best = int(np.argmax(posterior))
    assert (fast.start, fast.width) == (library.start[best], library.width[best])
    assert fast.p == pytest.approx(min(1.0, p[best] * len(library.start)), rel=1e-6)


def test_columns_go_from_0_to_1_over_their_width() -> None:
    column = change_points.columns(10, np.array([3]), np.array([4]))[0]
    np.testing.assert_allclose(column, [0, 0, 0, 0.25, 0.5, 0.75, 1, 1, 1, 1])


def test_candidates_stay_inside() -> None:
    start, width = change_points.candidates(40, 4)
    assert start.min() == 4
    assert (start + width).max() <= 40 - 4 + 1
    assert {1, 2, 4, 8} <= set(width.tolist())


def test_a_fall_within_a_few_of_few_rows_is_a_change() -> None:
    """A log that falls by four within eight of 54 rows, with noise of 0.1: no wandering does that."""
    rng = np.random.default_rng(4)
    y = 6.5 - 4 * change_points.columns(54, np.array([28]), np.array([8]))[0] + 0.1 * ar1(rng, 54, 0.6)
    assert change.fit(y).change().p_down < 1e-4


def test_a_constant_series_has_no_shift(library: change_points.ShiftCandidates) -> None:
    assert change_points.scan(library, np.full(40, 2.0)).p == 1.0
