"""Credit from continuations: the expected gradient over every group, and every continuation, of a listed policy."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from branching import END, A, B, Policy, Text
from cases import CASES as ROLLOUTS
from torch import Tensor

from grposcope.core.capabilities import CONTINUATIONS, STEP_ENDS
from grposcope.core.errors import UserError
from grposcope.lab.credit import chosen, per_token
from grposcope.lab.credit.continued import continued
from grposcope.lab.objectives import recipes

POLICY = Policy((END, A, B), 3, lambda text: float(sum((3 * t + y) * (t + 1) for t, y in enumerate(text)) % 5))
Places = Callable[[Text], list[int]]


def after_a(text: Text) -> list[int]:
    """A token A closes a step; the end of the text is no boundary."""
    return [t + 1 for t, token in enumerate(text[:-1]) if token == A]


def after_the_last_a(text: Text) -> list[int]:
    """Known only when the text is over: a later A moves the boundary."""
    return after_a(text)[-1:]


def expected(places: Places, own: bool = False) -> tuple[Tensor, Tensor]:
    """E (1/G) Σ_i Σ_t A_t ∇log π for G = 2, K = 1, and ∇J. own: the rollout itself stands in for its continuations."""
    random = torch.Generator().manual_seed(3)
    logits = torch.randn(len(POLICY.contexts), 3, generator=random, dtype=torch.float64)
    logp, scores = POLICY.token_logp(logits), POLICY.scores(logits)

    def log_chance(text: Text, start: int = 0) -> float:
        return float(sum(logp[text[:t], text[t]] for t in range(start, len(text))))

    ways: list[tuple[Text, list[float], float]] = []  # a rollout, V̂ on its tokens, log of their joint probability
    for text in POLICY.texts():
        at = places(text)
        continuations = [[text] if own else list(POLICY.texts(text[:place])) for place in at]
        for drawn in itertools.product(*continuations):
            values = [float("nan")] * 3
            chance = log_chance(text)
            for place, one in zip(at, drawn, strict=True):
                values[place - 1] = POLICY.reward(one)
                chance += 0.0 if own else log_chance(one, place)
            ways.append((text, values, chance))
    pairs = torch.cartesian_prod(torch.arange(len(ways)), torch.arange(len(ways)))
    chances = torch.tensor([chance for *_, chance in ways], dtype=torch.float64)
    likely = chances[pairs].sum(-1).exp()
    assert float(likely.sum()) == pytest.approx(1.0, abs=1e-11)
    rows = pairs.flatten()
    mask = torch.arange(3) < torch.tensor([[len(text)] for text, *_ in ways])
    values = torch.tensor([values for _, values, _ in ways], dtype=torch.float64)
    rewards = torch.tensor([POLICY.reward(text) for text, *_ in ways], dtype=torch.float64)
    given = continued(values[rows], mask[rows], rewards[pairs])
    totals = torch.zeros(len(ways), 3, dtype=torch.float64)
    totals.index_add_(0, rows, given * likely.repeat_interleave(2)[:, None] / 2)
    found = torch.zeros_like(logits)
    for (text, *_), row in zip(ways, totals.tolist(), strict=True):
        for t, token in enumerate(text):
            found += row[t] * scores[text[:t], token]
    return found, POLICY.gradient(logits)


def test_fresh_continuations_leave_the_gradient_unbiased() -> None:
    found, truth = expected(after_a)
    assert float(truth.abs().max()) > 0.1
    torch.testing.assert_close(found, truth, rtol=1e-11, atol=1e-12)


def test_boundaries_that_depend_on_what_follows_bias_it() -> None:
    found, truth = expected(after_the_last_a)
    assert float((found - truth).abs().max()) > 1e-2


def test_the_rollout_itself_among_its_continuations_biases_it() -> None:
    found, truth = expected(after_a, own=True)
    assert float((found - truth).abs().max()) > 1e-2


def test_credit_by_hand() -> None:
    """Segments of 2, 1 and 1 tokens with V̂ 0.5 and 0.25; the other rollout earned 1, the third 0."""
    nan = float("nan")
    values = torch.tensor([[nan, 0.5, 0.25, nan, nan], [nan] * 5, [0.75, nan, nan, nan, nan]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()
    rewards = torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([
        [0.5 - 0.5, 0.5 - 0.5, 0.25 - 0.5, 1 - 0.25, 0],
        [0.5] * 5,
        [0 - 1.0, 0, 0, 0, 0],  # a boundary at the end is none: the reward is known
    ], dtype=torch.float64)  # fmt: skip
    torch.testing.assert_close(continued(values, mask, rewards), expected)


def test_without_boundaries_it_is_the_advantage_against_the_others() -> None:
    rollouts = ROLLOUTS[0].rollouts
    none = torch.full(rollouts.mask.shape, torch.nan, dtype=torch.float64)
    given = continued(none, rollouts.mask, rollouts.rewards)
    torch.testing.assert_close(given, per_token("outcome", recipes.RLOO, rollouts, torch.float64))


def test_rollouts_without_continuations_are_refused() -> None:
    with pytest.raises(UserError, match="needs rollouts with continuations"):
        per_token("continuations", recipes.GRPO, ROLLOUTS[0].rollouts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("continuations:k=0", "k is '0' and must be a whole number, at least 1"),
        ("continuations:k=2.5", "must be a whole number"),
        ("continuations:at=word", "must be one of step, newline, entropy"),
        ("tree:widths=2x1", "2 or more with x between, such as 2x2x2"),
        ("tree:widths=", "2 or more with x between, such as 2x2x2"),
        ("tree:widths=2x2,evry=4", r"did you mean every\?"),
    ],
)
def test_settings_that_are_none(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        chosen(text)


def test_only_steps_need_labels_and_a_placebo_needs_what_its_source_needs() -> None:
    assert chosen("continuations:at=step").source.requires(STEP_ENDS)
    assert not chosen("continuations:at=newline").source.requires(STEP_ENDS)
    inner = chosen("placebo:of=continuations:k=7,at=entropy")
    assert inner.source.requires(CONTINUATIONS)
    assert inner.values["k"] == 7
    assert chosen("placebo:of=tree:widths=4x2").values["widths"] == (4, 2)
