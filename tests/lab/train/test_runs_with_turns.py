"""A run on a task with turns: its record says what turns did, and everything that reads a record reads it."""

from __future__ import annotations

import json
from pathlib import Path

import judged_claims
import numpy as np
import pytest

from grposcope.core.rollouts import Rollout
from grposcope.instruments import ask, instrument
from grposcope.instruments.verify import read as verify_read
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train
from grposcope.logs import read


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("turns") / "run"
    train(TrainConfig(
        model="tables", task="hidden_table:cost=0.05", out=str(folder), steps=3, prompts=6, group=4, rollouts_every=1,
        rollouts_groups=6, verify_every=1, eval_problems=0, checkpoint_every=0,
    ))  # fmt: skip
    return folder


def rows(record: Path) -> list[Rollout]:
    run = read(record)
    return [row for step in sorted(run.rollouts) for row in run.rollouts[step]]


def test_rollouts_of_the_record(record: Path) -> None:
    """Turns, stop reasons, rewards of turns and states come back as they were drawn."""
    found = rows(record)
    assert len(found) == 72
    assert {row.stop for row in found} <= {"environment", "turns", "length", "eos"}
    assert any(row.written is not None and not row.written.all() for row in found)
    for row in found:
        assert row.turns is not None
        assert row.turn_rewards is not None
        assert row.turn_rewards.sum() == pytest.approx(row.reward)
        assert len(row.turn_rewards) == len(row.anchors) == row.turn_count
        heard = 0 if row.written is None else int((~row.written).sum())  # a digit for each answer
        assert row.turn_count in (heard, heard + 1)
        assert (row.turn_rewards[:-1] == -0.05).all()


def test_groups_and_steps(record: Path) -> None:
    """A line of groups.jsonl has turns and stop reasons of its rollouts; the steps have their means."""
    groups = [json.loads(line) for line in (record / "groups.jsonl").read_text().splitlines()]
    steps = [json.loads(line) for line in (record / "steps.jsonl").read_text().splitlines()]
    for step in steps:
        own = [group for group in groups if group["step"] == step["step"]]
        turns = np.concatenate([group["turns"] for group in own])
        stops = [why for group in own for why in group["stop"]]
        assert step["agent/turns"] == pytest.approx(turns.mean())
        assert step["agent/turns_max"] == turns.max()
        assert step["agent/stop_environment"] == pytest.approx(stops.count("environment") / len(stops))
        assert step["agent/stop_turns"] == pytest.approx(stops.count("turns") / len(stops))
        assert step["agent/environment_tokens"] > 0


def test_the_page_and_the_claims(record: Path) -> None:
    """The section on turns has what ended the rollouts; no claim of our loop is broken, and the turn rule is seen."""
    [answer] = list(ask(instrument("agents"), [read(record)]))
    assert {"Reward by turns", "What ended the rollouts"} <= {table.title for table in answer.tables}
    evidence = verify_read.evidence(record)
    assert {row.stop for row in evidence.rows} & {"environment"}
    found = judged_claims.of(evidence)
    assert not [name for name, claim in found.items() if claim.status == "broken"]
    assert found["trajectory weights"].status == "holds"
    assert found["gradient"].status == "holds"
