"""Loops that print the reward of each completion in a line of its own, and what evaluations say they did."""

from __future__ import annotations

from pathlib import Path

import pytest

from grposcope.core.errors import UserError
from grposcope.logs import read
from grposcope.logs.formats.key_values import parse

GROUP, UPDATES = 4, 30
REWARDS = [[round(0.1 * ((3 * k + i) % 7), 1) for i in range(GROUP)] for k in range(UPDATES)]


def text(rewards: list[list[float]]) -> str:
    """What such a loop prints: answers, their rewards, then the loss of the update."""
    lines = []
    for k, group in enumerate(rewards):
        for reward in group:
            lines += ["A farmer has 48 hens, so the answer is 12", f"reward is {reward}", "truncated? False"]
        lines += [f"grpo_loss is -0.0{k % 9} and kl is 0.0{k % 5}", "[clock] group done in 3.5s"]
        lines += [f"[step {k + 1}] avg_loss=0.02 acc=0.9"] if k % 10 == 9 else []
    return "\n".join(lines) + "\n"


def test_rewards_line_by_line_are_averaged_by_update(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(text(REWARDS))
    run = read(tmp_path / "train.log")
    assert run.table["step"].tolist() == list(range(1, UPDATES + 1))
    assert run.table["reward"].tolist() == pytest.approx([sum(group) / GROUP for group in REWARDS])
    assert run.table["kl"].tolist() == [float(f"0.0{k % 5}") for k in range(UPDATES)]
    assert any("taken for single completions" in note for note in run.meta.notes)


def test_updates_without_rewards_keep_the_count(tmp_path: Path) -> None:
    some = [group if k % 3 == 0 else [] for k, group in enumerate(REWARDS)]
    (tmp_path / "train.log").write_text(text(some))
    run = read(tmp_path / "train.log")
    with_reward = [k + 1 for k in range(UPDATES) if k % 3 == 0]
    assert [int(s) for s, r in zip(run.table["step"], run.table["reward"], strict=True) if r == r] == with_reward


def test_one_reward_for_each_loss_is_no_list_of_completions(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(text([group[:1] for group in REWARDS]))
    try:
        run = read(tmp_path / "train.log")
    except UserError:
        return
    assert not any("taken for single completions" in note for note in run.meta.notes)


def test_a_number_after_an_is_has_the_name_before_it() -> None:
    line = parse("grpo_loss is -0.25 and kl is 0.125")
    assert [(number.name, number.value) for number in line.numbers] == [("grpo_loss", -0.25), ("kl", 0.125)]
    assert [number.name for number in parse("is 5").numbers] == ["is"]


def test_what_an_evaluation_did_is_no_score(tmp_path: Path) -> None:
    lines = []
    for k in range(8):
        lines += [f"step {k + 1}: loss=-0.01, reward=0.7{k}", "evaluation.panel - Saved 4 validation plots",
                  "evaluation.panel - Evaluation finished: 0.25 s", f"validation: exact_match: 0.{k}"]  # fmt: skip
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    run = read(tmp_path / "train.log")
    assert [metric for metric in run.evaluations.metrics if "match" not in metric] == []
    assert run.evaluations.metrics != ()
