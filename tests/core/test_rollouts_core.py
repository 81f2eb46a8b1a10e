"""The rollout as a type: how long it is, its turns, and which belong together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grposcope.core.rollouts import Rollout, Rollouts, plain_text, turns_of

WRITTEN = np.array([True, True, False, False, True])


@pytest.mark.parametrize(
    ("row", "size"),
    [
        (Rollout(), math.nan),
        (Rollout(completion="four"), 4),
        (Rollout(completion=[{"role": "assistant", "content": "ab"}, {"role": "tool", "content": "c"}]), 4),
        (Rollout(completion="four", mask=np.array([True, False])), 2),
        (Rollout(mask=np.zeros(5, bool), completion_ids=np.arange(5)), 5),
        (Rollout(mask=WRITTEN, written=WRITTEN, completion_ids=np.arange(5)), 3),
        (Rollout(length=7.0, completion_ids=np.arange(5)), 7),
    ],
)
def test_its_size_is_what_the_policy_wrote(row: Rollout, size: float) -> None:
    """Tokens of tools do not count, and those without a weight in the loss do."""
    assert row.size == pytest.approx(size, nan_ok=True)


def test_a_turn_begins_where_the_policy_writes_after_others() -> None:
    assert turns_of(WRITTEN).tolist() == [0, 0, 0, 0, 1]
    assert turns_of(~WRITTEN).tolist() == [-1, -1, 0, 0, 0]
    assert turns_of(np.empty(0, bool)).tolist() == []


def test_groups_are_those_of_a_step() -> None:
    rows = Rollouts(tuple(Rollout(step=step, group=name, reward=float(step)) for step in (2, 1) for name in "aab"))
    assert rows.groups == {(2, "a"): (0, 1), (2, "b"): (2,), (1, "a"): (3, 4), (1, "b"): (5,)}
    assert list(rows.steps.items()) == [(1, (3, 4, 5)), (2, (0, 1, 2))]
    assert not Rollouts((Rollout(),)).groups
    pairs = Rollouts(tuple(Rollout(group=str(i // 2), reward=float(i)) for i in range(4)))
    assert pairs.group_rewards.tolist() == [[0, 1], [2, 3]]


def test_a_conversation_is_its_texts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert plain_text([{"content": parts}, {"content": None}, {"content": "c"}]) == "ab\nc"
