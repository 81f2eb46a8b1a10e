"""Plain tables of rollouts that hold a whole conversation."""

from __future__ import annotations

import json
from pathlib import Path

from grposcope.logs import plain_rollouts


def test_a_whole_conversation_is_prompt_and_completion(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "buy it"}, {"role": "assistant", "content": "search"},
            {"role": "user", "content": "found"}, {"role": "assistant", "content": "buy"}]  # fmt: skip
    path = tmp_path / "evaluation.jsonl"
    rows = [{"task": 1, "conversation": said, "reward": 1.0}, {"task": 2, "conversation": said[:1], "reward": 0.0},
            {"task": 3, "completion": "x", "messages": said, "reward": 0.0}]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = plain_rollouts.rollouts(path)
    assert (made[0].prompt, made[0].completion, made[0].turn_count) == (said[:1], said[1:], 2)
    assert made[1].completion is None
    assert made[2].completion == "x"


def test_a_list_that_is_nested_too_deeply_holds_no_rollouts(tmp_path: Path) -> None:
    (tmp_path / "rollouts.json").write_text("[" * 100_000)
    assert list(plain_rollouts._lines(tmp_path / "rollouts.json")) == []
