"""Rollouts of several turns as trainers write them: as one row, or as a row a turn, they are one trajectory.

The forms of the rows are those of each trainer: verl's rollout_data_dir with the uid of its agent loop, SkyRL's
generator output with and without step_wise_trajectories, rLLM's EpisodeLogger, Agent Lightning's transitions, ART's
histories, traces of prime-rl, the state of verifiers, and TRL's completions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout
from grposcope.logs import read
from grposcope.logs.read_rollouts import rollouts
from grposcope.logs.rollout_rows import rows_of
from grposcope.signs.rollouts.claims import texts, turns
from grposcope.signs.rollouts.evidence import PipelineEvidence
from grposcope.signs.texts import sample

PROMPT, FIRST, TOOL, SECOND = [1, 2], [3, 4, 5], [6, 7], [8, 9]
WHOLE = FIRST + TOOL + SECOND
MASK = [1, 1, 1, 0, 0, 1, 1]
LOGPS = [-0.1, -0.2, -0.3, 0.0, 0.0, -0.4, -0.5]
USER = {"role": "user", "content": "2+3="}
CALL = {"role": "assistant", "content": "?", "tool_calls": [{"id": "c", "function": {"name": "add"}}]}
ANSWER = {"role": "tool", "content": "5", "tool_call_id": "c"}
LAST = {"role": "assistant", "content": "5"}


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def skyrl(folder: Path, by_turn: bool) -> Path:
    name = {"instance_id": "p1", "repetition_id": 0}
    if not by_turn:
        return lines(folder / "rollouts.jsonl", [{
            "step": 3, "trajectory_id": name, "prompt_token_ids": PROMPT, "response_ids": WHOLE, "loss_mask": MASK,
            "rewards": [0.0] * 6 + [1.0], "stop_reason": "stop", "rollout_logprobs": LOGPS,
        }])  # fmt: skip
    return lines(folder / "rollouts.jsonl", [
        {"step": 3, "trajectory_id": name, "prompt_token_ids": PROMPT, "response_ids": FIRST, "loss_mask": [1, 1, 1],
         "rewards": [0.0] * 3, "stop_reason": "stop", "rollout_logprobs": LOGPS[:3], "is_last_step": False},
        {"step": 3, "trajectory_id": name, "prompt_token_ids": PROMPT + FIRST + TOOL, "response_ids": SECOND,
         "loss_mask": [1, 1], "rewards": [0.0, 1.0], "stop_reason": "stop", "rollout_logprobs": LOGPS[5:],
         "is_last_step": True},
    ])  # fmt: skip


def agent_lightning(folder: Path, by_turn: bool) -> Path:
    """A transition a turn; its newer versions merge transitions whose prompts go on into one row."""
    if not by_turn:
        return lines(folder / "rollouts.jsonl", [{
            "step": 3, "group": "d1", "rollout_id": "ro-1", "turn_index": 0, "prompt_ids": PROMPT,
            "response_ids": WHOLE, "response_mask": MASK, "reward": 1.0, "rollout_log_probs": LOGPS,
        }])  # fmt: skip
    return lines(folder / "rollouts.jsonl", [
        {"step": 3, "group": "d1", "rollout_id": "ro-1", "turn_index": turn, "prompt_ids": before,
         "response_ids": own, "response_mask": [1] * len(own), "reward": 1.0, "rollout_log_probs": logps}
        for turn, before, own, logps in ((0, PROMPT, FIRST, LOGPS[:3]), (1, PROMPT + FIRST + TOOL, SECOND, LOGPS[5:]))
    ])  # fmt: skip


def verl(folder: Path, by_turn: bool) -> Path:
    """Texts alone: verl dumps no ids; the outputs of a session of its agent loop are rows of their own."""
    if not by_turn:
        return lines(
            folder / "3.jsonl", [{"input": "2+3=", "output": "? 5 5", "score": 1.0, "step": 3, "uid": "u_0_0"}]
        )
    return lines(folder / "3.jsonl", [
        {"input": "2+3=", "output": "?", "score": 1.0, "step": 3, "uid": "u_0_0"},
        {"input": "2+3=? 5 ", "output": "5", "score": 1.0, "step": 3, "uid": "u_0_1"},
    ])  # fmt: skip


def rllm(folder: Path, by_turn: bool) -> Path:
    steps = [
        {"chat_completions": [USER, CALL], "reward": 0.0, "prompt_ids": PROMPT, "response_ids": FIRST,
         "logprobs": LOGPS[:3]},
        {"chat_completions": [USER, CALL, ANSWER, LAST], "reward": 1.0, "prompt_ids": PROMPT + FIRST + TOOL,
         "response_ids": SECOND, "logprobs": LOGPS[5:]},
    ]  # fmt: skip
    if not by_turn:
        return lines(folder / "rollouts.jsonl", [{
            "step": 3, "group": "p1:solver", "prompt_ids": PROMPT, "completion_ids": WHOLE, "mask": MASK,
            "reward": 1.0, "rollout_logprobs": LOGPS,
        }])  # fmt: skip
    place = folder / "episodes" / "train_step_3_epoch_0" / "episode_hashab_idp1_0.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({
        "training_step": 3, "epoch": 0, "episode_id": "p1:0", "task": {"q": "2+3="}, "is_correct": True,
        "termination_reason": "env_done", "metrics": {}, "trajectories": [
            {"name": "solver", "uid": "t1", "reward": 1.0, "steps": steps}],
    }, indent=2))  # fmt: skip
    return folder


def art(folder: Path, by_turn: bool) -> Path:
    def choice(message: dict[str, Any]) -> dict[str, Any]:
        return {"finish_reason": "stop", "index": 0, "message": message}

    whole = [USER, choice(CALL), ANSWER, choice(LAST)]
    first, further = (whole[:2], [{"messages_and_choices": whole}]) if by_turn else (whole, [])
    row = {"reward": 1.0, "metrics": {}, "messages_and_choices": first, "additional_histories": further}
    return lines(folder / "trajectories" / "train" / "0003.jsonl", [{"trajectories": [row]}])


def prime_rl(folder: Path, by_turn: bool) -> Path:
    """A graph of messages, of which a branch is one row and a shared node trains once; or the row of the branch."""
    if not by_turn:
        return lines(folder / "rollouts.jsonl", [{
            "step": 3, "group": "g1", "prompt_ids": PROMPT, "completion_ids": WHOLE, "mask": MASK, "reward": 1.0,
            "rollout_logprobs": LOGPS,
        }])  # fmt: skip
    nodes = [
        {"message": USER, "sampled": False, "token_ids": PROMPT, "mask": [False] * 2, "logprobs": []},
        {"parent": 0, "message": CALL, "sampled": True, "token_ids": FIRST, "mask": [True] * 3, "logprobs": LOGPS[:3]},
        {"parent": 1, "message": ANSWER, "sampled": False, "token_ids": TOOL, "mask": [False] * 2, "logprobs": []},
        {"parent": 2, "message": LAST, "sampled": True, "token_ids": SECOND, "mask": [True] * 2, "logprobs": LOGPS[5:]},
    ]
    trace = {"nodes": nodes, "task": {"key": "p1"}, "rewards": {"right": 1.0}, "ok": True, "stop_condition": "done"}
    episode = {"task": {"key": "p1"}, "group": {"id": "g1"}, "traces": [trace],
               "run": {"type": "train", "work": {"step": 3}}}  # fmt: skip
    return lines(folder / "traces.jsonl", [episode])


def verifiers(folder: Path, by_turn: bool) -> Path:
    row: dict[str, Any] = {"example_id": 1, "prompt": [USER], "completion": [CALL, ANSWER, LAST], "reward": 1.0}
    if by_turn:
        row["trajectory"] = [
            {"tokens": {"prompt_ids": before, "completion_ids": own, "completion_logprobs": logps}, "reward": None}
            for before, own, logps in ((PROMPT, FIRST, LOGPS[:3]), (PROMPT + FIRST + TOOL, SECOND, LOGPS[5:]))
        ]  # fmt: skip
    return lines(folder / "results.jsonl", [row])


def trl(folder: Path, by_turn: bool) -> Path:
    """One row a trajectory, in the messages of its completion."""
    place = folder / "completions" / "completions_00003.parquet"
    place.parent.mkdir(parents=True)
    row = {"step": 3, "prompt": [USER], "completion": [CALL, ANSWER, LAST], "right": 1.0, "advantage": 0.5}
    pq.write_table(pa.Table.from_pylist([row]), place)
    return folder


WRITERS = {
    "skyrl": skyrl, "agent lightning": agent_lightning, "verl": verl, "rllm": rllm, "art": art, "prime-rl": prime_rl,
    "verifiers": verifiers, "trl": trl,
}  # fmt: skip
TOKENS = ("skyrl", "agent lightning", "rllm", "prime-rl")


def read_one(folder: Path, name: str, by_turn: bool) -> Rollout:
    rows = rollouts(WRITERS[name](folder, by_turn))
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize("name", TOKENS)
def test_one_row_and_a_row_a_turn_have_the_same_tokens(tmp_path: Path, name: str) -> None:
    whole, turns = (read_one(tmp_path / str(by_turn), name, by_turn) for by_turn in (False, True))
    for column in ("prompt_ids", "completion_ids", "turns"):
        np.testing.assert_array_equal(getattr(whole, column), getattr(turns, column), err_msg=column)
    assert turns.turn_count == 2
    assert turns.mask is not None or turns.written is not None
    drawn = turns.written if turns.mask is None else turns.mask
    np.testing.assert_array_equal(whole.mask, drawn)
    assert drawn is not None
    assert whole.sampler is not None
    assert turns.sampler is not None
    np.testing.assert_array_equal(whole.sampler[drawn], turns.sampler[drawn])
    assert (whole.reward, whole.step) == (turns.reward, turns.step) == (1.0, 3)


@pytest.mark.parametrize("name", ["verl", "art", "verifiers", "trl"])
def test_one_row_and_a_row_a_turn_say_the_same(tmp_path: Path, name: str) -> None:
    whole, turns = (read_one(tmp_path / str(by_turn), name, by_turn) for by_turn in (False, True))
    assert whole.completion == turns.completion
    assert (whole.reward, whole.group, whole.step) == (turns.reward, turns.group, turns.step)
    if name != "verl":  # its dump has no messages
        assert whole.turn_count == turns.turn_count == 2
        assert turns.calls == 1


def test_the_state_of_verifiers_has_the_tokens(tmp_path: Path) -> None:
    own = read_one(tmp_path, "verifiers", True)
    assert own.completion_ids is not None
    assert own.written is not None
    assert own.completion_ids.tolist() == WHOLE
    assert own.written.tolist() == [bool(flag) for flag in MASK]


def test_a_group_of_a_log_counts_trajectories(tmp_path: Path) -> None:
    """Rewards of a group are those of its trajectories, however many rows each has."""
    rows = []
    for number, (count, reward) in enumerate(((1, 1.0), (3, 0.0))):
        before = PROMPT
        for turn in range(count):
            rows.append({"step": 1, "group": "g", "trajectory": f"t{number}", "turn": turn, "prompt_ids": before,
                         "completion_ids": FIRST, "mask": [1, 1, 1], "reward": reward})  # fmt: skip
            before = before + FIRST + TOOL
    groups = read(lines(tmp_path / "rollouts.jsonl", rows)).groups
    assert groups.rewards.tolist() == [1.0, 0.0]


def test_branches_of_a_trace(tmp_path: Path) -> None:
    """Two branches after a shared call: the last one sampled is the rollout, the other hangs where it leaves."""
    path = prime_rl(tmp_path, True)
    episode = json.loads(path.read_text())
    episode["traces"][0]["nodes"].append(
        {"parent": 2, "message": LAST, "sampled": True, "token_ids": [10], "mask": [True], "logprobs": [-1.0]}
    )
    [own] = rollouts(lines(path, [episode]))
    assert own.completion_ids is not None
    assert own.completion_ids.tolist() == [*FIRST, *TOOL, 10]
    [other] = own.continuations
    assert (other.shared, own.pieces) == (5, 2)
    assert other.completion_ids is not None
    assert other.completion_ids.tolist() == SECOND


def test_a_branch_without_its_parent_is_left_out(tmp_path: Path) -> None:
    path = prime_rl(tmp_path, True)
    sound, broken = json.loads(path.read_text()), json.loads(path.read_text())
    broken["traces"][0]["nodes"][3]["parent"] = 9
    rows = rollouts(lines(path, [broken, sound]))
    assert len(rows) == 1
    assert "parent of node 3 is 9" in rows.notes[0]
    assert "left out" in rows.notes[0]


def test_what_does_not_fit_is_one_note(tmp_path: Path) -> None:
    rows = [
        {"step": 1, "group": "g", "trajectory": "t", "turn": 0, "prompt_ids": PROMPT, "completion_ids": FIRST,
         "reward": 0.0},
        {"step": 1, "group": "g", "trajectory": "t", "turn": 1, "prompt_ids": [1, 2, 3, 4, 77, 6, 7],
         "completion_ids": SECOND, "reward": 1.0},
        {"step": 1, "group": "g", "trajectory": "u", "turn": 0, "prompt_ids": PROMPT, "completion_ids": FIRST,
         "reward": 0.0},
    ]  # fmt: skip
    found = rollouts(lines(tmp_path / "rollouts.jsonl", rows))
    assert len(found) == 2
    assert len(found.notes) == 1
    assert "line 2: the prompt of this turn of trajectory t does not begin with the turns before it" in found.notes[0]


def test_turns_that_do_not_go_on_are_one_note_and_are_not_said_to_have_no_texts(tmp_path: Path) -> None:
    """Rows of turns that each begin with the task alone, as in SkyRL #1492."""
    rows = [
        {"step": step, "group": group, "trajectory": f"{group}.{number}", "turn": turn, "prompt": f"task {group}",
         "completion": f"turn {turn} of {number}", "reward": float(number % 2)}
        for step in (1, 2) for group in ("g", "h") for number in range(4) for turn in range(3)
    ]  # fmt: skip
    path = lines(tmp_path / "rollouts.jsonl", rows)
    assert [note for note in read(path).meta.notes if "does not begin with" in note] == [
        f"{path}, line 2: the prompt of this turn of trajectory g.0 does not begin with the turns before it; it begins "
        "a history of its own; so do 31 more"
    ]
    with pytest.raises(UserError, match="each rollout has several histories"):
        sample.of_rollouts(sample.recorded(read(path)))
    assert (
        "0 texts of 0 steps"
        in next(texts.PROOF.check(PipelineEvidence("", "", tuple(sample.recorded(read(path)))))).because
    )


