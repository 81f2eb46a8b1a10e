"""`diagnose --reference`: runs that go like the good ones, runs that leave them, and what cannot be compared."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asked import asked
from synthetic_series import ar1

from grposcope.core.errors import UserError
from grposcope.core.run import Run
from grposcope.instruments.runs.reference import bands
from grposcope.instruments.runs.reference.gate import (
    LOG,
    SHARE,
    _block_edges,
    _block_rows,
    _block_summary,
    _slope,
    judge,
)
from grposcope.logs import read

Table = dict[str, np.ndarray]


def good(seed: int, steps: int = 60) -> Table:
    """Metrics of a run whose seeds differ by a level of their own and by AR(1) noise."""
    rng = np.random.default_rng(seed)
    u = np.arange(steps) / steps

    def noise(own: float, within: float) -> np.ndarray:
        return np.asarray(own * rng.normal() + within * ar1(rng, steps, 0.5))

    return {
        "step": np.arange(1.0, steps + 1),
        "reward": 0.3 + 0.2 * u + noise(0.01, 0.03),
        "reward_std": np.exp(-1 + noise(0.03, 0.05)),
        "dead_fraction": np.clip(0.3 + noise(0.02, 0.05), 0.02, 0.98),
        "entropy": np.exp(-1 - 0.3 * u + noise(0.05, 0.05)),
        "grad_norm": np.exp(-0.5 + noise(0.05, 0.3)),
        "length": np.exp(4 + 0.1 * u + noise(0.02, 0.03)),
        "tokens": np.full(steps, 1000.0),
    }


def run(tmp_path: Path, name: object, table: Table) -> Path:
    path = tmp_path / f"{name}.jsonl"
    lines = [{key: float(column[k]) for key, column in table.items()} for k in range(len(table["step"]))]
    path.write_text("".join(json.dumps({k: v for k, v in row.items() if not math.isnan(v)}) + "\n" for row in lines))
    return path


def goods(tmp_path: Path, count: int = 4) -> list[Path]:
    return [run(tmp_path, f"good-{seed}", good(seed)) for seed in range(count)]


def of(path: Path) -> Run:
    return read(path)


def changed(seed: int, change: Callable[[Table], None]) -> Table:
    table = good(seed)
    change(table)
    return table


def late(table: Table) -> None:
    """From step 31 on, twice as many dead groups."""
    table["dead_fraction"][30:] = np.clip(table["dead_fraction"][30:] + 0.35, 0, 0.98)


def test_gate_of_a_run_that_leaves_late(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone, fine = run(tmp_path, "gone", changed(50, late)), run(tmp_path, "fine", good(51))
    status, document = asked("diagnose", gone, "--reference", *goods(tmp_path), "--fail-on", "divergence")
    out = capsys.readouterr().out
    found = document["reference"]
    assert status == 1
    assert (found["word"], found["diverged"]) == ("warning", True)
    assert found["first"]["metric"].startswith("dead_fraction")
    assert found["first"]["low"] <= 31 < found["first"]["high"] <= 46
    assert found["p"] <= 0.05
    assert "Diverged from the 4 good runs by step" in out
    assert f"{found['first']['metric']} left first" in out
    status, document = asked("diagnose", fine, "--reference", *goods(tmp_path), "--fail-on", "divergence")
    assert (status, document["reference"]["diverged"]) == (0, False)
    assert "No divergence: this run behaves like the 4 good runs" in capsys.readouterr().out


def test_a_slow_departure_has_a_long_interval(tmp_path: Path) -> None:
    """It may have begun in any block behind the last in which nothing was seen."""

    def drift(table: Table) -> None:
        table["length"] *= np.exp(0.5 * np.clip(np.arange(60) - 15, 0, None) / 45)

    found = judge(of(run(tmp_path, "gone", changed(51, drift))), [of(one) for one in goods(tmp_path)])
    (left,) = (one for one in found.left if one.metric == "length")
    assert 16 <= left.low < left.at < left.high


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_than_four_cannot_tell(tmp_path: Path, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    gone = run(tmp_path, "gone", changed(50, late))
    status, document = asked("diagnose", gone, "--reference", *goods(tmp_path, count), "--fail-on", "divergence")
    out = capsys.readouterr().out
    assert (status, document["reference"]["word"], document["reference"]["diverged"]) == (0, "cannot tell", None)
    assert f"{4 - count} more good run" in out
    assert ("Seen, not judged: dead_fraction" in out) == (count > 1)


def test_a_metric_that_stops_left_first_for_certain(tmp_path: Path) -> None:
    def stop(table: Table) -> None:
        late(table)
        table["entropy"][20:] = np.nan

    left = judge(of(run(tmp_path, "gone", changed(50, stop))), [of(one) for one in goods(tmp_path)])
    assert left.diverged
    assert (left.left[0].metric, left.left[0].how, left.left[0].at) == ("entropy", "stopped", 21.0)
    assert "entropy" in left.untested


def test_an_absent_metric_is_said_and_does_not_fire(tmp_path: Path) -> None:
    table = good(51)
    del table["entropy"]
    found = judge(of(run(tmp_path, "fine", table)), [of(one) for one in goods(tmp_path)])
    assert (found.diverged, found.absent) == (False, ("entropy",))


def test_a_reference_with_gaps_takes_the_metric_out(tmp_path: Path) -> None:
    table = good(0)
    table["entropy"][30:] = np.nan
    references = [run(tmp_path, "hole", table), *goods(tmp_path, 5)[1:]]
    found = judge(of(run(tmp_path, "fine", good(51))), [of(one) for one in references])
    assert found.diverged is False
    assert found.untested["entropy"].startswith("hole.jsonl lacks values")


def test_the_run_itself_is_refused_under_any_name(tmp_path: Path) -> None:
    references = [of(one) for one in goods(tmp_path)]
    with pytest.raises(UserError, match="has the same rows as the run itself; give another run"):
        judge(of(run(tmp_path, "copy", good(2))), references)
    with pytest.raises(UserError, match=r"has the same rows as .*good-1.jsonl; give each reference once"):
        judge(of(run(tmp_path, "fine", good(51))), [*references, of(run(tmp_path, "twin", good(1)))])


def test_runs_of_other_lengths_are_compared_where_they_overlap(tmp_path: Path) -> None:
    references = [of(one) for one in goods(tmp_path)]
    found = judge(of(run(tmp_path, "short", {k: v[:40] for k, v in good(51).items()})), references)
    assert (found.range, found.diverged) == ((1.0, 40.0), False)
    assert any("compared over steps 1 to 40" in note for note in found.notes)
    stub = judge(of(run(tmp_path, "stub", {k: v[:8] for k, v in good(51).items()})), references)
    assert stub.diverged is None
    assert "at least 12 rows" in stub.lacking[0]


def test_a_reference_unlike_the_others_is_named(tmp_path: Path) -> None:
    references = [*goods(tmp_path, 6), run(tmp_path, "odd", {**good(9), "length": good(9)["length"] * 2})]
    found = judge(of(run(tmp_path, "fine", good(51))), [of(one) for one in references])
    assert [(place, metric) for place, metric, _ in found.apart] == [(6, "length")]


def test_by_tokens_and_by_time(tmp_path: Path) -> None:
    """A run that draws half the tokens a step is at another place of its course by steps, and at the same by tokens."""
    references = [of(one) for one in goods(tmp_path)]
    found = judge(of(run(tmp_path, "fine", good(51))), references, "tokens")
    assert (found.range, found.diverged) == ((1000.0, 60000.0), False)
    with pytest.raises(UserError, match="does not log seconds in every row; compare by step"):
        judge(references[0], references[1:], "time")


def test_divergence_without_references_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs runs that went well; give them with --reference"):
        asked("diagnose", run(tmp_path, "one", good(0)), "--fail-on", "divergence")


# The test itself


def test_variances_by_hand() -> None:
    """The borrowed variances against loops over the formula; equal variances stay what they are."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 3, 4)) * np.array([1.0, 3.0, 0.2])[:, None]
    own = [[np.var([x[r, m, b] for r in range(5)], ddof=1) for b in range(4)] for m in range(3)]
    common = [math.exp(sum(math.log(own[m][b]) for m in range(3)) / 3) for b in range(4)]
    f = [one / (sum(common) / 4) for one in common]
    level = [sum(own[m][b] / f[b] for b in range(4)) / 4 for m in range(3)]
    overall = math.exp(sum(map(math.log, level)) / 3)
    for m in range(3):
        metric = (3 * overall + 2 * 4 * level[m]) / (3 + 2 * 4)
        for b in range(4):
            assert bands._variances(x)[m, b] == pytest.approx((6 * metric * f[b] + 4 * own[m][b]) / (6 + 4))
    t = bands.distances(x, x[0] + 1)
    assert t[1, 2] == pytest.approx((x[0, 1, 2] + 1 - x[:, 1, 2].mean()) / math.sqrt(bands._variances(x)[1, 2] * 1.2))


