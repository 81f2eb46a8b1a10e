"""Reductions: coefficients against loops, their totals, and that masking a token equals deleting it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from cases import CASES, Case
from torch import Tensor

from grposcope.lab.objectives import reductions

cases = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)

# The coefficient of a kept token of a row with n kept tokens, in B rows of width T with N kept tokens in all
FORMULAS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[int, int, int, int], float]]] = {
    "sequence_mean": (reductions.sequence_mean, lambda n, rows, width, total: 1 / (n * rows)),
    "token_mean": (reductions.token_mean, lambda n, rows, width, total: 1 / total),
    "constant_length": (reductions.constant_length, lambda n, rows, width, total: 1 / (width * rows)),
    "constant_length 20": (
        partial(reductions.constant_length, length=20),
        lambda n, rows, width, total: 1 / (20 * rows),
    ),
    "sequence_sum": (reductions.sequence_sum, lambda n, rows, width, total: 1 / rows),
}
WIDTH_BLIND = [name for name in FORMULAS if name != "constant_length"]


@pytest.mark.parametrize("name", FORMULAS)
@cases
def test_coefficients(case: Case, name: str) -> None:
    reduction, formula = FORMULAS[name]
    mask = case.rollouts.mask.tolist()
    total = sum(map(sum, mask))
    for given, row in zip(reduction(case.rollouts.mask).tolist(), mask, strict=True):
        expected = [formula(sum(row), len(mask), len(row), total) if keep else 0.0 for keep in row]
        assert given == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("name", WIDTH_BLIND)
@cases
def test_masking_a_token_equals_deleting_it(case: Case, name: str) -> None:
    """Each row packed to the left, holes gone, and the array cut to the longest row."""
    reduction, _ = FORMULAS[name]
    mask = case.rollouts.mask
    longest = int(mask.sum(-1).max())
    packed = torch.arange(longest) < mask.sum(-1, keepdim=True)
    torch.testing.assert_close(reduction(packed)[packed], reduction(mask)[mask], rtol=0, atol=0)


@pytest.mark.parametrize("name", FORMULAS)
@cases
def test_permuting_rollouts_permutes_coefficients(case: Case, name: str) -> None:
    reduction, _ = FORMULAS[name]
    order = torch.arange(len(case.rollouts.mask)).flip(0)
    expected = reduction(case.rollouts.mask)[order]
    torch.testing.assert_close(reduction(case.rollouts.mask[order]), expected, rtol=0, atol=0)


def test_empty_rows_count_in_the_mean_over_rollouts_only() -> None:
    mask = torch.tensor([[True, True, False], [False, False, False]])
    totals = {name: float(reduction(mask).sum()) for name, (reduction, _) in FORMULAS.items()}
    expected = {
        "sequence_mean": 1 / 2,
        "token_mean": 1.0,
        "constant_length": 2 / 6,
        "constant_length 20": 2 / 40,
        "sequence_sum": 2 / 2,
    }
    assert totals == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_batch_without_tokens_has_no_coefficients(name: str) -> None:
    assert FORMULAS[name][0](torch.zeros(3, 4, dtype=torch.bool)).tolist() == [[0.0] * 4] * 3


def test_lengths_can_divide() -> None:
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert reductions.lengths(mask).tolist() == [2, 1]
