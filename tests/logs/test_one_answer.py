"""The same rollouts have one answer under every trainer's names for their columns, and in every trainer's files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asked import asked

from grposcope.core.rollouts import Rollout
from grposcope.logs import read
from grposcope.logs.read_rollouts import rollouts
from grposcope.logs.rollout_rows import row_of

STEPS, PROMPTS, GROUP, TOKENS = 3, 4, 8, 6
"""The rollouts: P prompts at each step, each drawn G times."""


def drawn() -> list[dict[str, Any]]:
    """Rollouts under our own names: rewards of two functions, whose sum is the reward, and all log-probabilities."""
    draw, made = np.random.default_rng(5), []
    for step in range(1, STEPS + 1):
        for prompt in range(PROMPTS):
            rewards = [
                {"right": float(draw.random() < 0.6), "form": round(float(draw.random()), 3)} for _ in range(GROUP)
            ]
            totals = np.array([own["right"] + own["form"] for own in rewards])
            for own, total, advantage in zip(rewards, totals, totals - totals.mean(), strict=True):
                sampler = -draw.exponential(0.5, TOKENS).round(6)
                made.append({
                    "step": step, "group": f"{step}-{prompt}", "prompt": f"{step}+{prompt}=",
                    "completion": f"{total:.3f}.",
                    "prompt_ids": [3, step, prompt + 10], "completion_ids": draw.integers(20, 60, TOKENS).tolist(),
                    "mask": [1] * TOKENS, "sampler": sampler.tolist(), "rewards": own, "reward": float(total),
                    "current": np.minimum(sampler + draw.normal(0, 0.01, TOKENS), 0.0).tolist(),
                    "advantages": float(advantage), "truncated": False, "version": step - 1,
                })  # fmt: skip
    return made


ROWS = drawn()

SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "generic": {"sampler": "sampling_logprobs", "current": "logprobs"},
    "trl": {
        "mask": "completion_mask", "sampler": "sampling_per_token_logps", "current": "per_token_logps",
        "advantages": "advantage", "step": "global_step",
    },
    "verl": {
        "group": "uid", "prompt": "input", "completion": "output", "prompt_ids": "prompts",
        "completion_ids": "responses", "mask": "response_mask", "sampler": "rollout_log_probs",
        "current": "old_log_probs", "reward": "score",
    },
    "prime-rl": {
        "group": "group_id", "completion_ids": "completion_token_ids", "prompt_ids": "prompt_token_ids",
        "mask": "loss_mask", "sampler": "inference_logprobs", "current": "trainer_logprobs",
        "version": "policy_version",
    },
    "openrlhf": {
        "group": "prompt_id", "prompt": "input", "completion": "output", "mask": "action_mask",
        "sampler": "rollout_log_probs", "current": "action_log_probs",
    },
    "art": {"group": "group_index", "rewards": "metrics", "mask": "assistant_mask"}
    | {"sampler": "sampling_logprobs", "current": "log_probs"},
    "ms-swift": {
        "group": "prompt_id", "completion_ids": "response_token_ids", "mask": "response_loss_mask",
        "sampler": "rollout_per_token_logps", "current": "per_token_logps", "truncated": "is_truncated",
    },
    "verifiers": {
        "group": "example_id", "rewards": "metrics", "mask": "completion_mask", "sampler": "completion_logprobs",
        "current": "logprobs", "truncated": "is_truncated",
    },
}  # fmt: skip
"""Trainer -> our name -> its name in that trainer's batches or files, where it is another."""

ID_OF_PROMPT = ("openrlhf", "ms-swift", "verifiers")
"""Trainers that name the prompt and not the group."""


def spelled(trainer: str) -> list[dict[str, Any]]:
    """The rollouts under the names of a trainer; verl's id of a group tells siblings apart at its end."""
    names = SPELLINGS[trainer]
    rows = [{names.get(name, name): value for name, value in row.items()} for row in ROWS]
    if trainer == "verl":
        for place, row in enumerate(rows):
            row["uid"] = f"{row['uid']}_{place % GROUP}_0"
    return rows


def lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def answered(command: str, place: Path) -> dict[str, Any]:
    """The document of a command on a place, without the name of the place."""
    flags = ["--set", "num_generations=8", "--set", "scale_rewards=none"] if command == "verify" else []
    text = json.dumps(asked(command, place, *flags)[1])
    return dict(json.loads(text.replace(str(place), "PLACE")))


