"""Causes that trainings of 60 noisy rows show, beside the same rows without them."""

from __future__ import annotations

import numpy as np
import synthetic_series as made

from grposcope.core.finding import Finding
from grposcope.core.run import Floats
from grposcope.faults.judge import diagnose
from grposcope.signs.falls_at_once import fall
from grposcope.signs.quantities import Quantities

ROWS = 60
NOISE = np.random.default_rng(7)


def first(columns: dict[str, Floats]) -> Finding:
    """The first finding."""
    return diagnose(made.run(columns))[0]


def first_cause(columns: dict[str, Floats]) -> str:
    """The fault of the first finding that is present; empty where none is."""
    finding = first(columns)
    return finding.fault if finding.present else ""


def sampler_left_behind(at_start: float, follows: bool) -> dict[str, Floats]:
    """A flat reward, a KL that wanders, and a mismatch that follows it or is as large without doing so."""
    kl = np.concatenate([[0.0], NOISE.uniform(0.1, 0.4, ROWS - 1)])
    other = np.concatenate([[0.0], np.random.default_rng(8).uniform(0.1, 0.4, ROWS - 1)])
    mismatch = np.concatenate([[at_start], 0.2 * (kl if follows else other)[1:]])
    return {"reward": NOISE.normal(0.3, 0.08, ROWS), "kl": kl, "mismatch/k3": mismatch}


def test_mismatch_that_begins_at_nothing_and_follows_the_kl_is_of_a_sampler_left_behind() -> None:
    assert first_cause(sampler_left_behind(1e-12, True)) == "weights never arrived"
    assert first_cause(sampler_left_behind(0.03, True)) != "weights never arrived"  # numerics are there at once
    assert first_cause(sampler_left_behind(1e-12, False)) != "weights never arrived"  # a lag of a few versions


def test_completions_that_are_all_cut_explain_dead_groups_and_not_the_other_way_round() -> None:
    dead = np.tile([1.0, 0.875, 0.875, 1.0], ROWS // 4)
    columns = {"reward": np.where(dead < 1, 0.02, 0.0), "dead_fraction": dead, "length": np.full(ROWS, 9.0)}
    assert first_cause({**columns, "truncated": np.ones(ROWS)}) == "length"
    assert first_cause({**columns, "truncated": np.linspace(0, 0.3, ROWS)}) == "starved"


def test_a_spread_in_rows_whose_groups_are_all_dead_is_of_the_batch() -> None:
    reward = NOISE.binomial(8, 0.5, ROWS) / 8
    columns = {"reward": reward, "dead_fraction": np.ones(ROWS), "group_size": np.full(ROWS, 8.0)}
    assert first_cause({**columns, "reward_std": np.sqrt(reward * (1 - reward))}) == "prompt decides the reward"
    assert "reward_std" in first({**columns, "reward_std": np.sqrt(reward * (1 - reward))}).because
    assert "over the batch" not in first({**columns, "reward_std": np.zeros(ROWS)}).because


def test_a_first_row_that_is_low_by_chance_is_no_rise_before_a_fall() -> None:
    fallen = np.tile([0.0, 0.02, 0.0, 0.03], ROWS // 4)
    reward = np.concatenate([[0.06, 0.28, 0.28, 0.27, 0.25, 0.19, 0.09, 0.06], fallen[8:]])
    columns = {"reward": reward, "kl": np.linspace(0, 0.25, ROWS), "entropy": np.full(ROWS, 0.15)}
    assert fall(Quantities(made.run(columns))) is not None
    rose = np.concatenate([np.linspace(0.1, 0.4, 8), np.linspace(0.4, 0.05, 8), fallen[16:]])
    assert fall(Quantities(made.run({**columns, "reward": rose}))) is None
