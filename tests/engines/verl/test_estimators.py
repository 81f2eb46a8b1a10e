"""Our estimators as verl calls them: groups in any order and of any size, against loops over single groups."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from step_policies import Credit, Listed, tree
from torch import Tensor

from grposcope.core.capabilities import STEP_REWARDS
from grposcope.core.errors import UserError
from grposcope.engines.verl import token_rewards
from grposcope.engines.verl.estimators import MARK, PREFIX, _StepEstimator, all_estimators
from grposcope.engines.verl.estimators import _groups_by_size as groups_by_size
from grposcope.engines.verl.versions import check
from grposcope.lab.credit import SOURCES, CreditSource
from grposcope.lab.objectives import advantages, reductions
from grposcope.lab.objectives.advantages import Advantage

OUTCOMES = [PREFIX + name for name in advantages.ALL]
GROUPED = [PREFIX + name for name, advantage in advantages.ALL.items() if advantage.needs_group]
RAGGED = np.array(list("bacabbcadbb"), dtype=object)
"""Groups of 5, 3, 2 and 1."""


def batch(rows: int, width: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rewards of rollouts on their last tokens, and the mask."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, width + 1, (rows,), generator=random)
    mask = (torch.arange(width) < lengths[:, None]).long()
    rewards = torch.zeros(rows, width)
    rewards[torch.arange(rows), lengths - 1] = torch.rand(rows, generator=random)
    return rewards, mask


@pytest.mark.parametrize("name", OUTCOMES)
def test_equal_groups_give_the_advantages_of_the_recipes(name: str) -> None:
    rewards, mask = batch(12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    uid = np.array([f"prompt {i // 4}" for i in range(12)], dtype=object)[order]
    given, returns = all_estimators()[name](rewards[order], mask[order], uid, config={})
    function = advantages.ALL[name.removeprefix(PREFIX)].function
    expected = function(rewards.sum(-1).double().reshape(3, 4)).reshape(-1, 1) * mask
    torch.testing.assert_close(given, expected[order].float(), rtol=1e-6, atol=1e-7)
    assert given.dtype == rewards.dtype
    assert torch.equal(given, returns)


@pytest.mark.parametrize("name", OUTCOMES)
def test_ragged_groups_are_those_of_a_loop_over_uids(name: str) -> None:
    rewards, mask = batch(len(RAGGED))
    given = all_estimators()[name](rewards, mask, RAGGED)[0]
    scores = rewards.sum(-1).double()
    function = advantages.ALL[name.removeprefix(PREFIX)].function
    expected = torch.zeros(len(RAGGED)).double()
    if name not in GROUPED:
        expected = function(scores[None])[0]
    for uid in set(RAGGED) if name in GROUPED else ():
        rows = torch.tensor([i for i, other in enumerate(RAGGED) if other == uid])
        if len(rows) > 1:
            expected[rows] = function(scores[rows][None])[0]
            if name == "grposcope_batch_standardized":
                expected[rows] = (scores[rows] - scores[rows].mean()) / (scores.std() + 1e-4)
    torch.testing.assert_close(given, expected[:, None].float() * mask, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", [*GROUPED, "grposcope_steps", "grposcope_process", "grposcope_values"])
def test_a_single_rollout_contributes_nothing_and_is_told_once(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grposcope.engines.verl.estimators._told", set())
    rewards, mask = batch(5)
    uid = np.array(list("aabab"), dtype=object)
    uid[2] = "alone"
    for _ in range(2):
        given = all_estimators()[name](rewards, mask, uid)[0]
    assert torch.equal(given[2], torch.zeros(6))
    assert [record.getMessage() for record in caplog.records] == [
        "2 of 3 groups have one rollout; they have no baseline and contribute nothing (told once)"
    ]


def test_a_new_advantage_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(advantages.ALL, "toy", Advantage(lambda rewards: rewards + 7))
    rewards, mask = batch(4)
    given = all_estimators()["grposcope_toy"](rewards, mask, list("aabb"))[0]
    torch.testing.assert_close(given, (rewards.sum(-1, keepdim=True) + 7) * mask)


def test_a_new_credit_of_steps_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its one entry in `lab.credit.SOURCES` is also an estimator of verl, and what may read the rewards of steps."""
    toy = CreditSource(
        SOURCES["steps"].assign, "a toy", frozenset({STEP_REWARDS}), from_steps=lambda r, ends, mask, group: 2 * r
    )
    monkeypatch.setitem(SOURCES, "toy", toy)
    rewards, mask = batch(4)
    given = all_estimators()["grposcope_toy"](rewards, mask, list("aabb"))[0]
    torch.testing.assert_close(given, 2 * rewards * mask)
    token_rewards.check("grposcope_toy")


