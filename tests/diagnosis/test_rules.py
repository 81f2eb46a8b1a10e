"""Each failure put into a healthy run is found under its name, and the healthy run has none."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from grposcope.diagnosis import diagnose
from grposcope.diagnosis.diagnose import ORDER, RULES, holm
from grposcope.diagnosis.missing import HOW
from grposcope.diagnosis.verdict import sentence

from . import made

Table = dict[str, np.ndarray]
U = np.arange(120) / 120


def flagged(table: Table, accuracy: np.ndarray | None = None, **settings: object) -> list[str]:
    return [f.mode for f in diagnose(made.run(table, accuracy, **settings)) if f.status == "flagged"]


def test_healthy_has_no_flag_and_says_so() -> None:
    run = made.run(made.healthy(), np.linspace(0.3, 0.6, 12))
    findings = diagnose(run)
    assert not [f.mode for f in findings if f.status == "flagged"]
    assert sentence(run, findings).startswith("healthy: reward went from 0.3")
    assert {f.mode for f in findings if f.status == "cannot tell"} == {"cancelling components"}


def spikes(t: Table) -> None:
    t["grad_norm"][[50, 70, 90]] *= 12


def infinite(t: Table) -> None:
    t["loss"][60] = math.inf


def lost(t: Table) -> None:
    t["grad_norm"][[60, 75]] = math.nan


def zero(t: Table) -> None:
    t["grad_norm"][:] = 0.0
    t["loss"][:] = 0.0
    t["dead_fraction"][:] = 1.0
    t["reward"][:] = 0.0


CASES: dict[str, Callable[[Table], object]] = {
    "entropy collapse": lambda t: t.update(entropy=t["entropy"] * np.exp(-4 * U)),
    "entropy explosion": lambda t: t.update(entropy=t["entropy"] * np.exp(3 * U)),
    "kl blow-up": lambda t: t.update(kl=t["kl"] * np.exp(8 * np.maximum(U - 0.5, 0) / 0.5)),
    "length": lambda t: t.update(truncated=np.clip(t["truncated"] + 0.8 * U, 0, 1)),
    "saturated": lambda t: t.update(
        reward=0.97 + 0.1 * (t["reward"] - 0.5) * (1 - U), dead_fraction=np.clip(t["dead_fraction"] + 0.88, 0, 1)
    ),
    "starved": zero,
    "zero loss": zero,
    "gradient spikes": spikes,
    "gradient explosion": lambda t: t.update(grad_norm=t["grad_norm"] * np.exp(4 * U)),
    "non-finite": infinite,
    "clip saturation": lambda t: t.update(clip_fraction=t["clip_fraction"] + 0.5),
    "reward decline": lambda t: t.update(reward=t["reward"] - 0.9 * U),
    "no learning": lambda t: t.update(reward=0.4 + 0.2 * (t["reward"] - 0.3 - 0.4 * U)),
    "oscillation": lambda t: t.update(reward=t["reward"] + 0.15 * np.sin(2 * np.pi * 6 * U)),
    "growing oscillation": lambda t: t.update(
        reward=t["reward"] + 0.25 * np.exp(3 * (U - 1)) * np.sin(2 * np.pi * 6 * U)
    ),
}


@pytest.mark.parametrize("mode", CASES)
def test_a_failure_is_found_under_its_name(mode: str) -> None:
    table = made.healthy()
    CASES[mode](table)
    assert mode in flagged(table)


def test_a_lost_gradient_counts_only_in_whole_rows() -> None:
    table = made.healthy()
    lost(table)
    assert "non-finite" in flagged(table)
    for column in table.values():
        column[[60, 75]] = math.nan
    assert "non-finite" not in flagged(table)


def test_hacking_needs_a_rise_that_is_not_followed() -> None:
    table = made.healthy()
    assert "reward hacking" in flagged(table, 0.5 - 0.3 * np.linspace(0, 1, 12))
    table["reward"] -= 0.4 * U  # nothing rises, nothing is gamed
    assert "reward hacking" not in flagged(table, 0.5 - 0.3 * np.linspace(0, 1, 12))


def test_hacking_without_evaluation_shows_in_components_or_cannot_be_told() -> None:
    table = made.healthy()
    found = {f.mode: f for f in diagnose(made.run(table))}
    assert found["reward hacking"].status == "cannot tell"
    assert found["reward hacking"].missing == ("evaluation",)
    noise = 0.02 * made.ar1(np.random.default_rng(1), 120, 0.3)
    table["component/answer"], table["component/format"] = 0.3 - 0.25 * U + noise, 0.65 * U
    table["reward"] = table["component/answer"] + table["component/format"]
    assert "reward hacking" in flagged(table)


def test_cancelling_components() -> None:
    table = made.healthy()
    for name in ("a", "b"):
        table[f"component/{name}"], table[f"component_std/{name}"] = np.full(120, 0.5), np.full(120, 0.4)
    assert "cancelling components" not in flagged(table)
    table["reward_std"] = np.full(120, 0.01)
    assert "cancelling components" in flagged(table)


def test_groups_of_one_by_setting_or_by_advantages() -> None:
    table = made.healthy()
    assert flagged(table, group=1)[0] == "misconfiguration"
    table["advantage_max"] = table["reward_max"] = np.ones(120)
    table["advantage_min"] = table["reward_min"] = np.zeros(120)
    assert flagged(table)[0] == "misconfiguration"
    table["advantage_max"] = np.full(120, 1.6)
    assert "misconfiguration" not in flagged(table)


def test_zero_loss_with_a_gradient_is_explained_not_flagged() -> None:
    finding = next(f for f in diagnose(made.run(made.healthy())) if f.mode == "zero loss")
    assert finding.status == "ok"
    assert "by construction" in finding.because


def test_missing_metrics_are_named_with_a_way_to_log_them() -> None:
    findings = diagnose(made.run({"reward": made.healthy()["reward"]}))
    untold = [f for f in findings if f.status == "cannot tell"]
    assert {"entropy collapse", "kl blow-up", "length", "gradient spikes"} <= {f.mode for f in untold}
    assert {name for f in untold for name in f.missing} <= HOW.keys()


def test_short_runs_cannot_be_told() -> None:
    run = made.run({name: column[:12] for name, column in made.healthy().items()})
    assert sentence(run, diagnose(run)) == "cannot tell: 12 rows of reward are fewer than 30"


def test_holm() -> None:
    assert holm([0.01, 0.04, math.nan, 0.03])[:2] == pytest.approx([0.03, 0.06])
    assert math.isnan(holm([math.nan])[0])


def test_every_rule_has_its_place_and_its_words() -> None:
    for rule in RULES:
        assert rule.mode in ORDER
        assert all((rule.statistic, rule.threshold, rule.source, rule.advice))
