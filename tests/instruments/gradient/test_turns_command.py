"""A probe of rollouts with turns, from a file to the plan: what credit for turns saves is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from grposcope.cli import main
from grposcope.core.estimate import Estimate
from grposcope.instruments.gradient import probe_record, turn_answer
from grposcope.instruments.gradient.answer import _turn_table
from grposcope.lab import policies
from grposcope.maths.turn_moments import TurnSavings

GROUP, PROMPTS = 4, 3


def drawn(place: Path) -> Path:
    """Rollouts of two or three turns of the shipped model on made-up prompts, with a token of a tool between them."""
    policy = policies.load("tiny", torch.float32, torch.device("cpu"), False)
    stream = torch.Generator().manual_seed(0)
    rows: list[dict[str, Any]] = []
    for prompt in range(PROMPTS):
        before = policy.tokenizer(f"{prompt + 2}+{prompt + 1}=", add_special_tokens=False).input_ids
        tool = policy.tokenizer("7", add_special_tokens=False).input_ids
        for member in range(GROUP):
            ids, mask, turns, rewards = list[int](), list[int](), list[int](), list[float]()
            for turn in range(2 + member % 2):
                for _ in range(2):
                    with torch.no_grad():
                        logits = policy.model(torch.tensor([before + ids])).logits[0, -1]
                    ids.append(int(torch.multinomial(logits.softmax(-1), 1, generator=stream)))
                    mask.append(1)
                    turns.append(turn)
                rewards.append(float(torch.rand(1, generator=stream)))
                ids, mask, turns = [*ids, *tool], [*mask, *[0] * len(tool)], [*turns, *[turn] * len(tool)]
            rows.append({
                "step": 1, "group": f"g{prompt}", "prompt_ids": before, "completion_ids": ids, "mask": mask,
                "turns": turns, "turn_rewards": rewards, "reward": sum(rewards), "truncated": False,
            })  # fmt: skip
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


@pytest.mark.slow
def test_from_rollouts_to_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = drawn(tmp_path / "rollouts.jsonl")
    assert main(["probe", "--model", "tiny", "--rollouts", str(path), "--out", str(tmp_path / "probe")]) == 0
    shown = capsys.readouterr()
    assert "a pass more with a row for each turn" in shown.err
    assert (
        "Credit by the return from the turn on" in " ".join(shown.out.split())
        or "would save cannot be told" in shown.out
    )
    record = probe_record.read(tmp_path / "probe")
    assert record.turns is not None
    assert {*record.turns.ratio} == {"reward of the rollout", "return from the turn on"}
    assert len(record.turns.share) == 3
    assert main(["plan", str(tmp_path / "probe")]) in (0, 1)
    assert "turn" in capsys.readouterr().out


def savings(low: float, high: float) -> TurnSavings:
    known = Estimate(0.7, 0.05, 40)
    return TurnSavings(
        8, {"reward of the rollout": known, "return from the turn on": known},
        {"reward of the rollout": Estimate(1.0, 0.0, 40), "return from the turn on": known},
        {"reward of the rollout": (1.0, 1.0), "return from the turn on": (low, high)},
        (Estimate(0.6, 0.1, 40), Estimate(0.4, 0.1, 40)), 40,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0.6, 0.8, "rewards of turns are worth having"), (0.92, 1.0, "it saves little"), (0.7, 1.1, "more prompts")],
)
def test_what_is_said(low: float, high: float, words: str) -> None:
    shares, saving = turn_answer.sentences(savings(low, high))
    made = "is made 60% by turn 1 and 40% by turn 2."
    assert shares == f"With groups of 8, the noise of the gradient under the reward of the rollout {made}"
    assert words in saving
    assert "0.7 × the noise of the reward of the rollout" in saving
    assert [row[0] for row in _turn_table(savings(low, high)).rows][-1] == "of that, turn 2"
