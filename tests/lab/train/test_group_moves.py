"""A run that sets its own group size: when it probes and looks, what it records, and that a kill changes nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import config, rows, stopped_at, timeless, weights

from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.core.finding import Finding
from grposcope.instruments.autopilot import answer, events
from grposcope.instruments.autopilot.pilot import group_move
from grposcope.instruments.gradient.probe_record import read_gram
from grposcope.instruments.group_size import moves, probe_pool
from grposcope.instruments.group_size.moves import GroupMove
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.rollouts import Batch
from grposcope.lab.train import group_moves
from grposcope.lab.train.config import GROUP, PAUSE, TrainConfig, check
from grposcope.lab.train.loop import resume, train
from grposcope.lab.train.setup import prepare
from grposcope.logs import read


@pytest.fixture
def settings(policy: Policy, tmp_path: Path) -> TrainConfig:
    return config(
        policy, tmp_path, steps=9, prompts=3, group=4, recipe="rloo", auto_group=3, eval_problems=0, threads=1,
        checkpoint_every=2, keep_checkpoints=0, rollouts_every=0, warmup=0, schedule="constant",
    )  # fmt: skip


def moving(monkeypatch: pytest.MonkeyPatch, *targets: int) -> list[tuple[int, list[int]]]:
    """Every look moves to the next of these sizes, then stays; what is returned fills with size and sizes of a look."""
    looks: list[tuple[int, list[int]]] = []

    def of_pool(files: Any, used: int, among: list[int]) -> GroupMove:
        looks.append((used, [len(file.rewards) for file in files]))
        there = {4: targets[0], **dict(pairwise(targets))}
        if used not in there or there[used] == used:
            return GroupMove(used, used, reason="it is good")
        return GroupMove(used, there[used], 2.0, (1.5, 2.5), there[used], 12)

    monkeypatch.setattr(moves, "of_pool", of_pool)
    return looks


def sizes(folder: Path) -> list[tuple[int, ...]]:
    """Groups of each step, as prompts × rollouts."""
    found: dict[int, list[int]] = {}
    for row in rows(folder, "groups"):
        found.setdefault(row["step"], []).append(len(row["rewards"]))
    return [(len(each), each[0]) for _, each in sorted(found.items())]


def test_the_size_moves_at_equal_rollouts_and_not_before_its_time(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = moving(monkeypatch, 2, 6)
    train(settings)
    folder = Path(settings.out or "")
    assert sizes(folder) == [(3, 4)] * 3 + [(6, 2)] * 3 + [(2, 6)] * 3
    assert [used for used, _ in looks] == [4, 2]
    assert all(sum(prompts) > 0 for _, prompts in looks)
    story = events.read(folder)
    assert story is not None
    assert [(one.step, one.group, one.prompts, one.fault) for one in story.decisions] == [(3, 2, 6, ""), (6, 6, 2, "")]
    said = answer._section([read(folder)])
    assert said is not None
    assert said.sentence == "The autopilot acted twice."
    assert said.text[0] == (
        "Step 3: Another group size needs fewer rollouts: for the same error of the gradient G = 4 needs 2 times the "
        "rollouts of G = 2 (95% 1.5 to 2.5, 12 prompts probed at steps 1 to 3). The run continues with groups of 2 "
        "rollouts, 6 prompts a batch."
    )
    assert not any("needless alarm" in line for line in said.text)
    assert said.text[0].split(": The")[0][:30] in capsys.readouterr().err


def test_the_first_move_comes_early_where_two_looks_name_the_same_size(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """9 prompts are probed by step 3, so that step 4 looks at 12 and at 9; a second move waits its time."""
    looks = moving(monkeypatch, 2, 6)
    monkeypatch.setattr(probe_pool, "_drifting", lambda files: None)
    train(replace(settings, auto_group=5, steps=10))
    assert sizes(Path(settings.out or "")) == [(3, 4)] * 4 + [(6, 2)] * 5 + [(2, 6)]
    assert looks[:2] == [(4, [3] * 4), (4, [3] * 3)]


def test_an_early_move_that_the_last_probe_alone_names_waits(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_pool(files: Any, used: int, among: list[int]) -> GroupMove:
        return GroupMove(used, 2 if len(files) % 2 else 6, 2.0, (1.5, 2.5), 2, 12)

    monkeypatch.setattr(moves, "of_pool", of_pool)
    train(replace(settings, auto_group=7, steps=7))
    assert sizes(Path(settings.out or "")) == [(3, 4)] * 7


def test_a_run_in_which_nothing_moves_is_the_run_left_alone(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    moving(monkeypatch, 4)
    train(settings)
    alone = replace(settings, auto_group=0, out=str(tmp_path / "alone"))
    train(alone)
    probed, bare = (rows(Path(one.out or ""), "steps") for one in (settings, alone))
    for row in probed:
        row.pop("seconds_probe", None)
    assert timeless(probed) == timeless(bare)
    assert weights(Path(settings.out or "")) == weights(Path(alone.out or ""))
    assert not (Path(settings.out or "") / events.EVENTS).exists()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [4, 8])
def test_a_resumed_run_keeps_its_group_size(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, killed: int
) -> None:
    moving(monkeypatch, 2, 6)
    train(settings)
    other = replace(settings, out=str(tmp_path / "killed"))
    stopped_at(monkeypatch, other, killed)
    resume(Path(other.out or ""))
    one, again = Path(settings.out or ""), Path(other.out or "")
    assert sizes(again) == sizes(one)
    for name in ("groups", "autopilot"):
        assert rows(again, name) == rows(one, name)
    assert weights(again) == weights(one)


def test_a_probe_has_the_scores_of_groups_with_a_gradient(settings: TrainConfig, tmp_path: Path) -> None:
    setup = prepare(settings)
    batch: Batch = setup.collect(0, 0)
    rewards = batch.rollouts.rewards.clone()
    rewards[1] = 0.5
    rollouts = replace(batch.rollouts, rewards=rewards)
    gram = group_moves._gram_of(setup, rollouts, check=True)
    assert gram.shape == (12, 12)
    assert not gram[4:8].any()
    assert not gram[:, 4:8].any()
    for row in (0, 3, 8):
        setup.policy.model.zero_grad()
        logits = setup.policy.model(
            torch.cat([rollouts.prompt_ids, rollouts.tokens], -1)[row : row + 1],
            attention_mask=torch.cat([rollouts.prompt_mask, rollouts.mask], -1)[row : row + 1],
        ).logits[0, rollouts.prompt_ids.shape[1] - 1 : -1]
        logp = logits.log_softmax(-1).gather(-1, rollouts.tokens[row][:, None])[:, 0]
        (logp * rollouts.mask[row]).sum().backward()
        square = sum(float((p.grad**2).sum()) for p in setup.policy.model.parameters() if p.grad is not None)
        assert gram[row, row] == pytest.approx(square, rel=1e-3)


def test_large_groups_are_probed_by_their_first_rollouts(
    settings: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setup = prepare(replace(settings, prompts=2, group=6))
    batch: Batch = setup.collect(0, 0)
    every = group_moves._gram_of(setup, batch.rollouts, check=True)
    monkeypatch.setattr(group_moves, "ROLLOUTS", 5)
    made = group_moves._GroupMoves(setup, tmp_path, 0)
    made.probe(1, batch, print)
    few = read_gram(tmp_path / group_moves.FOLDER / "step-000001")
    assert few.rewards.shape == (2, 5)
    kept = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert few.gram == pytest.approx(every[np.ix_(kept, kept)], rel=1e-4, abs=1e-4)


def test_probes_are_kept_and_pooled_since_the_last_move(settings: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = moving(monkeypatch, 6)
    train(settings)
    folder = Path(settings.out or "") / group_moves.FOLDER
    shapes = [read_gram(place).rewards.shape for place in sorted(folder.iterdir())]
    assert shapes == [(3, 4)] * 3 + [(2, 6)] * 6
    assert looks[0] == (4, [3, 3, 3])
    assert looks[1] == (6, [2, 2, 2])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"recipe": "grpo"}, "those of recipe grpo here are others"),
        ({"recipe": "dapo"}, "use recipe rloo or dr_grpo"),
        ({"recipe": "reinforce"}, "use recipe rloo or dr_grpo"),
        ({"staleness": "2"}, "staleness is 2"),
        ({"allocate": "filter"}, "allocate is filter"),
        ({"correction": "none"}, "correction is none"),
        ({"constraint": "length<=4"}, "constraint is length<=4"),
    ],
)
def test_settings_whose_savings_are_not_known_are_refused(
    settings: TrainConfig, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        check(replace(settings, **changes))


def test_auto_begins_with_eight_and_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    given: Any = "auto"
    made = TrainConfig(group=given)
    assert (made.group, made.auto_group) == (GROUP, PAUSE) == (8, 20)
    assert TrainConfig(group=given, auto_group=7).auto_group == 7
    assert TrainConfig().auto_group == 0
    assert main(["train", "--group", "auto", "--recipe", "dapo"]) == 2
    assert "--auto-group" in capsys.readouterr().err


def test_a_saving_survives_the_record(tmp_path: Path) -> None:
    one = group_move(7, GroupMove(32, 8, 3.0, (2.0, 4.0), 5, 40), (1, 4, 7), 16, (2, 0.5))
    events.append(tmp_path, one)
    story = events.read(tmp_path)
    assert story is not None
    (again,) = story.decisions
    assert math.isnan(again.expected)
    assert (again.step, again.group, again.prompts, again.interval, again.factor) == (7, 8, 16, 2, 0.5)
    assert isinstance(again.why, Finding)
    assert (again.fault, again.why.status) == ("", "excluded")
    assert [sign.value for sign in again.why.evidence] == [3.0, 2.0, 4.0]
    assert "G = 32 needs 3 times the rollouts of G = 8 (95% 2 to 4, 40 prompts" in again.why.because
