"""The corpus of public reward curves is well formed: every run has its source, its numbers, and a kind."""

from __future__ import annotations

import re
import runpy

import numpy as np
import pytest
from places import ROOT

CORPUS = runpy.run_path(str(ROOT / "experiments" / "forecast_corpus.py"))
RUNS = CORPUS["load"]()


def test_there_are_enough_runs_of_enough_owners() -> None:
    fresh = [run for run in RUNS if not run.seen]
    assert len(fresh) >= 200
    assert len(CORPUS["by_owner"](fresh)) >= 25
    assert CORPUS["FILE"].stat().st_size < 5_000_000


def test_every_run_has_its_source_and_its_numbers() -> None:
    listed = (CORPUS["FILE"].parent / "SOURCES.md").read_text()
    for run in RUNS:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", run.repository)
        assert re.fullmatch(r"[0-9a-f]{40}", run.commit)
        assert run.path
        assert run.licence
        assert f"| {run.repository} | {run.commit[:12]} |" in listed
        step, reward = run.columns["step"], run.columns["reward"]
        assert {len(column) for column in run.columns.values()} == {len(step)}
        assert 30 <= len(step) <= 2000
        assert np.isfinite(step).all()
        assert np.isfinite(reward).all()
        assert (np.diff(step) > 0).all()
        assert len(np.unique(reward)) >= 5
        for column in run.columns.values():
            assert np.isfinite(column).mean() >= 0.5
        assert run.descriptor == CORPUS["describe"](reward)


def test_no_run_is_there_twice() -> None:
    curves = [tuple(np.round(run.columns["reward"], 4)) for run in RUNS]
    assert len(set(curves)) == len(curves)


@pytest.mark.parametrize(
    ("curve", "kind"),
    [
        (lambda x: 0 * x + 0.4, "flat"),
        (lambda x: 0.2 + 0.6 * x, "rises"),
        (lambda x: 0.8 - 0.6 * np.exp(-x / 0.08), "saturates"),
        (lambda x: 0.8 - 0.6 * x, "declines"),
        (lambda x: 0.8 - 2.4 * (x - 0.5) ** 2, "rises and declines"),
    ],
)
def test_kinds_of_curve(curve: object, kind: str) -> None:
    x = np.linspace(0, 1, 200)
    noise = np.random.default_rng(3).normal(0, 0.05, 200)
    assert CORPUS["describe"](curve(x) + noise).kind == kind  # type: ignore[operator]
