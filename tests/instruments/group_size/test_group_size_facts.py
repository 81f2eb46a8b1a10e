"""What is said of the group size: the sentence of each outcome, and that the numbers are those of `ustat`."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic_probe

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.group_size import mse, planning, rewards_alone
from grposcope.instruments.group_size import size as group_size
from grposcope.instruments.group_size.size import GroupSize
from grposcope.maths import moments


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> GroupSize:
    folder = synthetic_probe.make(tmp_path_factory.mktemp("facts") / "probe")
    found = group_size.of_probe(probes.read(folder))
    assert isinstance(found, GroupSize)
    return found


def with_plan(
    facts: GroupSize, interval: tuple[float, float], integer: int = 6, near: tuple[int, int] = (4, 9)
) -> GroupSize:
    plan = planning.Plan(Estimate(6.2, 3.0, 8), integer, interval, near, 20, 0 if integer else 30, facts.plan.curve)
    return replace(facts, plan=plan)


def test_an_interval_without_end_gives_a_least_size(facts: GroupSize) -> None:
    told = with_plan(facts, (2.8, math.inf), 0).sentence()
    assert told.startswith("Best G is at least 3 (95%), without an upper limit: the probe shows no difference between")
    assert "may be best too. A new probe of about 94 prompts like these would probably decide" in told
    assert not with_plan(facts, (2.8, math.inf), 0).decided


def test_a_closed_interval_is_an_answer(facts: GroupSize) -> None:
    closed = with_plan(facts, (2.8, 11.0))
    assert closed.decided
    said = "Best G = 6 (G* = 6.2, 95% interval 2.8 to 11); any G from 4 to 9 needs at most 5% more rollouts"
    assert closed.sentence().startswith(f"{said}.")
    assert closed.sentence(6).startswith(f"{said}. G = 6 was used.")
    lost, low, high = closed.loss(3)
    assert (
        f"At G = 3 you need {100 * lost:.0f}% more rollouts ({100 * low:.0f}% to {100 * high:.0f}%)"
        in closed.sentence(3)
    )
    assert "every other G needs over 5% more rollouts" in with_plan(facts, (2.8, 11.0), near=(6, 6)).sentence()
    assert "5% more budget" in replace(closed, prompt_cost=1.0).sentence()


def test_losses_ratios_and_dead_groups_are_those_of_the_library(facts: GroupSize) -> None:
    point = next(point for point in facts.plan.curve if point.group == 8)
    assert facts.loss(8) == (point.loss, *point.loss_interval)
    assert facts.efficiency(8)[0] == mse.efficiency(facts.moments, 8).value
    assert facts.dead_shown(8).endswith("%*")
    assert facts.dead_shown(4) == f"{100 * facts.dead(4).value:.1f}%"
    assert f"Dead groups at G = 4: {facts.dead_shown(4)} ±" in facts.dead_sentence(4)


def test_the_parts_of_the_error_are_all_of_it(facts: GroupSize) -> None:
    shares = [int(part.rstrip("%")) for part in facts.error_sentence(4).split() if part.endswith("%")]
    assert sum(shares) == pytest.approx(100, abs=1)


def test_a_probe_without_a_gram_says_why(tmp_path: Path) -> None:
    folder = synthetic_probe.make(tmp_path / "probe")
    (folder / probes.GRAM).unlink()
    unknown = group_size.of_probe(probes.read(folder))
    assert isinstance(unknown, group_size.Unknown)
    assert unknown.sentence().startswith("Cannot tell the best group size: ")
    assert "gram.npz is missing" in unknown.sentence()


def test_rewards_alone_tell_dead_groups_and_no_best_size() -> None:
    rewards = np.array([[0.0, 1, 1, np.nan], [0, 0, 1, 1], [1, 1, 1, 1]])
    found = rewards_alone._of_rewards(rewards, (3, 4), (2, 3))
    assert (found.groups, found.steps) == (3, (3, 4))
    assert found.reward == pytest.approx(8 / 11)
    assert found.curve[0].dead.value == pytest.approx((1 / 3 + 1 / 3 + 1) / 3)
    assert "Cannot tell" in found.sentence()


def test_a_prompt_that_carries_most_of_the_gradients_is_told(facts: GroupSize) -> None:
    """Its share against a loop over pairs of rollouts; with equal prompts nothing is said."""
    rng = np.random.default_rng(0)
    rewards = np.tile([0.0, 0.0, 1.0, 1.0], (10, 1))
    scores = rng.standard_normal((10, 4, 30))
    equal = replace(facts, moments=moments.from_scores(scores, rewards))
    assert equal.uneven_sentence() == ""
    scores[3] *= 3.0
    both = [
        np.mean([
            np.sum((0.5 * (r[i] - r[j]) * (s[i] - s[j])) ** 2) for i in range(4) for j in range(4) if i != j
        ])
        for s, r in zip(scores, rewards, strict=True)
    ]  # fmt: skip
    uneven = replace(facts, moments=moments.from_scores(scores, rewards))
    assert uneven.moments.largest_share == pytest.approx(both[3] / sum(both))
    assert f"one of 10 carries {both[3] / sum(both):.0%} of the squared gradients" in uneven.uneven_sentence()


def test_few_live_groups_are_no_uneven_ones(facts: GroupSize) -> None:
    """Three of 24 groups are live, with gradients alike: each has about a third of the squares; not with nine, where
    one has half."""
    rng = np.random.default_rng(4)
    rewards, scores = np.zeros((24, 4)), rng.standard_normal((24, 4, 30))
    rewards[:3, :2] = 1.0
    alike = replace(facts, moments=moments.from_scores(scores, rewards))
    assert alike.moments.largest_share > 0.3
    assert alike.uneven_sentence() == ""
    rewards[:9, :2] = 1.0
    scores[0] *= 2.8
    uneven = replace(facts, moments=moments.from_scores(scores, rewards))
    assert 4 / 9 < uneven.moments.largest_share < 0.6
    assert "one of 24 carries" in uneven.uneven_sentence()


def test_a_few_prompts_with_most_of_the_score_norm_are_told(facts: GroupSize) -> None:
    """Four of twenty-four with scores three times as long: none carries a fifth, and E‖s‖² is known to a quarter."""
    rng = np.random.default_rng(0)
    rewards = np.tile([0.0, 0.0, 1.0, 1.0], (24, 1))
    scores = rng.standard_normal((24, 4, 30))
    assert replace(facts, moments=moments.from_scores(scores, rewards)).uneven_sentence() == ""
    scores[:4] *= 3.0
    heavy = replace(facts, moments=moments.from_scores(scores, rewards))
    assert heavy.moments.largest_share < 0.2
    assert "a few of 24 have most of the squared score norm" in heavy.uneven_sentence()


def test_no_plan_is_made_of_correlated_rollouts() -> None:
    """A part that all rollouts of a prompt share makes prompts seem to differ: 3 of 10 parts of every score."""
    rng = np.random.default_rng(1)
    own = rng.standard_normal((40, 8, 20))
    rewards = (own[..., 0] + 0.3 * rng.standard_normal((40, 8)) > 0.3).astype(float)
    alone = moments.from_scores(own, rewards)
    assert planning.not_independent(alone) == ""
    together = moments.from_scores(own + 0.65 * rng.standard_normal((40, 1, 20)), rewards)
    share = planning.score_mean(together)
    assert share.value == pytest.approx(0.65**2 / (1 + 0.65**2), abs=0.05)
    plan = planning.optimal_group(together)
    assert not plan.decided
    assert plan.at_least == 0
    withheld = GroupSize(together, plan, rewards)
    assert withheld.sentence().startswith(
        "Cannot tell the best group size: the scores of two rollouts of a prompt have a"
    )
    with pytest.raises(UserError, match="cannot tell the best group size"):
        planning.allocate(together, 64)
