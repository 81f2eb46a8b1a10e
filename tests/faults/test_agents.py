"""Faults of agents in made logs of trainers: named where they are, and not where an agent is healthy."""

from __future__ import annotations

import json
from pathlib import Path

import agents
import numpy as np
import pytest
import synthetic_series as made

from grposcope.core.finding import Finding
from grposcope.faults.judge import diagnose
from grposcope.logs import read
from grposcope.signs.agents import ERRORS
from grposcope.signs.quantities import Quantities

EACH = (
    ("slime", agents.COLLAPSED), ("verl", agents.LOOPS), ("nemo-rl", agents.LIMIT), ("trl", agents.TOOLS),
    ("roll", agents.CALLS), ("prime-rl", agents.ZEROS), ("ms-swift", agents.CUT),
)  # fmt: skip


@pytest.mark.parametrize(("trainer", "fault"), EACH)
def test_a_fault_is_named(trainer: str, fault: str) -> None:
    assert fault in agents.present(trainer, fault, 0)[0]


@pytest.mark.parametrize(
    ("trainer", "kind"), [("verl", "turns that pay"), ("trl", "failures fall"), ("prime-rl", "ended by environment")]
)
def test_healthy_agents_are_left_alone(trainer: str, kind: str) -> None:
    every, bad = agents.present(trainer, kind, 1)
    assert not every & agents.OF_AGENTS
    assert not bad


@pytest.mark.slow
@pytest.mark.parametrize("trainer", agents.CAN)
def test_of_every_trainer(trainer: str) -> None:
    """At least nine in ten of each fault, and at most one in twenty healthy agents."""
    seeds = range(100, 110)
    for fault in agents.CAN[trainer]:
        assert sum(fault in agents.present(trainer, fault, seed)[0] for seed in seeds) >= 9, fault
    kinds = [kind for kind in agents.HEALTHY if kind != "ended by environment" or agents.CUT not in agents.CAN[trainer]]
    flagged = sum(bool(agents.present(trainer, kind, seed)[0] & agents.OF_AGENTS) for kind in kinds for seed in seeds)
    assert flagged <= 0.05 * len(kinds) * len(seeds)


def of(folder: Path, rows: list[dict[str, float]]) -> dict[str, Finding]:
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"global_step": len(rows), "max_steps": len(rows), "logging_steps": 1,
                                "log_history": rows}))  # fmt: skip
    return {finding.fault: finding for finding in diagnose(read(path)) if finding.present}


def test_episodes_that_the_environment_ends_are_not_cut(tmp_path: Path) -> None:
    """All are counted as cut, at no one length: nothing says that they are cut at a limit, or to mask them.

    Where neither turns nor calls are logged, the end token may be another one as well.
    """
    rng = np.random.default_rng(0)
    world = agents.agent(rng, "one turn") | {"cut": np.ones(60)}
    rows = [agents.trl(world, k) for k in range(60)]
    for row in rows:
        row["tools/call_frequency"] = 1.5
    found = of(tmp_path, rows)
    assert "length" not in found
    assert found["ends not counted"].grade == "note"
    assert "100% of rollouts are counted as cut, which would all be as long" in found["ends not counted"].because
    assert found["ends not counted"].remedy.startswith("do not mask or penalise truncated completions")
    for row in rows:
        del row["tools/call_frequency"], row["tools/failure_frequency"]  # rollout_func logs no tools
    found = of(tmp_path, rows)
    assert "length" not in found
    assert "end not recognised" in found


def test_rollouts_of_a_batch_that_are_all_counted_as_cut_have_one_length_or_were_not(tmp_path: Path) -> None:
    """Short episodes of nearly one length in every batch, all without an end token."""
    rows = [
        {
            "step": k + 1, "reward": 0.5 + 0.1 * (k % 3), "agent/turns": 2.8, "completions/clipped_ratio": 1.0,
            "completions/mean_length": 7.8, "completions/min_length": 5.0, "completions/max_length": 9.0,
        }
        for k in range(40)
    ]  # fmt: skip
    found = of(tmp_path, rows)
    assert "length" not in found
    assert found["ends not counted"].grade == "note"
    assert "as long as the limit, but they have 5 to 9 tokens in the median batch" in found["ends not counted"].because
    for row in rows:
        row["completions/min_length"] = 9.0
    assert "length" in of(tmp_path, rows)


def test_completions_at_one_limit_are_cut(tmp_path: Path) -> None:
    """Answers of one turn that are all as long as the limit, as before."""
    world = agents.agent(np.random.default_rng(0), "one turn") | {"cut": np.ones(60)}
    rows = [agents.trl(world, k) for k in range(60)]
    for row in rows:
        row.update({f"completions/{which}_length": 512.0 for which in ("min", "mean", "max")})
    found = of(tmp_path, rows)
    assert "every completion is cut at the token limit in all 60 steps" in found["length"].because
    assert "ends not counted" not in found


def test_a_mask_that_takes_them_all_out_is_failing() -> None:
    table = made.healthy()
    table |= {"truncated": np.ones(120), "length": np.full(120, 90.0), "length_max": np.full(120, 400.0)}
    table["agent/turns"] = np.full(120, 2.0)
    found = {one.fault: one for one in diagnose(made.run(table, masks_truncated=True)) if one.present}
    assert found["ends not counted"].grade == "failing"
    assert "mask_truncated_completions takes them out of the loss" in found["ends not counted"].because


def test_what_failing_tools_are_told_from() -> None:
    """A jump is the tool's, and a slow rise may be the policy's."""
    table, share = made.healthy(), np.arange(120) / 120
    noise = 0.01 * np.random.default_rng(3).normal(size=120)
    said = {}
    for name, course in (("jump", np.where(share > 0.5, 0.85, 0.0)), ("drift", 0.85 * share)):
        table |= {"agent/calls": np.full(120, 2.0) + noise, "agent/call_failures": 0.05 + course + np.abs(noise)}
        finding = next(one for one in diagnose(made.run(table)) if one.fault == "failing tools")
        assert finding.present
        said[name] = finding.because
    assert "they jumped, as when a tool" in said["jump"]
    assert "they rise bit by bit" in said["drift"]


def test_failures_that_are_left_out_cost_nothing() -> None:
    """Failed rollouts that are dropped do not move the mean reward, and such that cost a little are no zeros."""
    rng, table = np.random.default_rng(1), made.healthy()
    errors = np.where(rng.random(120) < 0.3, rng.uniform(0.1, 0.4, 120), 0.0)
    for cost, named in ((0.0, False), (0.1, False), (1.0, True)):
        table["agent/errors"] = errors
        table["reward"] = made.healthy()["reward"] * (1 - cost * errors)
        finding = ERRORS.check(Quantities(made.run(table)))
        assert (finding.basis == "test" and finding.p < 1e-6) is named, cost


def test_runs_without_turns_have_no_findings_of_agents() -> None:
    names = {finding.fault for finding in diagnose(made.run(made.healthy()))}
    assert not names & agents.OF_AGENTS
