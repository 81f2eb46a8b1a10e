"""Ratios: values against loops, and the gradients that their token forms stand for."""

from __future__ import annotations

import math

import pytest
import torch
from cases import CASES, Case
from torch import Tensor

from grposcope.lab.objectives import ratios, reductions

cases = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


def naive_sequence(logp: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """(B, 1): exp of the mean log-ratio, differentiated through the mean."""
    rows = [
        ((new - before)[keep].sum() / max(int(keep.sum()), 1)).exp()
        for new, before, keep in zip(logp, old, mask, strict=True)
    ]
    return torch.stack(rows)[:, None]


@cases
def test_token_ratio(case: Case) -> None:
    given = ratios.token(case.logp, case.old, case.rollouts.mask)
    for i, t in torch.ones_like(given).nonzero().tolist():
        assert float(given[i, t]) == pytest.approx(math.exp(case.logp[i, t]) / math.exp(case.old[i, t]), rel=1e-12)


@cases
def test_sequence_ratio_is_one_number_per_rollout(case: Case) -> None:
    mask = case.rollouts.mask
    given = ratios.sequence(case.logp, case.old, mask)
    expected = naive_sequence(case.logp, case.old, mask).expand_as(given)
    torch.testing.assert_close(given, expected, rtol=1e-12, atol=0)


@cases
def test_token_form_has_the_gradient_of_the_sequence_ratio(case: Case) -> None:
    mask = case.rollouts.mask
    rows = torch.linspace(-1, 2, len(mask), dtype=torch.float64)[:, None]
    leaf = case.logp.clone().requires_grad_()
    coefficients = reductions.sequence_mean(mask)
    token_form = (coefficients * rows * ratios.sequence(leaf, case.old, mask)).sum()
    whole = (rows * naive_sequence(leaf, case.old, mask)).sum() / len(mask)
    ours, true = (torch.autograd.grad(value, leaf)[0] for value in (token_form, whole))
    assert true.abs().max() > 0.01
    torch.testing.assert_close(ours, true, rtol=1e-12, atol=1e-15)


@cases
def test_credit_that_differs_within_a_row_reaches_each_token_through_its_own_log_probability(case: Case) -> None:
    """Where the token form departs from the sequence ratio, which would share the row's credit out evenly."""
    leaf = case.logp.clone().requires_grad_()
    given = ratios.sequence(leaf, case.old, case.rollouts.mask)
    weight = torch.arange(given.numel(), dtype=torch.float64).reshape(given.shape)
    gradient = torch.autograd.grad((weight * given).sum(), leaf)[0]
    torch.testing.assert_close(gradient, weight * given.detach(), rtol=1e-12, atol=0)


@cases
def test_no_ratio_has_value_one_and_the_gradient_of_the_log_probability(case: Case) -> None:
    leaf = case.logp.clone().requires_grad_()
    given = ratios.none(leaf, case.old, case.rollouts.mask)
    assert torch.equal(given, torch.ones_like(given))
    weight = torch.arange(given.numel(), dtype=torch.float64).reshape(given.shape)
    torch.testing.assert_close(torch.autograd.grad((weight * given).sum(), leaf)[0], weight, rtol=0, atol=0)


@cases
def test_masked_garbage_does_not_reach_the_kept_tokens(case: Case) -> None:
    mask = case.rollouts.mask
    expected = ratios.sequence(case.logp, case.old, mask)[mask]
    for garbage in (math.nan, math.inf, -math.inf):
        given = ratios.sequence(case.logp.where(mask, garbage), case.old.where(mask, garbage), mask)
        assert torch.equal(given[mask], expected)