def as_verl(name: str) -> Credit:
    """The estimator in the form of `credit`, with marked rewards; groups are given as uids, their rows shuffled."""
    estimator = all_estimators()[name]

    def credit(rewards: Tensor, ends: Tensor, mask: Tensor, group: int) -> Tensor:
        arrived = rewards.float().where(~ends | (rewards != 0), MARK)
        order = torch.randperm(len(rewards), generator=torch.Generator().manual_seed(0))
        uid = (torch.arange(len(rewards)) // group)[order]
        given = torch.empty(rewards.shape)
        given[order] = estimator(arrived[order], mask[order].long(), uid.numpy(), config={})[0]
        return given.double()

    return credit


@pytest.mark.parametrize("name", ["steps", "process"])
def test_steps_of_reward_zero_are_steps(name: str) -> None:
    listed = tree(3)[1]
    rows = torch.tensor(list(itertools.product(range(len(listed.mask)), repeat=2))).flatten()
    rewards, ends, mask = listed.rewards[rows], listed.ends[rows], listed.mask[rows]
    estimator = all_estimators()[PREFIX + name]
    assert isinstance(estimator, _StepEstimator)
    torch.testing.assert_close(
        as_verl(PREFIX + name)(rewards, ends, mask, 2),
        estimator.credit(rewards, ends, mask, 2),
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.parametrize("group", [2, 3])
def test_steps_without_marks_still_give_the_gradient(group: int) -> None:
    """A step of reward 0 that nobody sees only changes whom its tokens are compared with."""
    names, listed = tree(3 if group < 3 else 2)
    seen = replace(listed, ends=listed.ends & (listed.rewards != 0))
    logits = torch.randn(len(names), generator=torch.Generator().manual_seed(0)).double()
    expected = seen.expected(logits, as_verl("grposcope_steps"), group, reductions.sequence_sum)
    torch.testing.assert_close(expected, listed.gradient(logits), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("group", [2, 3])
def test_true_values_give_the_gradient(group: int) -> None:
    """Over all groups of rollouts; with V̂ the true value after each step, and the outcome on the last token."""
    names, listed = tree(3 if group < 3 else 2)
    logits = torch.randn(len(names), generator=torch.Generator().manual_seed(1)).double()
    differences, ends = of_true_values(listed, logits)
    valued = replace(listed, rewards=differences, ends=ends)
    torch.testing.assert_close(differences.sum(-1), listed.rewards.sum(-1))
    truth = listed.gradient(logits)
    expected = valued.expected(logits, as_verl("grposcope_values"), group, reductions.sequence_sum)
    torch.testing.assert_close(expected, truth, rtol=1e-5, atol=1e-6)


def of_true_values(listed: Listed, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Differences of the expected outcome given what was written up to the end of each step, and where they stand."""
    likely, outcome = listed.probability(logits), listed.rewards.sum(-1)
    written = listed.token_logp(torch.arange(len(logits)).double() + 0.5)  # tells tokens apart
    ends = listed.ends.clone()
    last = listed.mask.sum(-1) - 1
    ends[torch.arange(len(ends)), last] = True
    differences = torch.zeros_like(listed.rewards)
    for i, row in enumerate(ends):
        before = 0.0
        for t in row.nonzero().flatten().tolist():
            same = (written[:, : t + 1] == written[i, : t + 1]).all(-1) & listed.mask[:, t]
            value = float((likely * outcome)[same].sum() / likely[same].sum())
            differences[i, t], before = value - before, value
    return differences, ends


def test_a_reward_on_a_masked_token_counts() -> None:
    """An answer of a tool may decide a step: the tokens before it get the credit, its own get 0."""
    rewards = torch.tensor([[0.0, 0, 1, 0, 2], [0, 0, MARK, 0, 1]])
    mask = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 0, 1, 1]])
    given, left = all_estimators()["grposcope_steps"](rewards, mask, ["a", "a"])
    assert given.tolist() == [[2, 2, 0, 1, 1], [-2, -2, 0, -1, -1]]
    assert left.tolist() == [[3, 3, 0, 2, 2], [1, 1, 0, 1, 1]]


def refused(**changed: Any) -> str:
    rewards, mask = batch(4)
    arguments = {"token_level_rewards": rewards, "response_mask": mask, "index": list("aabb"), "config": {}, **changed}
    with pytest.raises(UserError) as error:
        all_estimators()[arguments.pop("name")](**arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_refused() -> None:
    assert "has no uid" in refused(name="grposcope_standardized", index=None)
    assert "has no uid" in refused(name="grposcope_steps", index=None)
    assert "all 4 groups have one rollout" in refused(name="grposcope_centered", index=list("abcd"))
    assert "use_kl_in_reward" in refused(name="grposcope_steps", config={"use_kl_in_reward": True})
    assert "rewards ≥ 0" in refused(name="grposcope_mean_normalized", token_level_rewards=-batch(4)[0])


@pytest.mark.parametrize("version", ["0.8.0", "0.9", "0.10.0", "1.0", "unknown"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(UserError, match=rf"verl {version} was found; GRPOscope supports verl 0\.9\.1"):
        check(version)
    check("0.9.1")
    check("0.9.2.post1")


def test_groups_by_size() -> None:
    assert [rows.tolist() for rows in groups_by_size([[0, 3], [1], [2, 4, 5], [6, 7]])] == [
        [[0, 3], [6, 7]],
        [[2, 4, 5]],
    ]