def of_rollout_ids(
    names: str = "aabbb", rewards: tuple[float, ...] = (1.0, 1.0, 0.0, 0.0, 0.0)
) -> list[Mapping[str, object]]:
    """Rows of one prompt, each with the rollout that it is part of and no turn."""
    return [
        {
            "step": 1, "group_index": 4, "rollout_id": name, "prompt_ids": PROMPT, "response_ids": [9, 7, 5, place],
            "loss_mask": [1] * 4, "reward": reward, "advantage": 2.0 * reward - 1,
        }
        for place, (name, reward) in enumerate(zip(names, rewards, strict=True))
    ]  # fmt: skip


def test_rows_of_one_rollout_id_are_one_rollout() -> None:
    """What a rollout is trained on in several rows without turns counts once among its siblings."""
    notes: list[str] = []
    made = rows_of((("row", row) for row in of_rollout_ids()), notes)
    assert [(own.pieces, own.reward, len(own.continuations)) for own in made] == [(2, 1.0, 1), (3, 0.0, 2)]
    assert notes == ["rows of one rollout_id are one rollout: 5 rows, 2 rollouts"]


@pytest.mark.parametrize(
    ("names", "rewards"),
    [
        ("77777", (1.0, 1.0, 0.0, 0.0, 0.0)),  # the step
        ("abcde", (1.0, 1.0, 0.0, 0.0, 0.0)),  # each row its own
        ("aabbb", (1.0, 0.0, 0.0, 0.0, 0.0)),  # rows of several rewards
        ("aabbb", (1.0, 1.0, 1.0, 1.0, 1.0)),  # nothing tells
    ],
)
def test_a_rollout_id_that_may_count_something_else_joins_no_rows(names: str, rewards: tuple[float, ...]) -> None:
    notes: list[str] = []
    made = rows_of((("row", row) for row in of_rollout_ids(names, rewards)), notes)
    assert [own.pieces for own in made] == [1] * 5
    assert notes == []


def test_rows_that_begin_with_the_prompt_are_no_turns_written_anew() -> None:
    """Answers far shorter than their prompt are no histories that were encoded again."""
    before = [*range(100, 200)]
    rows = [{**row, "prompt_ids": before, "response_ids": [place, 3], "loss_mask": [1, 1]}
            for place, row in enumerate(of_rollout_ids())]  # fmt: skip
    evidence = PipelineEvidence("", rows=tuple(rows_of(("row", row) for row in rows)))
    assert not [own for own in turns.PROOF.check(evidence) if own.fault == "turns retokenised" and own.present]
