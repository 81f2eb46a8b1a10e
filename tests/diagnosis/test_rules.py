"""Each failure put into a healthy run is found under its name, and the healthy run has none."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import synthetic_series as made
from grposcope.diagnosis import diagnose
from grposcope.diagnosis.diagnose import holm
from grposcope.diagnosis.findings import Status
from grposcope.diagnosis.how_to_log import HOW
from grposcope.diagnosis.quantities import MetricSeries, Quantities
from grposcope.diagnosis.rules import RULES, minor_modes
from grposcope.diagnosis.rules.reward_hacking import unweighted
from grposcope.facts.diagnosis import verdict
from grposcope.timeseries import periodogram
from timeseries.test_spectral_peak import drifting

Table = dict[str, np.ndarray]
U = np.arange(120) / 120


def flagged(table: Table, accuracy: np.ndarray | None = None, **settings: object) -> list[str]:
    return [f.mode for f in diagnose(made.run(table, accuracy, **settings)) if f.status == "flagged"]


def test_healthy_has_no_flag_and_says_so() -> None:
    run = made.run(made.healthy(), np.linspace(0.3, 0.6, 12))
    findings = diagnose(run)
    assert not [f.mode for f in findings if f.status == "flagged"]
    assert str(verdict(run, findings)).startswith("healthy: training reward rose from 0.3")
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
    few = {f.mode: f for f in diagnose(made.run(table, np.array([0.2, 0.4])))}
    assert few["reward hacking"].because == "too few held-out evaluations to tell a trend: 4 are needed"
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


def test_lengths_that_shrink_to_a_stub_within_a_few_rows() -> None:
    table = {name: column[:60] for name, column in made.healthy().items()}
    table["length"] = table["length"] * 0.02 ** np.clip((np.arange(60) - 32) / 7, 0, 1)
    finding = next(f for f in diagnose(made.run(table)) if f.mode == "length")
    assert finding.status == "flagged"
    assert "a stub" in finding.because
    assert finding.onset is not None
    assert 28 <= finding.onset <= 40


def test_longer_completions_that_pay_are_not_flagged() -> None:
    table = made.healthy()
    table["length"] = table["length"] * 3**U
    assert "length" not in flagged(table)
    table["reward"] = table["reward"] - 0.4 * U
    assert "length" in flagged(table)


@pytest.mark.parametrize("mode", ["kl blow-up", "entropy collapse", "clip saturation", "gradient explosion"])
def test_levels_short_of_the_limit_are_not_flagged(mode: str) -> None:
    """Half of what is needed, however sure."""
    table = made.healthy()
    table |= {
        "kl": np.linspace(0.1, 0.45, 120), "entropy": np.linspace(0.8, 0.2, 120),
        "clip_fraction": np.full(120, 0.25), "grad_norm": np.geomspace(0.5, 2.0, 120),
    }  # fmt: skip
    assert mode not in flagged(table)


def test_a_small_but_clear_rise_is_learning() -> None:
    table = made.healthy()
    table["reward"] = 0.4 + 0.06 * U + 0.002 * made.ar1(np.random.default_rng(4), 120, 0.0)
    finding = next(f for f in diagnose(made.run(table)) if f.mode == "no learning")
    assert finding.status == "ok"
    assert "more than noise" in finding.because


@pytest.mark.parametrize(("level", "mode", "other"), [(0.03, "starved", "saturated"), (0.97, "saturated", "starved")])
def test_dead_groups_are_starved_or_saturated_by_the_reward(level: float, mode: str, other: str) -> None:
    table = made.healthy()
    table["reward"] = level + 0.005 * made.ar1(np.random.default_rng(6), 120, 0.3)
    table["dead_fraction"] = 0.95 + 0.01 * made.ar1(np.random.default_rng(7), 120, 0.3)
    found = flagged(table)
    assert mode in found
    assert other not in found


def test_a_fall_is_no_standstill() -> None:
    table = made.healthy()
    table["reward"] = table["reward"] - 0.9 * U
    finding = next(f for f in diagnose(made.run(table)) if f.mode == "no learning")
    assert finding.status == "ok"
    assert finding.p > 0.5


def test_levels_are_told_of_short_runs() -> None:
    """Twenty rows are too few to judge changes, but not where the run is."""
    table = {name: column[:20] for name, column in made.healthy().items()}
    table["truncated"] = np.full(20, 0.9)
    findings = diagnose(made.run(table))
    assert [f.mode for f in findings if f.status == "flagged"] == ["length"]
    assert next(f for f in findings if f.mode == "reward decline").status == "cannot tell"


def verl(mean: float, **settings: object) -> dict[str, Status]:
    """A log without dead groups: least, largest and mean reward of each batch."""
    table = made.healthy()
    del table["dead_fraction"], table["reward_std"]
    table["reward"] = mean + 0.003 * made.ar1(np.random.default_rng(8), 120, 0.6)
    table |= {"reward_min": np.zeros(120), "reward_max": np.ones(120)}
    return {f.mode: f.status for f in diagnose(made.run(table, **settings))}


def test_saturation_without_dead_groups_is_what_is_left_to_gain() -> None:
    """p^G passes the limit of 0.85 above 0.98 for G = 8; above 0.97 nothing much is left in groups of any size."""
    assert verl(0.99, group=8)["saturated"] == "flagged"
    assert verl(0.978, group=8)["saturated"] == "flagged"
    assert verl(0.978, group=64)["saturated"] == "flagged"
    assert verl(0.978)["saturated"] == "flagged"
    assert verl(0.96, group=8)["saturated"] == "cannot tell"
    assert verl(0.01, group=8)["starved"] == "flagged"
    assert verl(0.025, group=8)["starved"] == "cannot tell"
    assert verl(0.01, group=8)["saturated"] == "cannot tell"


def test_ceilings_of_rewards_that_are_not_binary_are_not_known() -> None:
    table = made.healthy()
    del table["dead_fraction"]
    table["reward"] = 0.978 + 0.003 * made.ar1(np.random.default_rng(8), 120, 0.6)
    table |= {"reward_min": np.full(120, 0.1), "reward_max": np.ones(120)}
    found = next(f for f in diagnose(made.run(table, group=8)) if f.mode == "saturated")
    assert found.status == "cannot tell"


def dying(grown: int, dead: int, cut: float = 0.98, lag: int = 0) -> Table:
    """Completions grow around one row, reach the limit `lag` later, groups die around `dead`; rewards end at 0.9."""
    table, rng = made.healthy(), np.random.default_rng(9)
    late = [1 / (1 + np.exp(-(np.arange(120) - row) / 2)) for row in (grown, dead, grown + lag)]
    table["length"] = table["length"] * (1 + 0.8 * late[0])
    table["truncated"] = np.clip(cut * late[2] + 0.005 * rng.normal(size=120), 0, 1)
    table["dead_fraction"] = np.clip(0.98 * late[1] + 0.01 * rng.normal(size=120), 0, 1)
    table["reward"] = 0.5 + 0.4 * late[1] + 0.02 * rng.normal(size=120)
    return table


def test_length_stands_before_dead_groups_that_it_explains() -> None:
    """All completions are cut and so paid alike; but not where groups died first, or few are cut and none longer."""
    assert flagged(dying(30, 50))[:2] == ["length", "saturated"]
    assert flagged(dying(30, 40, lag=20))[:2] == ["length", "saturated"]
    assert flagged(dying(70, 50))[:2] == ["saturated", "length"]
    few = dying(30, 50, cut=0.4)
    few["length"] = made.healthy()["length"]
    assert flagged(few)[:2] == ["saturated", "length"]
    findings = diagnose(made.run(dying(30, 50)))
    assert findings[0].explains == ("saturated", "starved")
    assert findings[0].onset is not None
    assert 20 <= findings[0].onset <= 32


def test_an_outlier_is_no_onset() -> None:
    values = np.full(100, 0.1)
    values[60:] = 0.95
    values[[20, 40]] = 1.0
    series = MetricSeries("dead_fraction", np.arange(1.0, 101), values)
    assert series.first_above(0.85) == 61
    assert series.first_above(0.99) is None
    slow = MetricSeries("x", np.arange(1.0, 31), np.random.default_rng(0).random(30))
    running = [min(np.cumsum(slow.values[i:]) / np.arange(1, 31 - i)) for i in range(30)]
    assert slow.first_above(0.3) == 1 + next(i for i, least in enumerate(running) if least > 0.3)


def test_swings_without_a_period_are_oscillation() -> None:
    """No sinusoid follows them; and a late level shift does not hide them."""
    table = made.healthy()
    wave = drifting(np.random.default_rng(7), 120, 10, 0.3)
    table["reward"] = table["reward"] + 0.12 * wave + 0.2 * (U > 0.7)
    finding = next(f for f in diagnose(made.run(table)) if f.status == "flagged")
    assert finding.mode == "oscillation"
    sine = periodogram.oscillation(table["reward"])
    assert sine is not None
    assert finding.p < 1e-3 * sine.p


def test_swings_that_fade_are_not_flagged() -> None:
    table = made.healthy()
    table["reward"] = table["reward"] + 0.4 * np.sin(2 * np.pi * 6 * U) * np.exp(-2 * U)
    assert not {"oscillation", "growing oscillation"} & set(flagged(table))


def test_steady_swings_do_not_grow() -> None:
    """Small ones, so that the growth is not known well."""
    for seed in range(6):
        table = made.healthy(seed)
        table["reward"] = table["reward"] + 0.06 * np.sin(2 * np.pi * 6 * U)
        assert "growing oscillation" not in flagged(table)


def test_what_is_proved_is_not_counted_among_the_tests() -> None:
    """Holm's factor is the number of rules that can err."""
    table = made.healthy()
    table["reward"] = table["reward"] + 0.05 * np.sin(2 * np.pi * 6 * U)
    findings = diagnose(made.run(table, np.linspace(0.3, 0.6, 12)))
    tested = [f for f in findings if not math.isnan(f.p) and f.mode not in ("misconfiguration", "non-finite")]
    least = min(tested, key=lambda f: f.p)
    assert 0 < least.p < 1 / len(tested)
    assert least.adjusted == pytest.approx(least.p * len(tested))


