"""A reward for trying nothing that is above that of a failed try is said, with both means; sound defaults are not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import written_texts

from grposcope import cli
from grposcope.core.rollouts import Rollout
from grposcope.faults import judge_texts
from grposcope.logs import read
from grposcope.signs.texts import idle_tries

IDLE = {"empty": "  ", "abstains": "I don't know.", "no call": "The answer may be 7, or so I think, all in all."}


def rows(kind: str, default: float, failed: float = 0.0, share: float = 0.15, seed: int = 3) -> list[Rollout]:
    """Tries that are paid 1 or `failed`, and a share of completions of a kind that are paid `default`."""
    rng, made = np.random.default_rng(seed), []
    for row in written_texts.rollouts(None, seed, steps=12, prompts=6, truth=False):
        calls = int(rng.integers(1, 4)) if kind == "no call" else None
        row = replace(row, calls_made=calls, reward=1.0 if row.reward else failed)
        if rng.random() < share:
            row = replace(row, completion=IDLE[kind], calls_made=None if calls is None else 0, reward=default)
        made.append(row)
    return made


@pytest.mark.parametrize(("kind", "said"), [
    ("empty", "are empty"), ("abstains", "say that they cannot answer"), ("no call", "call no tool"),
])  # fmt: skip
def test_doing_nothing_is_paid_more_than_a_failed_try(kind: str, said: str) -> None:
    """By a default above 0, or by a penalty of what fails; not below it, as the best, or as what fails."""
    drawn = rows(kind, 0.2)
    told = idle_tries.paid_more(drawn)
    assert told is not None
    count = sum(row.reward == 0.2 for row in drawn)
    fails = sum(row.reward == 0 for row in drawn)
    assert told.because == (
        f"the {count:,} completions that {said} are paid 0.2 each, the {fails:,} others in the lower half of the "
        "rewards 0 each"
    )
    assert idle_tries.paid_more(rows(kind, 0.0, failed=-1.0)) is not None
    for default, failed in ((0.0, 0.0), (-0.5, 0.0), (1.0, 0.0)):
        assert idle_tries.paid_more(rows(kind, default, failed)) is None
    assert idle_tries.paid_more(rows(kind, 0.2, share=0.01)) is None


def test_answers_without_a_call_that_are_right_or_wrong_are_tries() -> None:
    """Half of them are right, so that their mean is above that of what fails: no default."""
    rng = np.random.default_rng(0)
    drawn = [
        replace(row, reward=float(rng.random() < 0.5)) if row.calls_made == 0 else row for row in rows("no call", 0.2)
    ]
    assert idle_tries.paid_more(drawn) is None


def test_an_interval_is_over_groups() -> None:
    rng = np.random.default_rng(1)
    drawn = [replace(row, reward=0.1 * float(rng.random())) if row.reward == 0 else row for row in rows("empty", 0.3)]
    told = idle_tries.paid_more(drawn)
    assert told is not None
    _, fails = told.evidence
    due = np.mean([row.reward for row in drawn if row.reward <= 0.1])
    assert fails.value == pytest.approx(due)
    assert 0 < fails.se < 0.01
    assert "rewards 0.051 on average (95% interval over groups 0.047 to 0.055)" in told.because


def test_every_command_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rewards, texts and diagnose of a file of rollouts with one reward; a sound one in none of them."""
    for default in (0.2, 0.0):
        path = tmp_path / f"{default}.jsonl"
        path.write_text("".join(
            json.dumps({"step": row.step, "group": row.group, "prompt": row.prompt, "completion": row.completion,
                        "reward": row.reward}) + "\n"
            for row in rows("abstains", default)
        ))  # fmt: skip
        shown = [own for own in judge_texts.of_run(read(path)) if own.fault == "empty completions paid"]
        assert len(shown) == (default > 0)
        for command in ("rewards", "texts", "diagnose"):
            cli.main([command, str(path)])
            out = " ".join("".join(capsys.readouterr()).split())
            assert ("doing nothing is paid more than a failed try" in out.lower()) == (default > 0), command
