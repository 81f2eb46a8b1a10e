"""Evidence as a training writes it is the evidence that is read, and what is broken is told once."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Rollout
from grposcope.instruments.verify import in_training, read, row_file
from grposcope.instruments.verify.own_loop import rows_of, verify_batch
from grposcope.signs.rollouts.evidence import Stated

STATED = Stated(group=4, baseline="mean", scale="group", ddof=1, epsilon=1e-4, weights={"right": 1.0}, limit=5)


def batch(groups: int = 3, group: int = 4, seed: int = 0, step: int = 1) -> dict[str, object]:
    """The arrays of a batch with padding on both sides, as a loop has them."""
    draw = np.random.default_rng(seed)
    count = groups * group
    lengths, before = draw.integers(2, 6, count), draw.integers(1, 4, groups).repeat(group)
    rewards = draw.random(count).round(3)
    compared = rewards.reshape(groups, group)
    advantages = (compared - compared.mean(1, keepdims=True)) / (compared.std(1, ddof=1, keepdims=True) + 1e-4)
    kept = np.arange(5) < lengths[:, None]
    logp = -draw.exponential(1.0, (count, 5))
    return {
        "prompt_ids": draw.integers(3, 9, (groups, 3)).repeat(group, 0),
        "prompt_mask": np.arange(3) >= 3 - before[:, None],
        "completion_ids": draw.integers(3, 9, (count, 5)),
        "completion_mask": kept,
        "mask": kept,
        "sampler": logp,
        "old": logp,
        "current": logp,
        "rewards": {"right": rewards},
        "reward": rewards,
        "advantages": advantages.reshape(-1),
        "truncated": lengths == 5,
        "version": [step - 1] * count,
        "step": step,
        "group": group,
    }


def equal(one: object, other: object) -> bool:
    """Whether two fields of rows are the same, NaN like NaN."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return one is not None and other is not None and np.array_equal(one, other, equal_nan=True)  # type: ignore[arg-type]
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return one == other


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    given = batch()
    rows = list(rows_of(**given))  # type: ignore[arg-type]
    odd = rows[0].current
    assert odd is not None
    odd[0] = math.nan  # of a token that the loss did not take
    rows[1] = replace(rows[1], failed="timed out", dropped="too long", environment="tool", prompt="a", completion="b")
    rows[2] = replace(rows[2], written=np.array([True, False] * 3)[: len(rows[2].completion_ids)])  # type: ignore[arg-type]
    turns = np.array([0, -1, 1, 1, 1][: len(rows[3].completion_ids)])  # type: ignore[arg-type]
    rows[3] = replace(rows[3], attended=turns >= 0, turns=turns, turn_rewards=np.array([0.5, math.nan]), stop="eos",
                      anchors=("a", "b"), version_by_turn=np.array([1.0, 2.0]), length=3.0, trajectory="t", turn=1,
                      pieces=2)  # fmt: skip
    found = read.rows(row_file.write(tmp_path, 7, rows))
    for before, after in zip(rows, found, strict=True):
        for field in fields(Rollout):
            if field.name != "where":
                assert equal(getattr(before, field.name), getattr(after, field.name)), field.name


def test_padding_is_taken_off_and_lists_without_it_give_the_same() -> None:
    given = batch()
    padded = rows_of(**given)  # type: ignore[arg-type]
    kept, before = np.asarray(given["completion_mask"]), np.asarray(given["prompt_mask"])
    bare = dict(given)
    for name in ("completion_ids", "mask", "sampler", "old", "current"):
        bare[name] = [row[keep] for row, keep in zip(np.asarray(given[name]), kept, strict=True)]
    bare["prompt_ids"] = [row[keep] for row, keep in zip(np.asarray(given["prompt_ids"]), before, strict=True)]
    del bare["completion_mask"], bare["prompt_mask"]
    for one, other in zip(padded, rows_of(**bare), strict=True):  # type: ignore[arg-type]
        assert all(equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(Rollout))
    assert [len(row.completion_ids) for row in padded] == kept.sum(1).tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("advantages", [1.0], "advantages has 1 row for 12 completions"),
        ("version", [1.0], "version has 1 entry for 12 completions"),
        ("sampler", [[-1.0]] * 12, "sampler has 1 entry for 5 tokens"),
        ("group", ["a"], "group has 1 entry for 12 completions"),
    ],
)
def test_arrays_of_another_size_are_named(name: str, value: object, told: str) -> None:
    with pytest.raises(UserError, match=told):
        rows_of(**{**batch(), name: value})  # type: ignore[arg-type]


