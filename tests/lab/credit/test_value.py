"""Credit from a critic: GAE against its definition, and its bias over every rollout of a listed policy."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import CASES
from test_merging import Listed, logits_of, text_reward
from text_policies import by_row, exact_values
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.credit import SOURCES, chosen, critic
from grposcope.lab.objectives import recipes

RANDOM = torch.Generator().manual_seed(5)


def slow(rewards: Tensor, values: Tensor, mask: Tensor, decay: Tensor, gamma: float) -> Tensor:
    """Σ_k (γλ)^k δ_{t+k} from a rollout's list of δ, rollout by rollout."""
    out = torch.zeros(mask.shape, dtype=torch.float64)
    for i in range(len(mask)):
        at = mask[i].nonzero()[:, 0].tolist()
        seen = [float(values[i, t]) for t in at] + [0.0]
        deltas = [float(rewards[i, t]) + gamma * seen[n + 1] - seen[n] for n, t in enumerate(at)]
        for n, t in enumerate(at):
            out[i, t] = sum((gamma * float(decay[i])) ** k * delta for k, delta in enumerate(deltas[n:]))
    return out


@pytest.mark.parametrize("case", CASES[:5], ids=[case.name for case in CASES[:5]])
@pytest.mark.parametrize(("decay", "gamma"), [(0.95, 1.0), (0.0, 0.9), (1.0, 0.5), (None, 0.97)])
def test_against_the_definition(case: object, decay: float | None, gamma: float) -> None:
    rollouts = case.rollouts  # type: ignore[attr-defined]
    mask = rollouts.mask
    values, rewards = (torch.randn(mask.shape, generator=RANDOM, dtype=torch.float64) for _ in range(2))
    each = (
        torch.full((len(mask),), decay, dtype=torch.float64)
        if decay is not None
        else critic._length_adaptive(mask, 0.8)
    )
    given = critic._generalized_advantage(rewards, values, mask, each if decay is None else decay, gamma)
    torch.testing.assert_close(given, slow(rewards, values, mask, each, gamma), rtol=1e-12, atol=1e-12)


def test_at_one_it_is_the_reward_less_the_value() -> None:
    rollouts = CASES[0].rollouts
    values = torch.randn(rollouts.mask.shape, generator=RANDOM, dtype=torch.float64)
    given = chosen("value:lambda=1").assign(recipes.GRPO, rollouts.annotated(values=values))
    expected = (rollouts.rewards.reshape(-1, 1) - values) * rollouts.mask
    torch.testing.assert_close(given, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        critic.targets(rollouts.annotated(values=values), 1.0, 1.0), rollouts.rewards.reshape(-1, 1) * rollouts.mask
    )
    assert not torch.allclose(critic.targets(rollouts.annotated(values=values), 0.5, 1.0), given)


def test_lambda_follows_the_length() -> None:
    mask = torch.tensor([[True] * 4, [True, True, False, False], [False] * 4])
    assert critic._length_adaptive(mask, 0.5).tolist() == [0.5, 0.0, 0.0]
    rollouts = CASES[0].rollouts.annotated(values=torch.zeros(CASES[0].rollouts.mask.shape).double())
    longest, short = (float(chosen("value:alpha=0.25").assign(recipes.GRPO, rollouts)[i, 0]) for i in (0, 3))
    assert (longest, short) == (pytest.approx((1 / 3) ** 5), 1.0)  # rewards 1 of 6 tokens and of a single one


def credit_of(listed: Listed, values: Tensor, **settings: object) -> object:
    def credit(rows: Tensor, mask: Tensor, rewards: Tensor) -> Tensor:
        rollouts = replace(CASES[0].rollouts, mask=mask, rewards=rewards).annotated(values=values[rows])
        return SOURCES["value"].assign(recipes.GRPO, rollouts, **settings)

    return by_row(listed, credit)


@pytest.mark.parametrize(
    ("settings", "exact", "biased"),
    [
        ({"lambda": 1.0}, False, False),  # whatever the critic says
        ({"lambda": 1.0}, True, False),
        ({"lambda": 0.6}, True, False),  # with an exact critic
        ({"lambda": 0.0}, True, False),
        ({"lambda": 0.6}, False, True),
        ({"lambda": 0.0}, False, True),
        ({"alpha": 0.7}, True, True),  # a λ that knows the length, even then
        ({"lambda": 1.0, "gamma": 0.9}, True, True),
        ({"lambda": 1.0, "whiten": "yes"}, True, True),
    ],
)
def test_its_bias_is_what_is_said(settings: dict[str, object], exact: bool, biased: bool) -> None:
    listed = Listed(3, lambda text: text, text_reward)
    logits = logits_of(listed.contexts)
    values = exact_values(listed, logits)
    if not exact:  # a number per state: rollouts that have written the same text have the same
        wrong = torch.randn(listed.contexts, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        values = values + wrong[listed.place] * listed.mask
    found = listed.expected(logits, credit_of(listed, values, **settings), 1)  # type: ignore[arg-type]
    difference = float((found - listed.gradient(logits)).abs().max())
    assert difference > 1e-2 if biased else difference < 1e-11


def test_whitened_credit_has_mean_0_and_deviation_1() -> None:
    mask = CASES[0].rollouts.mask
    given = critic._whitened(torch.randn(mask.shape, generator=RANDOM, dtype=torch.float64) + 3, mask)
    assert float(given[mask].mean()) == pytest.approx(0, abs=1e-12)
    assert float(given[mask].std()) == pytest.approx(1, abs=1e-6)
    assert not given[~mask].any()
    assert not critic._whitened(torch.full(mask.shape, 0.1).double() * mask, mask).any()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("value:lambda=1.1", "lambda is '1.1' and must be a number at least 0 and at most 1"),
        ("value:lambda=-0.1", "at least 0 and at most 1"),
        ("value:alpha=0", "alpha is '0' and must be a number above 0"),
        ("value:alpha=inf", "above 0"),
        ("value:updates=0", "a whole number, at least 1"),
        ("value:trunk=mine", "one of own, shared"),
    ],
)
def test_settings_that_cannot_be(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        chosen(text)


def test_rollouts_without_values_are_refused() -> None:
    with pytest.raises(UserError, match="needs a critic"):
        chosen("value").assign(recipes.GRPO, CASES[0].rollouts)