def test_slope_within_runs() -> None:
    """The slope of rows, whatever the levels and trends of the runs; none where nothing moves."""
    rng = np.random.default_rng(0)
    tables = []
    for level in (0.0, 5.0):
        x = rng.normal(size=50)
        tables.append({"x": x + level, "y": -2 * x + 7 * level + 0.1 * np.arange(50), "still": np.ones(50)})
    with_line = [{**one, "x": one["x"]} for one in tables]
    assert _slope(with_line, "y", "x") == pytest.approx(-2, abs=1e-9)
    assert math.isnan(_slope(tables, "y", "still"))


def test_p_value_counts_the_run_itself() -> None:
    by_chance = np.arange(1.0, 100.0)
    assert bands.p_value(1000.0, by_chance) == 0.01
    assert bands.p_value(0.0, by_chance) == 1.0
    assert bands.p_value(99.0, by_chance) == 0.02


def test_blocks_and_scales() -> None:
    parts = _block_rows(np.arange(1.0, 13.0), _block_edges(1, 12, 4, whole=True))
    assert [(part.start, part.stop) for part in parts] == [(0, 3), (3, 6), (6, 9), (9, 12)]
    line = 2.0 * np.arange(12)
    mean, noise = _block_summary(line, parts)
    assert mean.tolist() == [2, 8, 14, 20]
    assert noise == pytest.approx(np.zeros(4), abs=1e-12), "a straight line has no noise"
    values = np.array([0.1, 0.4, 0.9])
    for scale in (LOG, SHARE):
        assert scale.back(scale.of(values)) == pytest.approx(values)
        step = 1e-6
        assert (scale.of(values + step) - scale.of(values)) / step == pytest.approx(scale.slope(values), rel=1e-4)


