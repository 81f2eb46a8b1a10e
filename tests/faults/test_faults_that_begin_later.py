"""States that begin at once in the middle of a run and last: the check of all rows is not the only one."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic_series as made

from grposcope.core.finding import Finding
from grposcope.faults.judge import diagnose
from grposcope.signs.lasting_state import begins
from grposcope.signs.quantities import SHORT

Columns = dict[str, np.ndarray]


def base(rows: int = 60) -> Columns:
    """A run that goes on as it began: prompts that are sometimes solved, a gradient, a rate, an entropy and a KL."""
    draw = np.random.default_rng(3)
    return {
        "step": np.arange(1.0, rows + 1), "reward": 0.3 + 0.06 * draw.normal(size=rows),
        "reward_std": 0.4 + 0.05 * draw.normal(size=rows), "dead_fraction": draw.uniform(0.1, 0.5, rows),
        "reward_std_batch": np.full(rows, 0.45), "grad_norm": draw.uniform(0.2, 0.6, rows), "lr": np.full(rows, 1e-4),
        "entropy": draw.uniform(0.10, 0.16, rows), "kl": draw.uniform(0.005, 0.015, rows),
        "loss": 1e-3 * draw.normal(size=rows), "mismatch/k3": 1e-4 * draw.uniform(0.5, 1.5, rows),
    }  # fmt: skip


def changed(since: int, rows: int = 60, **columns: float) -> Columns:
    """`base` with values from a row on; of the loss, times the KL."""
    table = base(rows)
    for name, value in columns.items():
        table[name][since:] = value * (table["kl"][since:] if name == "loss" else 1)
    return table


def finding(table: Columns, fault: str) -> Finding | None:
    return next((one for one in diagnose(made.run(table)) if one.fault == fault and one.present), None)


CASES: dict[str, Columns] = {
    "zero learning rate": {"lr": 0.0},
    "greedy sampling": {"entropy": 1e-9},
    "prompt decides the reward": {"dead_fraction": 1.0, "reward_std": 0.0},
    "lost gradient": {"grad_norm": 0.0},
    "kl penalty outweighs the reward": {"loss": 20.0},
    "constant reward": {"reward": 1.0, "reward_std": 0.0, "dead_fraction": 1.0},
}  # type: ignore[dict-item]


@pytest.mark.parametrize("fault", CASES)
def test_it_is_dated_and_a_fact_within_ten_rows(fault: str) -> None:
    for rows in (45 + SHORT, 100):
        seen = finding(changed(45, rows, **CASES[fault]), fault)  # type: ignore[arg-type]
        assert seen is not None, rows
        assert (seen.basis, seen.onset) == ("fact", 46)
        assert seen.grade in ("warning", "failing")
    assert finding(changed(45, 45 + SHORT - 1, **CASES[fault]), fault) is None  # type: ignore[arg-type]
    assert finding(base(), fault) is None


def test_a_kl_term_that_turns_its_sign_is_dated() -> None:
    """The loss is 0.1 × the KL, and from row 46 on −0.1 × it; one taken off from the start has no first step."""
    table = base()
    table["loss"] = 0.1 * table["kl"]
    assert finding(table, "kl against its penalty") is None
    table["loss"][45:] *= -1
    seen = finding(table, "kl against its penalty")
    assert seen is not None
    assert (seen.basis, seen.onset) == ("fact", 46)
    assert "-0.1 × kl since step 46" in seen.because
    table["loss"] = -0.1 * table["kl"]
    always = finding(table, "kl against its penalty")
    assert always is not None
    assert always.onset is None


def test_an_entropy_bonus_that_comes_into_force_explains_the_kl() -> None:
    """The loss is −0.3 × the entropy from step 31 on; entropy and KL grow, and the reward falls."""
    table, grows = base(120), np.clip((np.arange(120) - 30) / 90, 0, 1)
    table["entropy"] *= 1 + 1.5 * grows
    table["kl"] *= 1 + 60 * grows
    table["reward"] -= 0.2 * grows
    table["loss"][30:] = -0.3 * table["entropy"][30:]
    seen = finding(table, "entropy explosion")
    assert seen is not None
    assert seen.onset == 31
    assert "-0.3 × entropy since step 31" in seen.because
    assert next(one.fault for one in diagnose(made.run(table)) if one.present) == "entropy explosion"
    table["loss"] = base(120)["loss"]
    assert finding(table, "entropy explosion") is None


def test_a_penalty_that_draws_a_policy_back_from_afar_outweighs_too() -> None:
    """The KL falls from 0.07 to 0.03 when its coefficient rises to 20: more than 0.02, and less than before."""
    table = base()
    table["kl"] = np.where(np.arange(60) < 45, 7.0, 3.0) * table["kl"]
    table["loss"][45:] = 20 * table["kl"][45:]
    seen = finding(table, "kl penalty outweighs the reward")
    assert seen is not None
    assert seen.onset == 46
    table["kl"][45:] *= 4
    table["loss"][45:] *= 4
    assert finding(table, "kl penalty outweighs the reward") is None


def test_all_rewards_at_the_top_from_one_row_to_the_next_are_no_success() -> None:
    assert finding(changed(45, **CASES["constant reward"]), "constant reward").grade == "failing"  # type: ignore
    table = base()
    table["reward"] = np.clip(np.linspace(0.3, 1.4, 60), 0, 1)
    assert finding(table, "constant reward").grade == "note"  # type: ignore[union-attr]


def test_a_gradient_that_dead_groups_explain_is_not_lost() -> None:
    assert finding(changed(45, grad_norm=0.0, dead_fraction=1.0), "lost gradient") is None


def test_an_entropy_that_goes_down_over_rows_is_no_greedy_sampler() -> None:
    table = base()
    table["entropy"][35:45] = 0.12 * 0.5 ** np.arange(10)
    table["entropy"][45:] = 1e-6
    assert finding(table, "greedy sampling") is None


def test_a_jump_of_the_mismatch_that_stays_names_what_may_have_changed() -> None:
    table = base()
    table["mismatch/k3"][40:] = 0.05
    seen = finding(table, "sampler mismatch")
    assert seen is not None
    assert "with no restart in the log" in seen.because
    assert "temperature and top-p, precision" in seen.remedy
    table["mismatch/k3"][40:] = np.linspace(0.02, 0.3, 20)
    assert finding(table, "sampler mismatch") is None


def test_rows_that_were_so_before_are_no_beginning() -> None:
    state = np.r_[np.zeros(30, bool), np.ones(12, bool)]
    assert begins(state) == 30
    assert begins(state[:39]) is None
    assert begins(~state) is None
    assert begins(np.r_[np.ones(29, bool), state[29:]]) is None
    assert begins(np.ones(30, bool)) is None
