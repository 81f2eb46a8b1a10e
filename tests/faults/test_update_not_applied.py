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


def test_numbers_that_were_printed_to_three_decimals_show_no_kl_of_exactly_0() -> None:
    """Older consoles of verl round every number so: a KL below 0.0005 is 0.000 there."""
    norms = np.abs(made.healthy()["grad_norm"])
    assert found("verl", grad_norm=norms).present
    assert found("verl", grad_norm=norms.round(3)).status == "excluded"


def test_a_gradient_norm_that_is_not_logged_is_not_needed_where_groups_differ() -> None:
    """As on the console of MLX-LM-LoRA, whose compiled step gave adapters no gradient (mlx-lm-lora #49)."""
    run: Run = made.run({**made.healthy(), "kl": np.zeros(N), "reward": flat()})

    def without(**columns: np.ndarray) -> list[Finding]:
        table = {name: values for name, values in {**run.table, **columns}.items() if name != "grad_norm"}
        bare = replace(run, table=table, meta=replace(run.meta, engine="mlx-lm-lora"))
        return [finding for finding in diagnose(bare) if finding.fault == UPDATE and finding.present]

    (finding,) = without()
    assert "the gradient norm, which is not logged" in finding.because
    assert not without(dead_fraction=np.ones(N))
    assert not without(kl=np.full(N, 1e-5))


def moved(share: np.ndarray, **columns: np.ndarray) -> dict[str, Finding]:
    """What is said of a flat run whose rows have the share of weights that a step changed."""
    run: Run = made.run({**made.healthy(), "reward": flat(), "weights_moved": share, **columns})
    return {finding.fault: finding for finding in diagnose(run)}


def test_weights_that_no_step_changes_are_told_with_the_step() -> None:
    finding = moved(np.r_[np.ones(N - 12), np.zeros(12)])[UPDATE]
    assert finding.present
    assert finding.since is not None
    assert finding.since.step == N - 12 + 1
    assert f"in the last 12 steps, since step {N - 11}" in finding.because
    assert moved(np.zeros(N))[UPDATE].since is None


@pytest.mark.parametrize(
    "columns",
    [{}, {"lr": np.r_[np.full(N - 12, 1e-4), np.zeros(12)]}],
    ids=["some steps change them", "a rate of 0"],
)  # fmt: skip
def test_a_few_steps_that_change_nothing_are_none(columns: dict[str, np.ndarray]) -> None:
    still = np.ones(N)
    still[[3, 7, 50]] = 0
    if columns:
        still[-12:] = 0
    assert moved(still, **columns)[UPDATE].status == "excluded"


def test_steps_that_move_few_weights_are_rounded_away() -> None:
    assert moved(np.full(N, 0.02))["coarse weights"].present
    assert "2%" in moved(np.full(N, 0.02))["coarse weights"].because
    assert not moved(np.full(N, 0.98))["coarse weights"].present
    assert not moved(np.r_[np.full(N // 2, 0.02), np.full(N - N // 2, 0.9)])["coarse weights"].present