def test_a_sound_batch_holds_and_a_wrong_advantage_is_named() -> None:
    given = batch()
    assert verify_batch(rows_of(**given), STATED).word == "healthy"  # type: ignore[arg-type]
    wrong = np.asarray(given["advantages"]) * (4 / 3) ** 0.5  # as of ddof 0
    said = verify_batch(rows_of(**{**given, "advantages": wrong}), STATED)  # type: ignore[arg-type]
    broken = [one["claim"] for one in said.document["claims"] if one["status"] == "broken"]
    assert said.word == "failing"
    assert broken == ["advantages"]


def test_a_broken_claim_is_told_once_and_stands_in_the_record(tmp_path: Path) -> None:
    verifier = in_training.TrainingVerifier(tmp_path, STATED)
    assert verifier.take(1, rows_of(**batch(step=1))) == []  # type: ignore[arg-type]
    given = batch(step=3, seed=1)
    wrong = {**given, "advantages": -np.asarray(given["advantages"])}
    lines = verifier.take(3, rows_of(**wrong))  # type: ignore[arg-type]
    assert len(lines) == 1
    assert lines[0].startswith("step 3: broken: advantages follow from rewards and settings:")
    assert verifier.take(5, rows_of(**{**wrong, "step": 5})) == []  # type: ignore[arg-type]
    rows = [json.loads(line) for line in (tmp_path / "verify" / "claims.jsonl").read_text().splitlines()]
    assert [row["claims"]["advantages"]["status"] for row in rows] == ["holds", "broken", "broken"]
    assert row_file.read_stated(tmp_path) == STATED
    row_file.cut_back(tmp_path, 3)
    assert [path.name for path in row_file.files(tmp_path)] == ["step-000001.jsonl", "step-000003.jsonl"]
    assert len((tmp_path / "verify" / "claims.jsonl").read_text().splitlines()) == 2


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "verify").write_text("a file in the way")
    with pytest.raises(UserError, match="cannot write"):
        row_file.write(tmp_path, 1, rows_of(**batch()))  # type: ignore[arg-type]


def test_the_looks_of_a_run_share_the_error() -> None:
    assert sum(map(in_training._error_of, range(1, 10_000))) == pytest.approx(0.05, rel=1e-3)
    assert all(
        a > b
        for a, b in zip(map(in_training._error_of, range(1, 9)), map(in_training._error_of, range(2, 10)), strict=True)
    )


def test_a_batch_is_due_at_one_of_its_steps() -> None:
    assert [step for step in range(1, 12) if in_training.due(5, step, 1)] == [1, 6, 11]
    assert [step for step in range(1, 12, 2) if in_training.due(5, step, 2)] == [1, 5, 11]
    assert not in_training.due(0, 1, 1)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 1, 5])
def test_our_schedule_is_stated_as_other_trainers_count(schedule: str, warmup: int) -> None:
    from grposcope.lab.train.optimizer import learning_rate
    from grposcope.signs.rollouts.claims import first_update
    from grposcope.signs.rollouts.pipeline_settings import own_schedule

    said = own_schedule(Stated(warmup=warmup, updates=12))
    assert said.warmup is not None
    assert said.updates is not None
    due = first_update.SCHEDULES[schedule](np.arange(1.0, 13.0), 0.3, said.warmup, said.updates)
    assert due == pytest.approx([learning_rate(step, 0.3, schedule, warmup, 12) for step in range(12)])