def near(found: Any, due: Any) -> bool:
    """Whether two documents are equal but for rounding, and for ε, which is that of the engine that wrote the file."""
    if isinstance(due, dict):
        return found.keys() == due.keys() and all(near(found[name], due[name]) for name in due if name != "eps")
    if isinstance(due, list):
        return len(found) == len(due) and all(map(near, found, due))
    return bool(found == pytest.approx(due, rel=2e-3, abs=1e-9) if isinstance(due, float) else found == due)


@pytest.mark.parametrize("command", ["rewards", "offpolicy", "verify", "plan"])
def test_every_spelling_has_one_answer(command: str, tmp_path: Path) -> None:
    """Equal documents; where the prompt alone is named, the claim on prompts within groups has nothing to compare."""
    due = answered(command, lines(tmp_path / "rollouts.jsonl", spelled("generic")))
    unnamed = lines(tmp_path / "rollouts.jsonl", [{**row, "group": None} for row in spelled("generic")])
    of_prompts = answered(command, unnamed)
    for trainer in SPELLINGS:
        found = answered(command, lines(tmp_path / "rollouts.jsonl", spelled(trainer)))
        same = near if (command, trainer) == ("rewards", "verl") else dict.__eq__
        assert same(found, of_prompts if trainer in ID_OF_PROMPT else due), trainer
    if command != "verify":
        assert due == of_prompts


def test_the_group_is_the_pipelines_own_id_before_the_prompt(tmp_path: Path) -> None:
    """With two groups of each prompt, `group` and `uid` tell them apart, under all commands and beside any reward."""
    rows = [
        {"uid": f"u{i // 4}", "prompt": f"p{i // 8}", "score": float(i % 3 == 0), "step": 1, "completion": "a",
         "rewards": {"right": float(i % 3 == 0), "form": float(i % 2)}, "logprobs": [-1.0], "rollout_logprobs": [-1.1]}
        for i in range(64)
    ]  # fmt: skip
    renamed = [{**row, "group": row["uid"], "reward": row["score"], "uid": None, "score": None} for row in rows]
    for command in ("rewards", "offpolicy", "plan"):
        found = answered(command, lines(tmp_path / "r.jsonl", rows))
        assert found == answered(command, lines(tmp_path / "r.jsonl", renamed))
        assert found.get("groups", 16) == 16


def test_the_table_has_every_spelling() -> None:
    """Rows of every trainer are one rollout, column by column."""
    columns = (
        "step",
        "prompt_ids",
        "completion_ids",
        "mask",
        "sampler",
        "reward",
        "rewards",
        "advantages",
        "truncated",
    )
    due = row_of(spelled("generic")[3], "")
    for trainer in SPELLINGS:
        made = row_of(spelled(trainer)[3], "")
        for name in columns:
            np.testing.assert_array_equal(getattr(made, name), getattr(due, name), f"{trainer} {name}")
        assert (made.group, made.named) == ("1-0", trainer not in ID_OF_PROMPT)


def _trl(folder: Path) -> Path:
    for step in range(1, STEPS + 1):
        rows = [row for row in ROWS if row["step"] == step]
        columns = {name: [row[name] for row in rows] for name in ("step", "prompt", "completion")}
        columns |= {name: [row["rewards"][name] for row in rows] for name in ("right", "form")}
        columns["advantage"] = [row["advantages"] for row in rows]
        path = folder / "completions" / f"completions_{step:05d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)
    return folder


def _verl(folder: Path) -> Path:
    for step in range(1, STEPS + 1):
        rows = [
            {"input": row["prompt"], "output": row["completion"], "score": row["reward"], "step": step,
             "uid": f"{row['group']}_{place % GROUP}_0", **row["rewards"]}
            for place, row in enumerate(ROWS) if row["step"] == step
        ]  # fmt: skip
        lines(folder / f"{step}.jsonl", rows)
    return folder


