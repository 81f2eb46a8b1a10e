"""Errors of tools that stand in the messages of rollouts; as in ReCall #82, ToRL #27 and NeMo-RL #3589."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from grposcope.core.rollouts import Rollout
from grposcope.faults import judge, judge_claims
from grposcope.logs import read

FAILS = [
    "error: execution timed out",
    '{"error": "missing key"}',
    "Traceback (most recent call last):\n  File",
    "UnknownError",
    "Request timed out after 30 s",
    "HTTP 503 Service Unavailable",
    "<error>no sandbox</error>",
]
ANSWERS = ["42", '{"result": "a standard error of 0.2"}', "Errors-in-variables models are", "The timeout is 30 s", ""]


@pytest.mark.parametrize("text", FAILS)
def test_an_answer_that_begins_as_an_error_has_failed(text: str) -> None:
    assert Rollout(completion=[{"role": "tool", "content": text}]).failed_replies == [True]


@pytest.mark.parametrize("text", ANSWERS)
def test_any_other_answer_has_not(text: str) -> None:
    assert Rollout(completion=[{"role": "tool", "content": text}]).failed_replies == [False]


def test_answers_between_tags_count_one_by_one_and_what_the_policy_writes_does_not() -> None:
    said = [
        {"role": "assistant", "content": "<tool_response>error: mine</tool_response>"},
        {"role": "user", "content": "<tool_response>\nerror: 5 s\n</tool_response>\n<tool_response>7</tool_response>"},
    ]
    assert Rollout(completion=said).failed_replies == [True, False]
    assert Rollout(completion="<tool_response>error</tool_response>").failed_replies == []


def written(folder: Path, share: float) -> Path:
    """Rollouts of 40 steps as whole conversations, of which this share of the tools' answers are errors."""
    rng, rows = np.random.default_rng(3), []
    for step in range(1, 41):
        for member in range(8):
            failed = bool(rng.random() < share)
            said = [
                {"role": "user", "content": f"Which river runs through town {step}?"},
                {"role": "assistant", "content": '<tool_call>{"name": "find", "arguments": {}}</tool_call>'},
                {"role": "tool", "content": "Error: the index did not answer" if failed else "It is the Elbe."},
                {"role": "assistant", "content": f"The river is number {int(rng.integers(9))}."},
            ]
            rows.append({"step": step, "group": f"{step}.0", "messages": said, "reward": float(member % 2)})
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_share_of_failed_answers_beyond_a_half_is_named_and_few_are_not(tmp_path: Path) -> None:
    """The messages under `messages` are the prompt and the completion, as in a table of rollouts."""
    for share, present in ((0.75, True), (0.03, False)):
        folder = tmp_path / str(share)
        folder.mkdir()
        run = read(written(folder, share))
        assert abs(float(run.table["agent/call_failures"].mean()) - share) < 0.06
        found = [finding.present for finding in judge.diagnose(run) if finding.fault == "failing tools"]
        assert found == [present]


def test_texts_without_any_feature_that_varies_are_read(tmp_path: Path) -> None:
    """All completions are empty: nothing can be told of them, and nothing breaks."""
    rows = [
        {"step": step, "group": f"{step}", "prompt": f"Q{step}", "completion": "", "reward": float(k % 2)}
        for step in range(1, 13)
        for k in range(8)
    ]
    (tmp_path / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read(tmp_path)
    assert judge_claims.with_rollouts(run, judge.diagnose(run))
