"""A KL of exactly 0 beside a gradient: no step changes the policy, where the KL is known to be computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import synthetic_series as made
from causes import N, flat

from grposcope.core.finding import Finding
from grposcope.core.run import Run
from grposcope.faults.judge import diagnose

UPDATE = "update not applied"


def found(engine: str, coefficient: float | None = None, **columns: np.ndarray) -> Finding:
    """What is said of a flat run with a KL of 0 in every row; coefficient: of the KL, where it is recorded."""
    run: Run = made.run({**made.healthy(), "kl": np.zeros(N), "reward": flat(), **columns})
    settings = {**run.config.get("settings", {}), **({} if coefficient is None else {"kl": coefficient})}
    run = replace(run, meta=replace(run.meta, engine=engine), config={**run.config, "settings": settings})
    return next(finding for finding in diagnose(run) if finding.fault == UPDATE)


@pytest.mark.parametrize(
    ("engine", "coefficient"), [("verl", None), ("slime", None), ("trl", 0.04), ("ms-swift", 0.04)]
)
def test_it_is_shown_where_a_kl_is_computed(engine: str, coefficient: float | None) -> None:
    finding = found(engine, coefficient)
    assert finding.present
    assert "checksum of the weights" in finding.remedy
    assert f"exactly 0 in all {N} rows" in finding.because


@pytest.mark.parametrize("engine", ["trl", "ms-swift", "openrlhf"])
def test_it_is_possible_where_a_coefficient_of_0_would_leave_the_same(engine: str) -> None:
    finding = found(engine)
    assert finding.status == "possible"
    assert "or it is not computed" in finding.because


@pytest.mark.parametrize(
    "columns",
    [{"reward": made.healthy()["reward"]}, {"grad_norm": np.zeros(N)}, {"kl": np.full(N, 1e-5)}, {"lr": np.zeros(N)}],
    ids=["the reward rises", "no gradient", "the policy moves", "no rate"],
)  # fmt: skip
def test_it_is_not_there_where_something_else_says_why(columns: dict[str, np.ndarray]) -> None:
    finding = found("verl", **columns)
    assert finding.status == "excluded"
