"""The rule of a constant reward: what it says of single rollouts, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic_series as made

from grposcope.core.finding import Finding
from grposcope.instruments.diagnosis import diagnose


def found(reward: np.ndarray, spread: float | None = None) -> Finding:
    """What the rule says of a reward (120,) with this spread within groups."""
    table = made.healthy() | {"reward": reward}
    del table["reward_std"]
    if spread is not None:
        table["reward_std"] = np.full(120, spread)
    return next(finding for finding in diagnose(made.run(table)) if finding.fault == "constant reward")


def test_a_reward_that_is_0_in_every_row_was_never_paid() -> None:
    table = {name: column for name, column in made.healthy().items() if name != "reward_std"}
    present = {one.fault: one for one in diagnose(made.run(table | {"reward": np.zeros(120)})) if one.present}
    assert "constant reward" not in present
    assert present["never paid"].grade == "failing"
    assert "97% of completions end before the limit" in present["never paid"].because
    assert "by hand on a right answer" in present["never paid"].remedy


@pytest.mark.parametrize(("level", "spread"), [(0.4, 0.0)])
def test_every_rollout_is_paid_the_same_where_it_cannot_be_otherwise(level: float, spread: float | None) -> None:
    finding = found(np.full(120, level), spread)
    assert (finding.status, finding.grade) == ("present", "failing")
    assert finding.because == f"every rollout has a reward of exactly {level:g} in all 120 steps"


@pytest.mark.parametrize("spread", [None, 0.3])
def test_of_a_mean_in_between_nothing_is_said_of_single_rollouts(spread: float | None) -> None:
    finding = found(np.full(120, 0.4), spread)
    assert finding.status == "present"
    assert finding.because == "the reward is exactly 0.4 in all 120 steps"


def test_a_reward_that_varies_up_to_the_end_is_not_constant() -> None:
    assert found(np.where(np.arange(120) == 115, 0.5, 0.4)).status == "excluded"


def test_a_reward_that_came_to_stand_at_its_highest_is_a_note_and_one_that_always_did_a_warning() -> None:
    """All solved, or a grader that pays everything: where no rollout was ever paid less, nothing was to be learned."""
    assert found(np.minimum(1, 0.4 + np.arange(120) / 100)).grade == "note"
    assert found(np.ones(120)).grade == "warning"


def test_one_of_many_parts_that_is_never_paid_only_warns() -> None:
    """It may be a penalty that nothing incurs; right answers that are never paid are another matter."""
    flat = made.healthy() | {"reward": 0.4 + 0.02 * np.random.default_rng(0).standard_normal(120)}
    others = {f"component/{name}": made.healthy()["reward"] for name in ("form", "phase", "tone")}
    for name, grade in (("component/politeness", "warning"), ("component/correct_answer", "failing")):
        findings = diagnose(made.run(flat | others | {name: np.zeros(120)}))
        assert next(one for one in findings if one.fault == "never paid").grade == grade


def test_a_kl_of_exactly_0_excludes_nothing() -> None:
    findings = {one.fault: one for one in diagnose(made.run(made.healthy() | {"kl": np.zeros(120)}))}
    for fault in ("kl blow-up", "high learning rate", "weights lost at a restart", "low learning rate"):
        assert findings[fault].status == "cannot tell", fault