def _traces(folder: Path) -> Path:
    for step in range(1, STEPS + 1):
        episodes = [
            {"task": {"key": row["prompt"]}, "group": {"id": row["group"]},
             "run": {"type": "train", "work": {"step": step, "policy": {"start": row["version"]}}},
             "traces": [{
                 "nodes": [
                     {"message": {"role": "user", "content": row["prompt"]}, "token_ids": row["prompt_ids"],
                      "mask": [False] * 3},
                     {"message": {"role": "assistant", "content": row["completion"]}, "sampled": True, "parent": 0,
                      "token_ids": row["completion_ids"], "mask": [True] * TOKENS, "logprobs": row["sampler"],
                      "trainer_logprobs": row["current"], "advantages": [row["advantages"]] * TOKENS},
                 ],
                 "rewards": {name: {"score": score, "weight": 1.0} for name, score in row["rewards"].items()},
                 "is_truncated": False,
             }]}
            for row in ROWS if row["step"] == step
        ]  # fmt: skip
        lines(folder / "rollouts" / f"step_{step}" / "train" / "effective" / "traces.jsonl", episodes)
    return folder / "rollouts"


def _exports(folder: Path) -> Path:
    for step in range(1, STEPS + 1):
        rows = [
            {"token_ids": row["prompt_ids"] + row["completion_ids"], "loss_mask": [False] * 3 + [True] * TOKENS,
             "inference_logprobs": [0.0] * 3 + row["sampler"], "trainer_logprobs": [0.0] * 3 + row["current"],
             "rewards": [None] * 3 + [row["reward"]] * TOKENS}
            for row in ROWS if row["step"] == step
        ]  # fmt: skip
        lines(folder / "token_exports" / f"step_{step}" / "rank_0.jsonl", rows)
    return folder / "token_exports"


