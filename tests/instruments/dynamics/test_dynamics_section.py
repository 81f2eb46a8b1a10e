"""The section on where the reward is going: its numbers against the room of dynamics, its words, its silences."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic

from grposcope.core.answer import Answer
from grposcope.core.errors import UserError
from grposcope.instruments import ask, instrument
from grposcope.instruments.dynamics import fit, refresh
from grposcope.instruments.dynamics import forecast_figures as charts
from grposcope.instruments.dynamics.forecast_answer import _numbers as numbers
from grposcope.instruments.dynamics.forecast_answer import _plateau_sentence
from grposcope.instruments.dynamics.forecast_answer import _sentence as sentence
from grposcope.instruments.dynamics.forecast_summary import _reward_limits, _summarize, of_run
from grposcope.instruments.dynamics.oscillator import Oscillator
from grposcope.instruments.dynamics.reward_range import RewardRange
from grposcope.instruments.dynamics.stability import _adam_step, update_rule
from grposcope.logs import Run, read
from grposcope.render.charts import export

T = np.arange(1.0, 201.0)
RISE = 0.8 - 0.6 * np.exp(-T / 25) + 0.03 * np.random.default_rng(0).standard_normal(200)


def folder(path: Path, reward: Any = RISE, steps: Any = None, lr: float = 0.1, **settings: Any) -> Run:
    """A run of SGD with β = 0.5 whose reward, if RISE, has time constant 25: κ = 0.5/(0.1·25) = 0.2."""
    path.mkdir(parents=True, exist_ok=True)
    settings = {"momentum": 0.5, "interval": 1, "optimizer": "sgd", **settings}
    config = {"format": 2, "settings": settings, "lr": lr, "model": {"parameters": 100}}
    (path / "config.json").write_text(json.dumps(config))
    steps = range(1, len(reward) + 1) if steps is None else steps
    rows = [{"step": int(t), "reward": float(r), "grad_norm": 0.5} for t, r in zip(steps, reward, strict=True)]
    (path / "steps.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return read(path)


def said(*runs: Run, name: str = "forecast") -> Answer | None:
    """The answer of an instrument about these runs."""
    return next(iter(ask(instrument(name), runs)), None)


def test_numbers_are_those_of_the_room(tmp_path: Path) -> None:
    found = said(folder(tmp_path / "a"))
    assert found is not None
    told = found.document["a"]
    ahead = fit.forecast(T, RISE, 99.5)
    assert told["n"] == 200
    assert told["forecast"]["mean"] == pytest.approx(ahead.mean[-1])
    assert told["forecast"]["low"] == pytest.approx(ahead.low[-1])
    assert told["forecast"]["change"].value == pytest.approx(ahead.change.value)
    fitted, ceiling = fit.fit(T, RISE, "inertial"), fit.noise_ceiling(T, RISE).value
    assert told["ceiling"] == ceiling
    assert told["models"]["inertial"]["explained"] == fitted.r2 / ceiling
    assert told["models"]["inertial"]["parameters"] == fitted.parameters
    assert [figure.name for figure in found.figures] == ["forecast", "portrait"]
    (table,) = found.tables
    assert [row[0] for row in table.rows] == [*told["models"]] == ["exponential", "inertial"]


def test_the_first_sentence_says_what_is_expected(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    rising = _summarize(T, 0.05 * T + 0.02 * random.standard_normal(200), horizon=9)
    assert rising.ahead.verdict == "rising"
    ahead = rising.ahead
    low, high = ahead.change_between
    assert sentence(rising) == (
        f"Rising: over 9 more steps the level, now {ahead.level.value:.3g}, is expected to change by "
        f"+{ahead.change.value:.3g} (+{low:.3g} to +{high:.3g})."
    )
    falling = _summarize(T, 10 - 0.05 * T + 0.02 * random.standard_normal(200), horizon=9)
    assert sentence(falling).startswith("Declining: over 9 more steps")
    walk = _summarize(T[:60], np.cumsum(random.standard_normal(60)))
    assert sentence(walk).startswith(
        "Cannot tell whether the reward will rise or fall: over 30 more steps its level, now"
    )
    noise = _summarize(T, random.standard_normal(200))
    assert sentence(noise).startswith("Flat: ")
    assert "less than the noise of a step" in sentence(noise)
    assert "cannot tell" in _plateau_sentence(noise)
    found = said(folder(tmp_path / "flat", np.full(60, 0.5)))
    assert found is not None
    assert found.sentence.startswith("The reward is constant")
    assert found.document["flat"]["forecast"]["verdict"] == "cannot tell"


def test_a_plateau_is_one_that_the_forecast_expects() -> None:
    quiet = _summarize(T, RISE)
    assert quiet.plateau.value == pytest.approx(0.8, abs=0.02)
    assert _plateau_sentence(quiet).startswith("Plateau of the best-fitting curve: 0.79"), "flat: the level is there"
    low, high = quiet.ahead.change_between
    assert low < quiet.plateau.value - quiet.ahead.level.value < high
    torn = _summarize(T, np.where(T < 170, RISE, RISE - 0.6))
    assert math.isnan(torn.plateau.value)
    assert "cannot tell" in _plateau_sentence(torn)


def test_the_range_is_that_of_the_settings_or_of_what_was_logged(tmp_path: Path) -> None:
    run = folder(tmp_path / "a", 3 * RISE - 1)
    assert _reward_limits(run) is None
    assert of_run(run, models=False).ahead.limits == RewardRange()
    known = folder(tmp_path / "b", 3 * RISE - 1, reward_low=-1, reward_high=2)
    assert of_run(known, models=False).ahead.limits == RewardRange(-1, 2)
    logged = replace(run, table={**run.table, "reward_min": np.full(200, -2.0), "reward_max": np.full(200, 2.5)})
    assert _reward_limits(logged) == RewardRange(-2.0, 2.5)
    parts = {"component/answer": RISE, "component/format": np.minimum(RISE + 0.1, 1.0)}
    summed = replace(run, table={**run.table, "reward": sum(parts.values()), **parts})
    assert _reward_limits(summed) == RewardRange(0.0, 2.0)
    assert of_run(summed, models=False).ahead.high.max() <= 2


def test_stability_of_the_run(tmp_path: Path) -> None:
    found = said(folder(tmp_path / "a", interval=3, reward=RISE), name="stability")
    assert found is not None
    told = found.document["a"]
    tau = fit.fit(T, RISE, "exponential").parameters["time_constant"]
    kappa = 0.5 / (0.1 * (tau.value + 1))  # lag (3 − 1)/2
    assert told["curvature"].value == pytest.approx(kappa, rel=1e-9)
    assert told["curvature"].se == pytest.approx(kappa * tau.se / (tau.value + 1), rel=1e-9)
    assert told["threshold"] == refresh.threshold(0.1, 0.5, kappa)
    assert told["share"] == pytest.approx(3 / told["threshold"])
    assert found.word == "told", "a bound from above is no proof of health"
    assert f"blow up beyond {told['threshold']:.0f} (" in found.sentence
    assert "grposcope stability" in found.missing[0]
    (chart,) = found.figures
    lines = chart.data["lines"]
    for pull, limit in list(zip(lines["pull"], lines["limit"], strict=True))[::10]:
        assert limit == max(refresh.threshold(1.0, 0.5, pull), 0.7)
    assert chart.data["runs"]["pull"][0] == pytest.approx(0.1 * kappa, rel=1e-4)


def test_an_unknown_curvature_still_has_a_map(tmp_path: Path) -> None:
    noise = 0.1 * np.random.default_rng(1).standard_normal(60)
    found = said(folder(tmp_path / "a", noise, interval=4), name="stability")
    assert found is not None
    assert found.word == "cannot tell"
    assert "the reward curve has no time constant" in found.sentence
    assert "grposcope stability" in found.missing[0]
    assert math.isnan(found.document["a"]["threshold"])
    (chart,) = found.figures
    assert chart.data["wanted"]["interval"] == [4]
    assert "runs" not in chart.data
    assert said(folder(tmp_path / "b", interval=None), name="stability") is None


def test_intervals_of_several_runs_are_counted_and_share_a_map(tmp_path: Path) -> None:
    runs = [folder(tmp_path / "a"), folder(tmp_path / "b", interval=300), folder(tmp_path / "c", np.full(60, 0.5))]
    found = said(*runs, name="stability")
    assert found is not None
    assert found.sentence == "Of 3 refresh intervals, 2 are stable and 1 unknown."
    assert [text.partition(":")[0] for text in found.text] == ["a", "b", "c"]
    (table,) = found.tables
    assert table.header == ("", "a", "b")
    assert found.figures[0].data["runs"]["run"] == ["a", "b"]
    assert {*found.document} == {"a", "b", "c"}


def test_the_step_of_adam_is_measured_on_clipped_gradients(tmp_path: Path) -> None:
    run = folder(tmp_path / "a", optimizer="adamw", momentum=0.9, clip_grad=0.2)
    found = update_rule(run)
    assert found.rms_gradient == pytest.approx(0.2 / 10)  # norm 0.5 held at 0.2, over 100 weights
    assert found.step == _adam_step(0.1, 0.9, found.rms_gradient)
    assert update_rule(folder(tmp_path / "b", optimizer="adam", clip_grad=None)).rms_gradient == pytest.approx(0.05)
    with pytest.raises(UserError, match="does not record its momentum"):
        update_rule(folder(tmp_path / "c", momentum=None))


def test_a_long_run_is_averaged_and_says_so(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    n = 100_003
    steps = np.arange(1.0, n + 1)
    reward = 0.8 - 0.6 * np.exp(-steps / 20_000) + 0.2 * random.standard_normal(n)
    found = _summarize(steps, reward, models=False)
    size = math.ceil(n / 1000)
    assert len(found.series.steps) == n // size
    assert found.series.reward[-1] == pytest.approx(reward[-size:].mean())
    assert found.series.steps[-1] == pytest.approx(steps[-size:].mean())
    first = size + n % size
    assert found.series.reward[0] == pytest.approx(reward[:first].mean())
    assert f"mean of {size}" in found.ahead.flag
    assert f"mean of {size}" in charts.fan([found], ["a"]).caption
    assert found.ahead.level.value == pytest.approx(0.796, abs=0.02)


def test_rewards_that_steps_share_count_once(tmp_path: Path) -> None:
    """Three optimiser steps on each batch repeat its reward; the noise between batches is what matters."""
    repeated = folder(tmp_path / "a", np.repeat(RISE[:100], 3), interval=3)
    found = said(repeated)
    assert found is not None
    assert found.document["a"]["n"] == 100
    assert "3 steps share a batch" in found.document["a"]["forecast"]["flag"]
    alone = fit.forecast(1 + 3 * np.arange(100.0), RISE[:100], 148.5)
    assert found.document["a"]["forecast"]["mean"] == pytest.approx(alone.mean[-1])


def test_several_runs_share_a_chart_and_a_table(tmp_path: Path) -> None:
    runs = [folder(tmp_path / "a"), folder(tmp_path / "b", RISE[::-1]), folder(tmp_path / "c", RISE[:5])]
    found = said(*runs)
    assert found is not None
    assert [f.name for f in found.figures] == ["forecast"]
    assert found.sentence.startswith("Of 3 reward curves, ")
    assert "1 unknown" in found.sentence or "2 unknown" in found.sentence
    assert set(found.figures[0].data["seen"]["run"]) == {"a", "b"}
    (table,) = found.tables
    assert [row[0] for row in table.rows] == ["a", "b"]
    assert any(
        t.startswith("c: cannot tell where the reward is going: a curve needs 10 points or more") for t in found.text
    )
    assert found.document["c"]["cannot_tell"].startswith("a curve needs 10 points or more")
    assert "models" not in found.document["a"]


def test_nothing_to_say_without_rewards(tmp_path: Path) -> None:
    run = folder(tmp_path / "a", np.full(30, math.nan))
    assert said(run) is None


def test_hidden_steps_are_compared(tmp_path: Path) -> None:
    found = _summarize(T, RISE, until=100, models=False)
    assert found.series.steps[-1] == 100
    assert found.ahead.steps[-1] == 200
    np.testing.assert_array_equal(found.truth[0], T[100:])
    assert found.hindsight is not None
    _, covered, error = found.hindsight
    inside = (found.ahead.low <= RISE[100:]) & (RISE[100:] <= found.ahead.high)
    assert covered == inside.mean()
    base = np.sqrt(np.mean((RISE[100:] - RISE[90:100].mean()) ** 2))
    assert error == pytest.approx(np.sqrt(np.mean((RISE[100:] - found.ahead.mean) ** 2)) / base)
    assert numbers(found)["truth"] == {"points": 100, "covered": covered, "error": error}
    assert "later" in charts.fan([found], ["a"]).data


def test_the_flow_is_that_of_the_fitted_oscillator() -> None:
    """At a point of the closed-form trajectory the drawn line points along (ṙ, r̈)."""
    truth_ = Oscillator(mass=1.0, damping=0.06, stiffness=0.004, start=0.1, plateau=0.9)
    fitted = fit.fit(T, truth_.trajectory(T - 1), "inertial")
    r, v = truth_.trajectory(30.0), truth_.velocities(30.0)
    force = -(0.06 * v + 0.004 * (r - 0.9))
    wide, tall = 1.0, 0.1  # the grid begins at (r, v)
    flow = charts._flow(fitted, np.array([r, r + wide]), np.array([v, v + tall]))
    along = (flow["to value"][0] - flow["value"][0]) / wide
    up = (flow["to rate"][0] - flow["rate"][0]) / tall
    assert math.atan2(up, along) == pytest.approx(math.atan2(force / tall, v / wide), abs=0.02)


def test_charts_can_be_drawn(tmp_path: Path) -> None:
    found = said(read(synthetic.make(tmp_path / "one", steps=60, prompts=16)))
    assert found is not None
    written = export(found.figures, tmp_path / "pictures", "svg")
    assert {path.stem for path in written} >= {"forecast", "portrait"}
    for path in written:
        text = path.read_text()
        assert "var(--" not in text
        assert text.count("<path") > 10
