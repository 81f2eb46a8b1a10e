"""GRPOscopeTrainer(num_generations="auto"): groups of another size from a pass over the data on, at equal rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("datasets")

from engines import tiny_trl
from grposcope.core.errors import UserError
from grposcope.engines.trl import GRPOscopeTrainer
from grposcope.engines.trl.group_moves import _GroupDraws
from grposcope.instruments.autopilot import events
from grposcope.instruments.group_size import moves
from grposcope.instruments.group_size.moves import GroupMove

RUN = {"max_steps": 6, "log_completions": True, "scale_rewards": "none"}
OURS = {"num_generations": "auto", "auto_group": 2, "probe_every": 1, "probe_prompts": 2}


def moving(monkeypatch: pytest.MonkeyPatch, looks: list[tuple[int, int]] | None = None) -> None:
    """Every look at groups of four moves to groups of two, which stay."""

    def of_pool(files: Any, used: int, among: list[int]) -> GroupMove:
        if looks is not None:
            looks.append((used, len(files)))
        if used == 2:
            return GroupMove(2, 2, reason="it is good")
        return GroupMove(used, 2, 2.0, (1.5, 2.5), 2, 12)

    monkeypatch.setattr(moves, "of_pool", of_pool)


def sizes(folder: Path) -> dict[int, tuple[int, int]]:
    """Step -> prompts and rollouts of each, by the record."""
    (path,) = folder.rglob("grposcope/groups.jsonl")
    found: dict[int, list[int]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        found.setdefault(row["step"], []).append(len(row["rewards"]))
    assert all(len(set(each)) == 1 for each in found.values())
    return {step: (len(each), each[0]) for step, each in found.items()}


def test_groups_move_where_a_pass_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "grposcope")
    looks: list[tuple[int, int]] = []
    moving(monkeypatch, looks)
    trainer = tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours=OURS, **RUN)
    trainer.train()
    assert trainer.state.global_step == 6
    assert sizes(tmp_path) == {**dict.fromkeys((1, 2), (2, 4)), **dict.fromkeys((3, 4, 5, 6), (4, 2))}
    assert looks == [(4, 2), (2, 2)]
    (path,) = tmp_path.rglob(events.EVENTS)
    story = events.read(path.parent)
    assert story is not None
    assert [(one.step, one.group, one.prompts) for one in story.decisions] == [(2, 2, 4)]
    assert "where a pass over the data begins (every 2)" in caplog.text
    assert "The run continues with groups of 2 rollouts, 4 prompts a batch" in caplog.text
    assert "step 4: the group size stays at 2: it is good" in caplog.text


def test_a_run_of_one_pass_says_that_its_groups_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "grposcope")
    trainer = tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours=OURS, **{**RUN, "max_steps": 2})
    trainer.train()
    assert "the group size stays at 4: in TRL it moves where a pass over the data begins" in caplog.text
    assert sizes(tmp_path) == dict.fromkeys((1, 2), (2, 4))


@pytest.mark.slow
def test_a_resumed_run_keeps_its_group_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moving(monkeypatch)
    saving = {**RUN, "save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "constant"}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder, steps in ((whole, 6), (cut, 3)):
        folder.mkdir()
        tiny_trl.trainer(folder, [], kind=GRPOscopeTrainer, ours=OURS, **{**saving, "max_steps": steps}).train()
    again = tiny_trl.trainer(cut, [], kind=GRPOscopeTrainer, ours=OURS, **saving)
    again.train(resume_from_checkpoint=True)
    assert again.num_generations == 2
    assert sizes(cut) == sizes(whole)
    prompts = [
        [json.loads(line)["problem"] for line in next(one.rglob("groups.jsonl")).read_text().splitlines()]
        for one in (whole, cut)
    ]
    assert prompts[0] == prompts[1]


def test_what_cannot_move_is_refused(tmp_path: Path) -> None:
    for ours, says in (
        ({"num_generations": 8}, "set a number in GRPOConfig"),
        ({**OURS, "allocate": "filter"}, "leave out allocate"),
        ({**OURS, "constraints": ["length<=4"]}, "needs no constraints"),
    ):
        with pytest.raises(UserError, match=says):
            tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours=ours, **RUN)
    with pytest.raises(UserError, match="needs advantages without a scale of each group"):
        tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours=OURS, **{**RUN, "scale_rewards": "group"})


def test_draws_keep_the_length_of_a_pass_and_spread_over_the_data() -> None:
    draws = _GroupDraws(10, 4, 8, 2, seed=0)
    assert len(draws) == len(list(draws)) == 5 * 8 * 2
    first = list(draws)
    assert [set(first[:4]), set(first[4:8])] == [{first[0]}, {first[4]}]
    assert first[:8] == first[8:16]
    draws.passed = 1
    assert list(draws) != first
    draws.group = 2
    rows = list(draws)
    assert len(rows) == len(first)
    assert all(rows[i] == rows[i + 1] for i in range(0, len(rows), 2))
    assert {rows.count(row) for row in range(10)} == {2 * 2 * 2}  # twice through the data, each batch twice, in pairs
    in_turn = _GroupDraws(4, 2, 4, 1, seed=None)
    assert list(in_turn) == [0, 0, 1, 1, 2, 2, 3, 3]
