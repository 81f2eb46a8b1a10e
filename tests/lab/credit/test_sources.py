"""Sources of credit: what each gives every token, and what each asks of the rollouts."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from cases import CASES
from places import ROOT

from grposcope.core.capabilities import ADVANTAGE, STEP_ENDS
from grposcope.core.errors import UserError
from grposcope.lab.credit import SOURCES, chosen, per_token
from grposcope.lab.objectives import recipes, reductions
from grposcope.lab.objectives.surrogates import Reinforce

LIVE = CASES[0]


def test_outcome_credit_is_the_advantage_on_every_token() -> None:
    mask = LIVE.rollouts.mask
    given = per_token("outcome", recipes.RLOO, LIVE.rollouts, torch.float64)
    advantages = recipes.RLOO.advantage(LIVE.rollouts.rewards).reshape(-1)
    for row, keep, advantage in zip(given.tolist(), mask.tolist(), advantages.tolist(), strict=True):
        assert row == [advantage if k else 0.0 for k in keep]


def test_step_credit_needs_steps() -> None:
    with pytest.raises(UserError, match="labels steps"):
        per_token("steps", recipes.GRPO, LIVE.rollouts)


def test_step_credit_reaches_the_loss() -> None:
    ends = torch.zeros_like(LIVE.rollouts.mask)
    ends[:, 1] = LIVE.rollouts.mask[:, 1]
    steps = LIVE.rollouts.annotated(step_ends=ends, step_rewards=ends * LIVE.logp)
    given = per_token("steps", recipes.GRPO, steps, torch.float64)
    assert given[:, 0].any()
    assert not given[:, 2:].any()
    free = replace(recipes.GRPO, surrogate=Reinforce())
    expected = -(reductions.sequence_mean(steps.mask) * given * (LIVE.logp - LIVE.old).exp()).sum()
    loss = free.loss(LIVE.logp, LIVE.old, steps, credit=given)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)


def test_an_unknown_source_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"unknown credit 'bush'.*; use one of outcome, .*placebo"):
        per_token("bush", recipes.GRPO, LIVE.rollouts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("position:decay=1", "above 0 and below 1"),
        ("position:decay=fast", "'fast' and must be a number"),
        ("position:decai=0.5", r"did you mean decay\?"),
        ("prefix:decay=0.5", "it has no settings"),
        ("prefx", r"did you mean prefix\?"),
        ("placebo", "placebo:of=prefix"),
        ("placebo:of=placebo:of=prefix", "placebo:of=prefix"),
        ("placebo:of=best", "unknown credit 'best'"),
    ],
)
def test_a_setting_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        chosen(text)


def test_a_placebo_needs_what_its_source_needs() -> None:
    assert chosen("placebo:of=steps").source.requires(STEP_ENDS)
    assert ADVANTAGE in chosen("placebo:of=outcome").source.provides
    assert chosen("placebo:of=position:decay=0.5").assign(recipes.GRPO, LIVE.rollouts).shape == LIVE.rollouts.mask.shape


def test_sources_that_use_the_advantage_follow_it_and_the_others_do_not() -> None:
    ends = LIVE.rollouts.mask & (torch.rand(LIVE.rollouts.mask.shape, generator=torch.Generator().manual_seed(0)) < 0.5)
    labelled = LIVE.rollouts.annotated(
        step_ends=ends,
        step_rewards=ends * LIVE.logp,
        prefix_values=LIVE.logp.exp(),
        levels=torch.zeros_like(LIVE.rollouts.tokens),
        values=LIVE.ref,
        other_logp=LIVE.ref,
        collision=LIVE.old.exp(),
        turns=torch.where(LIVE.rollouts.mask, 0, -1),
        states=torch.ones_like(LIVE.rollouts.tokens),
        turn_values=LIVE.ref.double(),
    )
    asked = {"tree": f"tree:widths={LIVE.rollouts.groups[1]}", "teacher": "teacher:model=tiny"}
    doubled = replace(recipes.GRPO, advantage=lambda rewards: 2 * recipes.GRPO.advantage(rewards))
    for name, source in SOURCES.items():
        one, two = (per_token(asked.get(name, name), objective, labelled) for objective in (recipes.GRPO, doubled))
        assert torch.equal(one, two) != (ADVANTAGE in source.provides)


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_is_documented(name: str) -> None:
    page = (ROOT / "docs" / "credit.md").read_text("utf-8")
    row = re.search(rf"^\| (?:`\w+`, )*`{name}[`:].*", page, re.M)
    assert row is not None
    if SOURCES[name].unbiased:
        assert row[0].split(" | ")[2] == "none"
