"""The rule of reward hacking: what it flags, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import synthetic_series as made
from synthetic_series import U, flagged

from grposcope.instruments.diagnosis import diagnose
from grposcope.logs import read
from grposcope.signs.quantities import Quantities
from grposcope.signs.reward_parts import unweighted


def test_hacking_needs_a_rise_that_is_not_followed() -> None:
    table = made.healthy()
    assert "reward hacking" in flagged(table, 0.5 - 0.3 * np.linspace(0, 1, 12))
    table["reward"] -= 0.4 * U  # nothing rises, nothing is gamed
    assert "reward hacking" not in flagged(table, 0.5 - 0.3 * np.linspace(0, 1, 12))


def test_hacking_without_evaluation_shows_in_components_or_cannot_be_told() -> None:
    table = made.healthy()
    found = {f.fault: f for f in diagnose(made.run(table))}
    assert found["reward hacking"].status == "cannot tell"
    assert found["reward hacking"].missing == ("evaluation",)
    few = {f.fault: f for f in diagnose(made.run(table, np.array([0.2, 0.4])))}
    assert few["reward hacking"].because == "too few held-out evaluations for a trend: 4 are needed"
    noise = 0.02 * made.ar1(np.random.default_rng(1), 120, 0.3)
    table["component/answer"], table["component/format"] = 0.3 - 0.25 * U + noise, 0.65 * U
    table["reward"] = table["component/answer"] + table["component/format"]
    assert "reward hacking" in flagged(table)


def test_a_component_without_weight_that_does_not_follow_is_hacking() -> None:
    """The proxy is the reward; the true score is logged beside it."""
    table = made.healthy()
    table["component/proxy"] = table["reward"]
    true = 0.1 + 0.01 * made.ar1(np.random.default_rng(2), 120, 0.3)
    table["component/true"] = true
    assert "reward hacking" in flagged(table)
    table["component/true"] = true + 0.3 * U  # it follows
    assert "reward hacking" not in flagged(table)
    table["component/true"] = true + 0.85  # it has no room to
    assert "reward hacking" not in flagged(table)


def test_weights_of_components_are_proved_or_nothing_is() -> None:
    rng = np.random.default_rng(3)
    table = made.healthy()
    a, b, c = (0.5 + 0.1 * rng.normal(size=120) for _ in range(3))
    table |= {"component/a": a, "component/b": b, "component/c": c, "reward": 2 * a - 0.5 * b}

    def idle() -> set[str]:
        quantities = Quantities(made.run(table))
        reward = quantities.get("reward")
        assert reward is not None
        return set(unweighted(quantities, reward))

    assert idle() == {"c"}
    table["reward"] = table["reward"] + 0.05 * rng.normal(size=120)
    assert idle() == set()
    table["reward"] = b.copy()
    assert idle() == {"a", "c"}


def test_a_component_without_weight_may_fall_with_the_reward() -> None:
    table = made.healthy()
    table["reward"] = table["component/proxy"] = table["reward"] - 0.5 * U
    table["component/true"] = 0.5 - 0.4 * U + 0.01 * made.ar1(np.random.default_rng(5), 120, 0.3)
    assert "reward hacking" not in flagged(table)


@pytest.mark.slow
def test_right_answers_are_traded_for_another_part(tmp_path: Path) -> None:
    """Whatever the sum of the parts does; a part that sinks beside it, or answers that stay, are no trade."""

    def hacked(seed: int, answers: float, style: float) -> bool:
        rng, k = np.random.default_rng(seed), np.arange(160)
        right = 0.4 * (1 - (1 - answers) * np.minimum(1, k / 60)) + 0.015 * rng.normal(size=160)
        written = 0.5 + style * k / 160 + 0.02 * rng.normal(size=160)
        rows = [
            {"step": int(i) + 1, "reward": float(right[i] + written[i]), "rewards/answer/mean": float(right[i]),
             "rewards/style/mean": float(written[i]), "reward_std": 0.3, "loss": 0.01}
            for i in k
        ]  # fmt: skip
        (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return any(one.present and one.fault == "reward hacking" for one in diagnose(read(tmp_path / "log.jsonl")))

    assert all(hacked(seed, 0.0, 0.5) for seed in range(6))
    assert not any(hacked(seed, 1.0, 0.0) or hacked(seed, 0.0, -0.2) for seed in range(6))
