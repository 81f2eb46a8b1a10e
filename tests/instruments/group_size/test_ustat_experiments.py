"""The exactness experiment in full: every P and G by enumeration, as `experiments/ustat.md` reports it."""

from __future__ import annotations

import importlib.util

import pytest
from places import ROOT


@pytest.mark.slow
def test_every_formula_is_an_equality() -> None:
    path = ROOT / "experiments" / "ustat_exactness.py"
    spec = importlib.util.spec_from_file_location("ustat_exactness", path)
    assert spec is not None
    assert spec.loader is not None
    experiment = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(experiment)
    rows = experiment.errors()
    assert {(r["G"], r["P"]) for r in rows} == {(g, p) for g in (2, 3, 4, 8) for p in (1, 2, 4)}
    assert max(r["difference"] for r in rows) < 1e-10
    assert max(map(abs, experiment.bias().values())) < 1e-10
