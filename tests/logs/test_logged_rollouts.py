"""Rollouts of a step as trainers write them: which step, which groups, which weights; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout, Rollouts
from grposcope.logs import read
from grposcope.logs.logged_rollouts import advantages as advantages_of
from grposcope.logs.logged_rollouts import choose, grouped
from grposcope.logs.trainers import trl_completions, verl_rollouts
from grposcope.signs.rollouts.claims import metrics
from grposcope.signs.rollouts.evidence import PipelineEvidence

PLACE = Path("completions")


def rows(keys: str, rewards: dict[str, list[float]], advantages: list[float] | None = None) -> Rollouts:
    made = tuple(
        Rollout(
            step=7, group=key, prompt=key, completion=f"{key}{i}",
            rewards={name: values[i] for name, values in rewards.items()},
            advantages=None if advantages is None else np.array(advantages[i : i + 1]),
        )
        for i, key in enumerate(keys)
    )  # fmt: skip
    return Rollouts(made, "trl", PLACE)


def prompts(made: Rollouts) -> list[object]:
    """The prompt of each group."""
    return [made[places[0]].prompt for places in made.groups.values()]


@pytest.mark.parametrize(
    ("wanted", "checkpoint", "step"),
    [(None, None, 40), (None, 20, 21), (None, 40, 40), (None, 35, 30), (10, 40, 10), (None, 10, 10)],
)
def test_the_step_drawn_by_the_checkpoint_is_taken_else_the_last_before_it(
    wanted: int | None, checkpoint: int | None, step: int
) -> None:
    assert choose([10, 20, 21, 30, 40], wanted, checkpoint, PLACE) == step


def test_a_step_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UserError, match=r"no rollouts of step 3; it has those of 10, 20, 21, …, 40"):
        choose([10, 20, 21, 30, 40], 3, None, PLACE)
    with pytest.raises(UserError, match=r"steps 10, 20 only, all after the checkpoint of step 5"):
        choose([10, 20], None, 5, PLACE)


def test_neighbours_with_one_prompt_are_groups() -> None:
    made = grouped(rows("aabbaa", {"r": [0, 1, 2, 3, 4, 5]}), None, None)
    assert prompts(made) == ["a", "b", "a"]
    assert made.group_rewards.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert [row.completion for row in made[2:4]] == ["b2", "b3"]


def test_a_prompt_drawn_twice_in_a_row_is_two_groups_of_the_known_or_smallest_size() -> None:
    for size in (2, None):
        made = grouped(rows("aaaabb", {"r": [0, 1, 2, 3, 4, 5]}), size, None)
        assert made.group_rewards.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_shuffled_rows_are_brought_together() -> None:
    made = grouped(rows("abcbac", {"r": [0, 1, 2, 3, 4, 5]}), None, None)
    assert prompts(made) == ["a", "b", "c"]
    assert made.group_rewards.tolist() == [[0, 4], [1, 3], [2, 5]]
    assert [row.completion for row in made] == ["a0", "a4", "b1", "b3", "c2", "c5"]


@pytest.mark.parametrize(("keys", "size"), [("aaabb", None), ("aabb", 3), ("aaabbb", 2)])
def test_groups_of_several_sizes_are_refused(keys: str, size: int | None) -> None:
    with pytest.raises(UserError, match=r"which do not divide into groups of \d; give the group size"):
        grouped(rows(keys, {"r": list(range(len(keys)))}), size, None)


def test_a_rollout_per_prompt_is_no_group() -> None:
    with pytest.raises(UserError, match="each prompt has only one rollout at step 7"):
        grouped(rows("abc", {"r": [0, 1, 2]}), None, None)


def test_weights_are_applied_by_function_and_absent_rewards_left_out() -> None:
    made = grouped(rows("aa", {"r": [1, np.nan], "s": [10, 20]}), None, [2, 0.5])
    assert made.group_rewards.tolist() == [[7, 10]]
    assert made.weights == {"r": 2, "s": 0.5}
    nothing = grouped(rows("aa", {"r": [1, np.nan]}), None, None)
    assert nothing.group_rewards.tolist() == [[1, 0]]
    assert nothing.notes == ("1 rollouts have no reward and count as 0, as in the trainer",)


def test_weights_that_contradict_the_advantages_are_refused() -> None:
    given = rows("aaa", {"r": [0, 1, 0], "s": [2, 0, 0]}, [0.1, 0.9, -1])  # weights 1, 0.3
    assert grouped(given, None, [1, 0.3]).group_rewards.tolist() == [[0.6, 1, 0]]
    with pytest.raises(
        UserError, match=r"the plain sum of the reward functions \(r, s\) does not order .* 1 of 1 group"
    ):
        grouped(given, None, None)
    with pytest.raises(UserError, match="the weighted sum"):
        grouped(given, None, [1, 1])
    with pytest.raises(UserError, match=r"3 weights were given for 2 reward functions \(r, s\)"):
        grouped(given, None, [1, 1, 1])


def parquet(path: Path, **columns: list[Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def test_conversations_lose_the_fields_that_parquet_adds(tmp_path: Path) -> None:
    prompt = [{"role": "user", "content": "2+2", "name": "x"}, {"role": "user", "content": "now", "name": None}]
    path = parquet(
        tmp_path / "completions_00004.parquet", step=[4, 4], prompt=[prompt] * 2,
        completion=[[{"role": "assistant", "content": "4"}]] * 2, reward_a=[1.0, 0.0], advantage=[0.7, -0.7],
        note=[1, 2],
    )  # fmt: skip
    made = trl_completions.logged(path, ["reward_a"])
    assert made[0].prompt == [{"role": "user", "content": "2+2", "name": "x"}, {"role": "user", "content": "now"}]
    assert made.functions == ("reward_a",)
    given = advantages_of(made)
    assert given is not None
    assert given.tolist() == [0.7, -0.7]
    assert made.step == 4


def test_the_step_may_be_text_as_older_versions_of_trl_write_it(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "completions_00012.parquet", step=["12", "12"], prompt=["a", "a"], completion=["b", "c"],
        r=[0.0, 1.0], advantage=[-1.0, 1.0],
    )  # fmt: skip
    assert trl_completions.logged(path).step == 12
    groups, _, notes = trl_completions.groups([path], {})
    assert (groups.step.tolist(), notes) == ([12], [])


def of_verl(path: Path) -> Rollouts:
    """The rollouts of step 3 in a file of verl."""
    found = verl_rollouts.find(path)
    assert found is not None
    return found.logged(3)


def test_verl_is_grouped_by_uid_and_by_input_without(tmp_path: Path) -> None:
    lines = [{"input": "q", "output": f"o{i}", "score": i, "step": 3, "gts": "1"} for i in range(4)]
    path = tmp_path / "3.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert grouped(of_verl(path), None, None).group_rewards.tolist() == [[0, 1, 2, 3]]
    path.write_text("".join(json.dumps({**line, "uid": f"u{i % 2}"}) + "\n" for i, line in enumerate(lines)))
    made = grouped(of_verl(path), None, None)
    assert made.group_rewards.tolist() == [[0, 2], [1, 3]]
    assert [row.completion for row in made] == ["o0", "o2", "o1", "o3"]


@pytest.mark.parametrize("logged", [[3, 5, 3, 4], ["3", "5", "3", "4"]])
def test_an_answer_that_a_function_logs_is_no_reward(logged: list[Any], tmp_path: Path) -> None:
    """TRL's `log_extra` writes columns of its own, of whole numbers or text, beside those of the reward functions."""
    path = parquet(
        tmp_path / "completions_00001.parquet", step=[1] * 4, prompt=["a"] * 4, completion=list("wxyz"),
        right=[1.0, 0.0, 1.0, 0.0], extracted_answer=logged, advantage=[0.9, -0.9, 0.9, -0.9],
    )  # fmt: skip
    assert trl_completions.logged(path).functions == ("right",)
    groups, _, _ = trl_completions.groups([path], {})
    assert groups.rewards.tolist() == [1.0, 0.0, 1.0, 0.0]