@pytest.mark.parametrize(("ends", "found"), [((0.6, 0.7), False), ((1e-3, 0.2), False), ((0.05, 3), True)])
def test_kl_must_be_far_and_steep(ends: tuple[float, float], found: bool) -> None:
    table = made.healthy()
    table["kl"] = np.where(U < 0.6, *ends)
    assert ("kl blow-up" in flagged(table)) == found


def test_a_component_without_weight_may_fall_with_the_reward() -> None:
    table = made.healthy()
    table["reward"] = table["component/proxy"] = table["reward"] - 0.5 * U
    table["component/true"] = 0.5 - 0.4 * U + 0.01 * made.ar1(np.random.default_rng(5), 120, 0.3)
    assert "reward hacking" not in flagged(table)


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
    assert str(verdict(run, diagnose(run))) == "cannot tell: 12 rows of reward are fewer than 30"


def test_holm() -> None:
    assert holm([0.01, 0.04, math.nan, 0.03])[:2] == pytest.approx([0.03, 0.06])
    assert math.isnan(holm([math.nan])[0])


def test_every_rule_has_its_place_and_its_words() -> None:
    for rule in RULES.values():
        assert RULES[rule.mode] is rule
        assert all((rule.statistic, rule.threshold, rule.source, rule.advice))
    assert minor_modes() == {"no learning", "zero loss"}
