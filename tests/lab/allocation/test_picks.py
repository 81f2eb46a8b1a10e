"""The allocators: what the filter skips, what is promised, and what can be asked for."""

from __future__ import annotations

import numpy as np
import pytest
from places import ROOT

from grposcope.core.errors import UserError
from grposcope.lab.allocation import ALLOCATORS, chosen, picks
from grposcope.lab.allocation.beta import Rates
from grposcope.lab.allocation.picks import CandidateProblems


@pytest.fixture
def rates() -> Rates:
    """What is believed of four problems: hardly ever solved, twice sometimes, nearly always."""
    return Rates(np.array([0.5, 2.0, 3.0, 8.0]), np.array([20.0, 3.0, 3.0, 0.8]))


def offered(rates: Rates, prompts: int) -> CandidateProblems:
    """A batch of groups of 4."""
    return CandidateProblems(rates, prompts, 4, np.full(len(rates.a), 0.5))


def test_the_filter_skips_what_is_forecast_dead_and_fills_up_when_too_few_are_left(rates: Rates) -> None:
    chance, none = rates.dead(4), np.zeros(4, bool)
    assert (chance > 0.5).tolist() == [True, False, False, True]
    assert picks._filtered(offered(rates, 2), 0.5, none).chosen.tolist() == [1, 2]
    assert picks._filtered(offered(rates, 2), 0.5, none).passed == 3
    assert picks._filtered(offered(rates, 3), 0.5, none).chosen.tolist() == [1, 2, int(np.argsort(chance)[2])]
    kept = np.array([True, False, False, False])
    assert picks._filtered(offered(rates, 2), 0.5, kept).chosen.tolist() == [0, 1]


def test_the_promised_share_of_live_groups_comes_true_if_the_forecast_is_right(rates: Rates) -> None:
    rng = np.random.default_rng(0)
    drawn = picks._picked(offered(rates, 3), np.array([1, 2, 3]), 4)
    p = rng.beta(rates.a, rates.b, (60_000, 4))[:, drawn.chosen]
    k = rng.binomial(4, p)
    assert np.mean((k > 0) & (k < 4)) == pytest.approx(drawn.live, abs=0.005)


@pytest.mark.parametrize("name", ALLOCATORS)
def test_every_allocator_says_what_it_does_to_the_objective(name: str) -> None:
    page = (ROOT / "docs" / "group-size.md").read_text("utf-8")
    assert f"\n| `{name}" in page
    told = chosen(name).allocator.objective
    assert told.startswith(("every problem counts the same", "favours", "skipped problems"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("filtre", "did you mean filter"),
        ("filter:dead=0", "dead is '0' and must be a number above 0"),
        ("filter:deaf=0.5", "did you mean dead"),
        ("resample:dead=0.1", "its settings are above"),
        ("resample:above=2", "above is '2' and must be a number at least 0 and at most 1"),
        ("uniform:forecast=yes", "it has no settings"),
        ("optimal:floor=0.1", "this way was retired; use one of uniform, resample, filter"),
        ("two-stage", "this way was retired"),
    ],
)
def test_what_cannot_be_asked_for(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        chosen(text)
