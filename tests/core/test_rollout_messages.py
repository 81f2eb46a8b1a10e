"""Messages of a completion, of which a damaged file may hold anything."""

from __future__ import annotations

from typing import Any

from grposcope.core.rollouts import Rollout
from grposcope.signs.texts import sample, turn_features


def test_what_is_no_message_is_passed_over() -> None:
    said: Any = [1, {"role": "assistant", "content": "x", "tool_calls": 3}, None, "a", {"role": "assistant"}]
    row = Rollout(completion=said)
    assert (row.turn_count, row.calls) == (2, 0)
    assert sample.written(said) == "x"
    assert len(turn_features.of_rollout(row)) == 2


def test_calls_are_those_of_the_lists() -> None:
    said: Any = [{"role": "assistant", "content": "x", "tool_calls": [{"name": "f"}, {"name": "g"}]}]
    assert Rollout(completion=said).calls == 2
