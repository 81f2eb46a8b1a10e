"""One trajectory, written as one row or as a row a turn, is one rollout; what does not fit is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grposcope.core.rollouts import Rollout
from grposcope.core.trajectories import answers_without_calls, joined, with_histories

PROMPT, FIRST, TOOL, SECOND = [1, 2], [3, 4, 5], [6, 7], [8, 9]


def row(turn: int, before: list[int], own: list[int], **more: object) -> Rollout:
    values: dict[str, object] = {
        "trajectory": "t", "turn": turn, "prompt_ids": np.array(before), "completion_ids": np.array(own),
        "mask": np.ones(len(own), bool), "sampler": np.full(len(own), -0.1 * (turn + 1)),
        "advantages": np.array([0.5]), "where": f"row {turn}",
    }  # fmt: skip
    return Rollout(**(values | more))  # type: ignore[arg-type]


def turns() -> list[Rollout]:
    return [
        row(0, PROMPT, FIRST, reward=0.0, version=3.0, anchors=("s0",)),
        row(1, PROMPT + FIRST + TOOL, SECOND, reward=1.0, version=4.0, anchors=("s1",), stop="environment"),
    ]


def test_rows_of_turns_are_the_one_row() -> None:
    [whole], notes = joined(turns())
    assert notes == []
    assert whole.prompt_ids is not None
    assert whole.completion_ids is not None
    assert whole.prompt_ids.tolist() == PROMPT
    assert whole.completion_ids.tolist() == FIRST + TOOL + SECOND
    for flags, wanted in ((whole.mask, [1, 1, 1, 0, 0, 1, 1]), (whole.written, [1, 1, 1, 0, 0, 1, 1])):
        assert flags is not None
        assert flags.tolist() == [bool(value) for value in wanted]
    assert whole.turns is not None
    assert whole.turns.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert whole.sampler is not None
    np.testing.assert_array_equal(np.isnan(whole.sampler), [0, 0, 0, 1, 1, 0, 0])
    assert whole.turn_rewards is not None
    assert whole.turn_rewards.tolist() == [0.0, 1.0]
    assert (whole.reward, whole.stop, whole.anchors, whole.pieces) == (1.0, "environment", ("s0", "s1"), 2)
    assert whole.version_by_turn is not None
    assert whole.version_by_turn.tolist() == [3.0, 4.0]
    assert whole.turn_count == 2
    assert whole.advantages is not None
    assert whole.advantages.tolist() == [0.5]


def test_other_rows_stay_where_they_were() -> None:
    """Rows without a trajectory, and one that is a whole, are as they were, in the order of the first rows."""
    alone = Rollout(where="alone")
    made, _ = joined([turns()[0], alone, turns()[1], replace(turns()[0], trajectory="u")])
    assert [own.where for own in made] == ["row 0", "alone", "row 0"]
    assert made[2].pieces == 1


def test_a_reward_that_all_rows_share_is_that_of_the_trajectory() -> None:
    [whole], _ = joined([replace(own, reward=0.5) for own in turns()])
    assert whole.reward == 0.5
    assert whole.turn_rewards is None


def test_turns_out_of_order_are_put_in_order() -> None:
    [whole], notes = joined(turns()[::-1])
    assert whole.completion_ids is not None
    assert whole.completion_ids.tolist() == FIRST + TOOL + SECOND
    assert "not in order" in notes[0]


def test_two_trajectories_under_one_id_stay_apart() -> None:
    by_turn, told = joined([turns()[0], turns()[0]])
    assert len(by_turn) == 2
    assert "two rows are turn 0 of trajectory t" in told[0]
    by_prompt, told = joined([replace(turns()[0], turn=None), replace(turns()[0], turn=None)])
    assert len(by_prompt) == 2
    assert "begin with the same prompt" in told[0]


def test_ids_that_do_not_join_begin_a_history() -> None:
    """A retokenised past: the history before it hangs at the last token that both share."""
    second = row(1, [*PROMPT, 3, 4, 99, *TOOL], SECOND, reward=1.0)
    [whole], notes = joined([turns()[0], second])
    assert "first difference at token 4" in notes[0]
    assert whole.completion_ids is not None
    assert whole.completion_ids.tolist() == SECOND
    [other] = whole.continuations
    assert other.completion_ids is not None
    assert other.completion_ids.tolist() == FIRST  # another prompt: nothing of the completion is shared


def test_a_branch_hangs_where_it_leaves() -> None:
    main = row(0, PROMPT, [3, 4, 5, 6])
    branch = row(0, PROMPT, [3, 4, 7])
    [other] = with_histories(main, [branch]).continuations
    assert other.shared == 2
    assert other.completion_ids is not None
    assert other.completion_ids.tolist() == [7]
    assert other.mask is not None
    assert len(other.mask) == 1


def test_a_turn_without_tokens_and_a_missing_turn_are_said() -> None:
    [whole], notes = joined([*turns(), row(2, PROMPT + FIRST + TOOL + SECOND, [])])
    assert "1 of 3 turns of trajectory t have no tokens" in notes[0]
    assert whole.turn_count == 2
    [whole], notes = joined([turns()[0], replace(turns()[1], turn=2)])
    assert "turn 1 of trajectory t is missing" in notes[0]
    assert whole.turn_count == 2


def test_conversations_join_too() -> None:
    user, call, tool, answer = (
        {"role": role, "content": text}
        for role, text in (("user", "2+3="), ("assistant", "?"), ("tool", "5"), ("assistant", "5"))
    )
    first = Rollout(trajectory="t", turn=0, prompt=[user], completion=[call])
    second = Rollout(trajectory="t", turn=1, prompt=[user, call, tool], completion=[answer])
    [whole], notes = joined([first, second])
    assert notes == []
    assert whole.completion == [call, tool, answer]
    assert whole.turn_count == 2
    text, _ = joined([Rollout(trajectory="t", turn=0, prompt="a", completion="b"),
                      Rollout(trajectory="t", turn=1, prompt="abc", completion="d")])  # fmt: skip
    assert text[0].completion == "bcd"


def test_an_answer_without_a_call_is_said() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "1"}]}
    tool = {"role": "tool", "content": "5"}
    assert answers_without_calls([Rollout(completion=[call, tool, tool])]) == ""
    stray = answers_without_calls([Rollout(where="row 7", completion=[{"role": "assistant", "content": "x"}, tool])])
    assert stray == "messages of tools that answer no recorded call: 1; the first is in row 7"


def test_groups_of_two_trajectories_under_one_id_are_left_out_where_these_are_few() -> None:
    rows = [replace(own, trajectory=name, group=name, named=True) for name in "abc" for own in turns()]
    made, notes = joined([*rows, replace(turns()[0], trajectory="b", group="b", named=True)])
    assert [own.group for own in made] == ["a", "c"]
    assert "two trajectories have one id" in notes[0]
    assert notes[1] == "groups with such trajectories are left out: 1"
    made, notes = joined([turns()[0], *turns()])
    assert len(made) == 3
    assert len(notes) == 1


def test_turns_before_the_only_one_of_a_trajectory_are_missed() -> None:
    made, notes = joined([*turns(), *(replace(turns()[1], trajectory=name) for name in "uv")])
    assert len(made) == 3
    assert notes == ["row 1: the turns before turn 1 of trajectory u are missing; so it is with 1 more"]
    assert joined(replace(turns()[1], trajectory=name) for name in "uv")[1] == []