def test_parts_are_what_the_reward_is_a_sum_of(tmp_path: Path) -> None:
    """Of numbers beside the score those without a weight in it, such as turns, are no metrics of a log of rollouts."""
    rng = np.random.default_rng(0)
    for step in (1, 2, 3):
        right, form, turns = rng.integers(0, 2, 16), rng.integers(0, 2, 16), rng.integers(1, 9, 16)
        lines = [
            {"input": f"q{i // 4}", "output": f"o{i}", "score": float(right[i] + 0.5 * form[i]), "step": step,
             "accuracy_reward": float(right[i]), "format_reward": float(form[i]), "num_turns": float(turns[i])}
            for i in range(16)
        ]  # fmt: skip
        (tmp_path / f"{step}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read(tmp_path)
    assert [name for name in run.table if name.startswith("component/")] == [
        "component/accuracy_reward", "component/format_reward",
    ]  # fmt: skip
    assert run.table["component/format_reward"][-1] == pytest.approx(form.mean())
    evidence = PipelineEvidence("rollouts", rows=tuple(row for rows in run.rollouts.values() for row in rows), run=run)
    (told,) = metrics.PROOF.check(evidence)
    assert (told.status, told.because) == (
        "cannot tell", "The metrics are those of the rollouts themselves; give the log of the run beside them.",
    )  # fmt: skip
