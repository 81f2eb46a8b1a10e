"""The rule of dead groups: what it flags, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic_series as made
from synthetic_series import flagged

from grposcope.core.finding import Status
from grposcope.instruments.diagnosis import diagnose


@pytest.mark.parametrize(("level", "mode", "other"), [(0.03, "starved", "saturated"), (0.97, "saturated", "starved")])
def test_dead_groups_are_starved_or_saturated_by_the_reward(level: float, mode: str, other: str) -> None:
    table = made.healthy()
    table["reward"] = level + 0.005 * made.ar1(np.random.default_rng(6), 120, 0.3)
    table["dead_fraction"] = 0.95 + 0.01 * made.ar1(np.random.default_rng(7), 120, 0.3)
    found = flagged(table)
    assert mode in found
    assert other not in found


@pytest.mark.parametrize("binary", [True, False])
def test_dead_groups_at_a_middling_reward_are_of_both_kinds(binary: bool) -> None:
    """0.9 dead at a mean of 0.45 of rewards of 0 and 1: 0.35 at least are all right, and 0.45 all wrong."""
    table = made.healthy()
    table.pop("reward_std")
    table["reward"] = 0.45 + 0.005 * made.ar1(np.random.default_rng(6), 120, 0.3)
    table["reward_std_batch"] = np.sqrt(table["reward"] * (1 - table["reward"])) * (1.0 if binary else 0.4)
    table["dead_fraction"] = 0.9 + 0.01 * made.ar1(np.random.default_rng(7), 120, 0.3)
    found = next(finding for finding in diagnose(made.run(table)) if finding.fault == "starved")
    assert ("so at least 34% of groups are all right, and at least 44% all wrong" in found.because) == binary
    assert found.remedy.startswith("leave out prompts that all rollouts of a group solve") == binary


@pytest.mark.parametrize(("held", "few"), [(0.6, True), (0.95, False)])
def test_prompts_that_are_solved_while_held_out_ones_are_not_may_be_few(held: float, few: bool) -> None:
    table = made.healthy()
    table["reward"] = 0.985 + 0.003 * made.ar1(np.random.default_rng(6), 120, 0.3)
    table["dead_fraction"] = 0.95 + 0.01 * made.ar1(np.random.default_rng(7), 120, 0.3)
    scores = held + 0.01 * made.ar1(np.random.default_rng(8), 12, 0.0)
    found = next(finding for finding in diagnose(made.run(table, scores)) if finding.fault == "saturated")
    assert found.present
    assert found.remedy.startswith("print the prompts of a late batch") == few


def verl(mean: float, **settings: object) -> dict[str, Status]:
    """A log without dead groups: least, largest and mean reward of each batch."""
    table = made.healthy()
    del table["dead_fraction"], table["reward_std"]
    table["reward"] = mean + 0.003 * made.ar1(np.random.default_rng(8), 120, 0.6)
    table |= {"reward_min": np.zeros(120), "reward_max": np.ones(120)}
    return {f.fault: f.status for f in diagnose(made.run(table, **settings))}


def test_saturation_without_dead_groups_is_what_is_left_to_gain() -> None:
    """p^G passes the limit of 0.85 above 0.98 for G = 8; above 0.97 nothing much is left in groups of any size."""
    assert verl(0.99, group=8)["saturated"] == "present"
    assert verl(0.978, group=8)["saturated"] == "present"
    assert verl(0.978, group=64)["saturated"] == "present"
    assert verl(0.978)["saturated"] == "present"
    assert verl(0.96, group=8)["saturated"] == "cannot tell"
    assert verl(0.01, group=8)["starved"] == "present"
    assert verl(0.025, group=8)["starved"] == "present"  # no gain is shown, and over half of the groups are dead
    assert verl(0.1, group=8)["starved"] == "cannot tell"
    assert verl(0.01, group=8)["saturated"] == "cannot tell"


def test_ceilings_of_rewards_that_are_not_binary_are_not_known() -> None:
    table = made.healthy()
    del table["dead_fraction"]
    table["reward"] = 0.978 + 0.003 * made.ar1(np.random.default_rng(8), 120, 0.6)
    table |= {"reward_min": np.full(120, 0.1), "reward_max": np.ones(120)}
    found = next(f for f in diagnose(made.run(table, group=8)) if f.fault == "saturated")
    assert found.status == "cannot tell"


@pytest.mark.parametrize(("reward", "heldout", "mode"), [
    (np.linspace(0.6, 0.1, 120), None, "dead after a fall"),
    (np.full(120, 0.1), np.linspace(0.6, 0.1, 12), "starved"),
])  # fmt: skip
def test_dead_after_a_fall_is_said_of_a_fall_of_the_reward(
    reward: np.ndarray, heldout: np.ndarray | None, mode: str
) -> None:
    table = made.healthy()
    table["reward"] = reward + 0.005 * made.ar1(np.random.default_rng(6), 120, 0.3)
    table["dead_fraction"] = np.linspace(0.2, 0.98, 120)
    found = {finding.fault for finding in diagnose(made.run(table, heldout)) if finding.status == "present"}
    assert found & {"starved", "dead after a fall"} == {mode}


@pytest.mark.parametrize(("first", "said"), [(0.97, True), (0.6, False)])
def test_groups_are_said_to_have_been_all_right_only_where_they_were(first: float, said: bool) -> None:
    """Dead throughout, at first for want of a wrong answer or for another reason; the reward is lost."""
    table = made.healthy()
    table["reward"] = np.clip(
        np.linspace(first, 0.02, 120) + 0.005 * made.ar1(np.random.default_rng(6), 120, 0.3), 0, 1
    )
    table["reward"][:30] = first
    table["dead_fraction"] = np.full(120, 0.97)
    dead = [one for one in diagnose(made.run(table)) if one.fault in ("starved", "dead after a fall")]
    assert ["all answers were right" in one.because for one in dead] == [said]


def test_rows_that_are_single_rollouts_prove_no_dead_groups() -> None:
    """Rewards of 0 or 1, one a row: each is the least or the largest of all, and says nothing of a group."""
    rows = {"reward": np.random.default_rng(4).integers(0, 2, 200).astype(float)}
    assert not {"starved", "saturated"} & {f.fault for f in diagnose(made.run(rows)) if f.present}
    rows["reward"][:] = 0.0
    assert "starved" in {f.fault for f in diagnose(made.run(rows)) if f.present}


def test_means_that_are_0_or_one_paid_rollout_of_32_are_of_groups() -> None:
    rows = {"reward": np.where(np.arange(200) % 20 == 7, 1 / 32, 0.0)}
    assert "starved" in {f.fault for f in diagnose(made.run(rows)) if f.present}
