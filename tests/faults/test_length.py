"""The rule of length: what it flags, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import synthetic_series as made
from synthetic_series import Columns, U, flagged

from grposcope.faults.judge import explains
from grposcope.instruments.diagnosis import diagnose


def test_lengths_that_shrink_to_a_stub_within_a_few_rows() -> None:
    table = {name: column[:60] for name, column in made.healthy().items()}
    table["length"] = table["length"] * 0.02 ** np.clip((np.arange(60) - 32) / 7, 0, 1)
    finding = next(f for f in diagnose(made.run(table)) if f.fault == "length")
    assert finding.status == "present"
    assert finding.onset is not None
    assert 28 <= finding.onset <= 40


def test_longer_completions_that_pay_are_not_flagged() -> None:
    table = made.healthy()
    table["length"] = table["length"] * 3**U
    assert "length" not in flagged(table)
    table["reward"] = table["reward"] - 0.4 * U
    assert "length" in flagged(table)


def test_longer_completions_with_a_held_out_score_that_rose_are_not_flagged() -> None:
    """As under a curriculum: prompts become harder, so that the training reward falls and answers are longer."""
    table = made.healthy()
    table["length"], table["reward"] = table["length"] * 3**U, table["reward"] - 0.4 * U
    assert "length" in flagged(table)
    assert "length" not in flagged(table, np.linspace(0.3, 0.6, 12))
    assert "length" in flagged(table, np.full(12, 0.3) + 0.01 * np.random.default_rng(0).normal(size=12))


def dying(grown: int, dead: int, cut: float = 0.98) -> Columns:
    """Completions grow around one row, reach the limit, groups die around `dead`; rewards end at 0.9."""
    table, rng = made.healthy(), np.random.default_rng(9)
    late = [1 / (1 + np.exp(-(np.arange(120) - row) / 2)) for row in (grown, dead, grown)]
    table["length"] = table["length"] * (1 + 0.8 * late[0])
    table["truncated"] = np.clip(cut * late[2] + 0.005 * rng.normal(size=120), 0, 1)
    table["dead_fraction"] = np.clip(0.98 * late[1] + 0.01 * rng.normal(size=120), 0, 1)
    table["reward"] = 0.5 + 0.4 * late[1] + 0.02 * rng.normal(size=120)
    return table


def explained(table: Columns) -> bool:
    """Whether length is flagged as what the dead groups follow from."""
    findings = {f.fault: f for f in diagnose(made.run(table)) if f.status == "present"}
    assert {"length", "saturated"} <= set(findings)
    return explains(findings["length"], findings["saturated"])


def test_length_stands_before_dead_groups_that_it_explains() -> None:
    """All completions are cut and so paid alike; but not where groups died first, or few are cut and none longer."""
    assert explained(dying(30, 50))
    assert not explained(dying(70, 50))
    few = dying(30, 50, cut=0.4)
    few["length"] = made.healthy()["length"]
    assert not explained(few)
    findings = diagnose(made.run(dying(30, 50)))
    assert findings[0].explains == ("saturated", "starved", "constant reward", "empty steps", "never paid")
    assert findings[0].onset is not None
    assert 20 <= findings[0].onset <= 42


def test_a_kl_penalty_that_short_answers_pay_less_of_is_named() -> None:
    table = {name: column[:60] for name, column in made.healthy().items()}
    fall = np.clip((np.arange(60) - 32) / 7, 0, 1)
    table["length"] = table["length"] * 0.02**fall
    table["reward"] = table["reward"] - 0.3 * fall
    advice = next(f for f in diagnose(made.run(table)) if f.fault == "length").remedy
    assert advice.startswith("read the late completions")
    table["reward_after_kl"] = table["reward"] - 10 * (1 - fall)
    advice = next(f for f in diagnose(made.run(table)) if f.fault == "length").remedy
    assert advice.startswith("lower the coefficient of the KL penalty in the reward")


def test_where_no_completion_ever_ended_the_end_token_is_asked_for() -> None:
    for cut, asks in ((np.ones(120), True), (np.arange(120) / 119, False)):
        found = {one.fault: one for one in diagnose(made.run(made.healthy() | {"truncated": cut}))}
        assert ("eos_token_id" in found["length"].remedy) is asks
