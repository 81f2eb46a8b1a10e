"""What the page says of the turns of a run: levels, the reward by turns, stop reasons, and where the update draws."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import agents
import numpy as np
import pytest

from grposcope.core.answer import Answer
from grposcope.instruments import ask, instrument
from grposcope.instruments.agents.answer import _covariance_in_groups
from grposcope.logs import read


def said(place: Path) -> list[Answer]:
    return list(ask(instrument("agents"), [read(place)]))


def test_covariance_is_unbiased() -> None:
    """The mean over all groups of three of a small distribution is its covariance."""
    chances, x, r = np.array([0.2, 0.5, 0.3]), np.array([1.0, 2.0, 4.0]), np.array([0.0, 1.0, 0.5])
    wanted = chances @ (x * r) - (chances @ x) * (chances @ r)
    total = 0.0
    for members in itertools.product(range(3), repeat=3):
        own = list(members)
        total += chances[own].prod() * _covariance_in_groups(x[own], r[own], ["g"] * 3).value
    assert total == pytest.approx(wanted, abs=1e-12)


def test_covariance_needs_a_group_of_two() -> None:
    found = _covariance_in_groups([1.0, 2.0, np.nan], [0.0, 1.0, 1.0], ["a", "b", "b"])
    assert np.isnan(found.value)
    assert found.flag == "no group of two rollouts"


def test_logged_turns_and_tools(tmp_path: Path) -> None:
    world = agents.agent(np.random.default_rng(2), agents.COLLAPSED)
    [answer] = said(agents.written(tmp_path, "trl async", world))
    tables = {table.title: table for table in answer.tables}
    rows = {row[0]: row for row in tables["Turns and tools"].rows}
    assert rows["Tool calls"][3] == "tools/call_frequency"
    assert float(rows["Tool calls"][2]) < float(rows["Tool calls"][1])
    assert [row[0] for row in tables["By tool"].rows] == ["search"]
    assert "tool calls per rollout at first" in answer.sentence
    assert {figure.name for figure in answer.figures} >= {"agent/calls", "agent/stop_turns"}


def rows_of(paid: dict[int, float], groups: int = 30) -> list[dict[str, object]]:
    """Groups of four rollouts of these turns, whose reward is near `paid[turns]`."""
    rng, rows = np.random.default_rng(0), list[dict[str, object]]()
    for group, turns in itertools.product(range(groups), (1, 2, 2, 3)):
        messages = [{"role": "assistant", "content": "x"}, {"role": "tool", "content": "y"}] * (turns - 1)
        rows.append({
            "step": group // 10, "group": f"g{group}", "prompt": [{"role": "user", "content": f"q{group}"}],
            "completion": [*messages, {"role": "assistant", "content": "z"}],
            "reward": paid[turns] + 0.05 * rng.normal(), "stop": "max_turns" if turns == 3 else "env_done",
        })  # fmt: skip
    return rows


@pytest.mark.parametrize(
    ("paid", "words"),
    [({1: 0.1, 2: 0.4, 3: 0.7}, "draws to more turns"), ({1: 0.7, 2: 0.4, 3: 0.1}, "draws to fewer turns"),
     ({1: 0.4, 2: 0.4, 3: 0.4}, "are not paid differently from their siblings")],
)  # fmt: skip
def test_the_reward_by_turns(tmp_path: Path, paid: dict[int, float], words: str) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows_of(paid)))
    [answer] = said(path)
    assert words in answer.sentence
    tables = {table.title: table for table in answer.tables}
    by_turns = tables["Reward by turns"].rows
    assert [row[:3] for row in by_turns] == [("1", "30", "25%"), ("2", "60", "50%"), ("3", "30", "25%")]
    assert [float(row[3].split(" ±")[0]) for row in by_turns] == pytest.approx(list(paid.values()), abs=0.03)
    assert [row[0] for row in tables["What ended the rollouts"].rows] == ["the environment ended it", "limit on turns"]


def test_runs_of_one_turn_have_no_such_section(tmp_path: Path) -> None:
    assert said(agents.written(tmp_path, "verl", agents.agent(np.random.default_rng(2), "one turn"))) == []