@pytest.mark.slow
def test_false_rate_of_independent_normals(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 5 % of normal runs leave, whatever their metrics' spread; a shift of five of its errors is seen."""
    monkeypatch.setattr(bands, "DRAWS", 400)
    rng = np.random.default_rng(0)
    fired = seen = 0
    for _ in range(200):
        x = rng.normal(size=(5, 8, 4)) * np.exp(rng.normal(size=(8, 1)))
        limit = np.quantile(bands.largest_by_chance(x[:4]), 0.95)
        fired += np.abs(bands.distances(x[:4], x[4])).max() > limit
        shifted = x[4] + 8 * np.sqrt(bands._variances(x[:4])) * (np.arange(8) == 3)[:, None]
        seen += np.abs(bands.distances(x[:4], shifted)).max() > limit
    assert fired <= 16, "5 % of 200 and two standard errors"
    assert seen >= 180


def family(kind: str, rng: np.random.Generator) -> Table:
    """A run of a family whose members differ by chance alone."""
    steps = 80
    u = np.arange(steps) / steps
    phi = {"white": 0.0, "AR(1)": 0.8, "wandering": 0.97, "trends": 0.5}[kind]
    names = ("reward", "reward_std", "entropy", "kl", "grad_norm", "length", "dead_fraction", "clip_high")
    shared = ar1(rng, steps, phi)
    table = {"step": np.arange(1.0, steps + 1)}
    for k, name in enumerate(names):
        path = 0.6 * shared + 0.8 * ar1(rng, steps, phi)
        trend = (1 + 0.3 * rng.normal()) * u if kind == "trends" else 0.3 * u
        value = (k % 3 - 1) * trend + 0.2 * path
        share = name in ("dead_fraction", "clip_high")
        table[name] = 1 / (1 + np.exp(1 - value)) if share else np.exp(value)
    return table


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["white", "AR(1)", "wandering", "trends"])
def test_false_rate_of_simulated_families(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of one family are called diverged in at most 5 % of 200 sets, but for two standard errors of that."""
    monkeypatch.setattr(bands, "DRAWS", 500)
    rng = np.random.default_rng(7)
    base = of(run(tmp_path, "one", family(kind, rng)))
    fired = 0
    for _ in range(200):
        five: list[Any] = [Run(base.meta, {}, family(kind, rng), base.groups, base.evaluations) for _ in range(5)]
        fired += bool(judge(five[0], five[1:]).diverged)
    assert fired <= 16