def _art(folder: Path) -> Path:
    for step in range(1, STEPS + 1):
        rows = [row for row in ROWS if row["step"] == step]
        table = {
            "group_index": [place // GROUP for place in range(len(rows))],
            "reward": [row["reward"] for row in rows],
            "metrics": [json.dumps(row["rewards"]) for row in rows],
            "messages": [
                [{"role": "user", "content": row["prompt"], "trainable": False},
                 {"role": "assistant", "content": row["completion"], "trainable": True}]
                for row in rows
            ],
        }  # fmt: skip
        path = folder / "trajectories" / "train" / f"{step:04d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(table), path)
    return folder / "trajectories" / "train"


def _ms_swift(folder: Path) -> Path:
    steps = [[row for row in ROWS if row["step"] == step] for step in range(1, STEPS + 1)]
    return lines(folder / "completions.jsonl", [
        {"step": [str(row["step"]) for row in rows], "prompt": [row["prompt"] for row in rows],
         "completion": [row["completion"] for row in rows], "right": [row["rewards"]["right"] for row in rows],
         "form": [row["rewards"]["form"] for row in rows], "advantages": [row["advantages"] for row in rows]}
        for rows in steps
    ])  # fmt: skip


def _verifiers(folder: Path) -> Path:
    return lines(folder / "results.jsonl", [
        {"example_id": place // GROUP, "prompt": row["prompt"], "completion": row["completion"],
         "reward": row["reward"], "metrics": row["rewards"]}
        for place, row in enumerate(ROWS)
    ])  # fmt: skip


FILES: Mapping[str, Callable[[Path], Path]] = {
    "trl": _trl, "verl": _verl, "prime-rl": _traces, "art": _art, "ms-swift": _ms_swift, "verifiers": _verifiers,
}  # fmt: skip
"""Trainer -> what writes its files of rollouts, and says where they are."""


@pytest.mark.slow
@pytest.mark.parametrize("trainer", FILES)
def test_every_trainers_files_have_one_answer(trainer: str, tmp_path: Path) -> None:
    """What each function weighs, the curve of group sizes and the groups are those of the rollouts a line."""
    rows = spelled("generic")
    if trainer in ("verl", "art", "verifiers"):  # whose files have no advantages, off which `rewards` reads weights
        rows = [{name: value for name, value in row.items() if name != "advantages"} for row in rows]
    due = lines(tmp_path / "rollouts.jsonl", rows)
    place = FILES[trainer](tmp_path / trainer)
    weighed, expected = (answered("rewards", where) for where in (place, due))
    assert near({name: weighed[name] for name in ("groups", "live", "components", "correlations")},
                {name: expected[name] for name in ("groups", "live", "components", "correlations")})  # fmt: skip
    planned, expected = (answered("plan", where) for where in (place, due))
    assert near([planned["groups"], planned["curve"]], [expected["groups"], expected["curve"]])
    checked = answered("verify", place)
    assert checked["rollouts"] == len(ROWS)
    of_prompts = trainer in ("trl", "verifiers")  # which do not say which rollouts were a group
    status = {claim["claim"]: claim["status"] for claim in checked["claims"]}["groups"]
    assert status == ("cannot tell" if of_prompts else "holds")


@pytest.mark.parametrize("write", [_traces, _exports])
def test_both_files_of_prime_rl_say_how_far_the_sampler_is(write: Callable[[Path], Path], tmp_path: Path) -> None:
    due = answered("offpolicy", lines(tmp_path / "rollouts.jsonl", spelled("generic")))
    found = answered("offpolicy", write(tmp_path / "run"))
    assert (found["rollouts"], found["distance"]) == (due["rollouts"], due["distance"])
    alone = answered("offpolicy", next((tmp_path / "run").rglob("*.jsonl")))
    assert alone["rollouts"] == len(ROWS) // STEPS


def test_a_prompt_is_the_group_of_a_step_only(tmp_path: Path) -> None:
    """Without an id of the group, rollouts of one prompt at two steps are two groups."""
    rows = [{"step": step, "prompt": "a", "completion": str(i), "reward": i} for step in (1, 2) for i in range(4)]
    made = rollouts(lines(tmp_path / "r.jsonl", rows))
    assert [len(places) for places in made.groups.values()] == [4, 4]
    assert not any(row.named for row in made)


def test_what_the_model_saw_is_not_what_it_is_trained_on(tmp_path: Path) -> None:
    """A tool's answer is a hole of the mask, and attended to; turns begin where the policy writes again."""
    row = {"completion_ids": [5, 6, 7, 8, 9], "completion_mask": [1, 0, 0, 1, 0], "tool_mask": [1, 0, 0, 1, 1],
           "attended": [1, 1, 1, 1, 1], "turns": [0, 0, 0, 1, 1], "turn_scores": [0.0, 1.0],
           "finish_reason": "length", "weight_versions": [3, 4], "anchors": ["s0", "s1"], "prompt": "a"}  # fmt: skip
    (made,) = rollouts(lines(tmp_path / "r.jsonl", [row]))
    assert isinstance(made, Rollout)
    assert made.mask is not None
    assert made.attended is not None
    assert made.attended.all()
    assert made.mask.tolist() == [True, False, False, True, False]
    np.testing.assert_array_equal(made.turns, [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(made.turn_rewards, [0.0, 1.0])
    np.testing.assert_array_equal(made.version_by_turn, [3.0, 4.0])
    assert (made.stop, made.truncated, made.anchors) == ("length", True, ("s0", "s1"))
    assert made.size == 3


def test_a_log_that_shows_a_completion_of_each_step_is_one_of_metrics(tmp_path: Path) -> None:
    rows = [{"step": k, "reward": 0.1 * k, "loss": 0.5, "prompt": "a", "completion": "b"} for k in range(1, 6)]
    run = read(lines(tmp_path / "log.jsonl", rows))
    assert (len(run.groups), run.table["loss"].tolist()) == (0, [0.5] * 5)


def test_a_sequence_is_cut_where_training_begins_and_a_completion_is_not() -> None:
    """`token_ids` alone are prompt and completion; `completion_ids` are the completion, whatever their mask."""
    columns = {"loss_mask": [0, 0, 1, 1], "rollout_logprobs": [0.0, 0.0, -1.0, -2.0]}
    whole = row_of({"token_ids": [1, 2, 3, 4], **columns}, "")
    np.testing.assert_array_equal(whole.prompt_ids, [1, 2])
    np.testing.assert_array_equal(whole.completion_ids, [3, 4])
    np.testing.assert_array_equal(whole.sampler, [-1.0, -2.0])
    tail = row_of({"sequences": [1, 2, 3, 4], "action_mask": [1, 1, 1]}, "")
    np.testing.assert_array_equal(tail.prompt_ids, [1])
    alone = row_of({"completion_ids": [1, 2, 3, 4], **columns}, "")
    assert alone.prompt_ids is None
    np.testing.assert_array_equal(alone.mask, [False, False, True, True])


def test_columns_of_a_data_set_are_no_turns() -> None:
    """A number of turns, or a flag, under a name of ours is none of the columns of turns."""
    made = row_of({"completion": "a", "turns": 3, "stop": True, "anchors": "x", "task": {"id": 1}}, "")
    assert (made.turns, made.stop, made.anchors, made.environment) == (None, "", (), "")
