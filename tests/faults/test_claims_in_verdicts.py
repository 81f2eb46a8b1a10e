"""Claims that the rollouts of a run break for certain are findings of its diagnosis; sound rollouts add none."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pipelines
import pytest
from pipelines import Pipeline, Rows

from grposcope.core.finding import Finding
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Run
from grposcope.faults import judge_claims
from grposcope.instruments.diagnosis.verdict import findings_of, verdict
from grposcope.logs import read
from grposcope.signs.texts import sample


def run_of(path: Path, pipeline: Pipeline, rows: Rows) -> Run:
    """The run of a file of rollouts, with the settings of its pipeline as logged."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = read(path)
    return replace(run, config={**run.config, "logged": pipeline.settings})


def present(run: Run) -> list[Finding]:
    return [own for own in findings_of(run) if own.present]


def without_baseline(pipeline: Pipeline, rows: Rows, random: np.random.Generator) -> Rows:
    """The reward as the advantage."""
    return [{**row, "advantage": row["reward"]} for row in rows]


@pytest.mark.parametrize(("fault", "name"), [
    (without_baseline, "wrong baseline"),
    (pipelines.other_sign, "reversed sign"), (pipelines.interleaved_groups, "mixed prompts"),
    (pipelines.forgotten_weights, "wrong reward weights"), (pipelines.shuffled_in_group, "misplaced rewards"),
    (pipelines.shifted, "misplaced rewards"), (pipelines.shifted_among_siblings, "misplaced rewards"),
    (pipelines.prompt_trained, "prompt trained on"), (pipelines.tool_trained, "tool output trained on"),
    (pipelines.off_by_one, "mask off by one"), (pipelines.unscaled, "wrong divisor"),
])  # fmt: skip
def test_what_rollouts_break_is_a_finding(tmp_path: Path, fault: pipelines.Fault, name: str) -> None:
    pipeline = Pipeline(steps=4, prompts=16, reward="two" if name == "wrong reward weights" else "binary")
    run = run_of(tmp_path / "rollouts.jsonl", pipeline, pipelines.with_fault(pipeline, fault, 2))
    shown = {own.fault: own for own in present(run)}
    assert name in shown
    assert shown[name].onset == 2
    assert not shown[name].remedy.endswith(".")
    judged = verdict(run, findings_of(run))
    assert judged.word in ("failing", "warning")


def of_short_groups(strided: bool) -> Rows:
    """Rows of which every third prompt has one rollout less, with advantages of their groups, or of 8 rows in turn."""
    pipeline = Pipeline(steps=3, prompts=12)
    made: Rows = []
    steps = [list(own) for _, own in itertools.groupby(pipeline.rows(), key=lambda row: row["step"])]
    for rows in steps:
        names = list(dict.fromkeys(row["group"] for row in rows))
        lacking = {next(i for i, row in enumerate(rows) if row["group"] == name) for name in names[::3]}
        short = [row for i, row in enumerate(rows) if i not in lacking]
        stride = [place // pipeline.group for place in range(len(short))] if strided else None
        made += pipelines.with_advantages(pipeline, short, groups=stride)
    return made


def test_a_fixed_stride_over_short_groups_is_named(tmp_path: Path) -> None:
    """With settings and without; the same rows normalised by their groups add nothing."""
    pipeline = Pipeline(steps=3, prompts=12)
    run = run_of(tmp_path / "rollouts.jsonl", pipeline, of_short_groups(strided=True))
    for each in (run, replace(run, config={})):
        found = {own.fault: own for own in judge_claims.with_rollouts(each, ())}
        assert "8 rows in turn, and 12 of 36 groups have another number of rows" in found["mixed prompts"].because
    sound = run_of(tmp_path / "sound.jsonl", pipeline, of_short_groups(strided=False))
    for each in (sound, replace(sound, config={})):
        assert "mixed prompts" not in [own.fault for own in judge_claims.with_rollouts(each, ())]


def test_a_prompt_that_is_drawn_twice_is_no_stride(tmp_path: Path) -> None:
    """Two groups of one id, each with advantages of its own."""
    pipeline = Pipeline(steps=3, prompts=12)
    rows = pipeline.rows()
    for row in rows:
        if row["group"].endswith(("-0", "-1")):
            row.update(group=f"{row['step']}-0", prompt="the same", prompt_ids=[1, 2, 3])
    assert len({row["group"] for row in rows}) == 33
    run = run_of(tmp_path / "rollouts.jsonl", pipeline, rows)
    assert "mixed prompts" not in [own.fault for own in judge_claims.with_rollouts(replace(run, config={}), ())]


def test_sound_rollouts_add_nothing(tmp_path: Path) -> None:
    """Of every recipe and kind of reward, with settings and without."""
    for recipe, reward in itertools.product(("grpo", "batch", "dr_grpo", "rloo"), ("binary", "two")):
        pipeline = Pipeline(recipe=recipe, reward=reward, steps=3, stored="bfloat16")
        run = run_of(tmp_path / "rollouts.jsonl", pipeline, pipeline.rows())
        assert judge_claims.with_rollouts(run, ()) == ()
        assert judge_claims.with_rollouts(replace(run, config={}), ()) == ()


def test_a_broken_claim_is_the_cause_of_what_follows_in_the_log(tmp_path: Path) -> None:
    pipeline = Pipeline(steps=120, prompts=2, group=4)
    rows = pipelines.with_fault(pipeline, pipelines.other_sign)
    run = run_of(tmp_path / "rollouts.jsonl", pipeline, rows)
    noise = np.random.default_rng(0).normal(0, 0.02, run.steps)
    falls = replace(run, table={**run.table, "reward": np.linspace(0.8, 0.2, run.steps) + noise})
    first, *rest = present(falls)
    assert first.fault == "reversed sign"
    assert "what may follow is in the log: reward decline" in first.because
    assert "reward decline" in [own.fault for own in rest]
    sound = run_of(tmp_path / "sound.jsonl", pipeline, pipeline.rows())
    alone = [own.fault for own in present(replace(sound, table=falls.table))]
    assert alone[0] == "reward decline"


def test_rollouts_of_few_steps_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as MOST, of whole steps evenly over the run; one step is read of large ones."""
    pipeline = Pipeline(steps=20, prompts=2, group=4)
    run = run_of(tmp_path / "rollouts.jsonl", pipeline, pipeline.rows())
    rows = sample.recorded(run, 40)
    assert [row.step for row in rows[::8]] == [1, 6, 11, 15, 20]
    assert len(sample.recorded(run, 3)) == 8
    assert len(sample.recorded(run)) == 160
    read_of = list[int | None]()
    plain = sample.recorded

    def noted(run: Run, most: int | None = None) -> list[Rollout]:
        read_of.append(most)
        return plain(run, most)

    monkeypatch.setattr(sample, "recorded", noted)
    monkeypatch.setattr(judge_claims, "TOKENS", 100)
    judge_claims._broken(run)
    first, then = read_of
    assert first == 1
    assert then is not None
    assert 4 <= then <= 20  # of some 10 tokens each
    monkeypatch.setattr(sample, "recorded", plain)
    monkeypatch.setattr(judge_claims, "MOST", 16)
    monkeypatch.setattr(judge_claims, "TOKENS", 10**6)
    backwards = pipelines.with_fault(pipeline, pipelines.other_sign, 20)
    late = run_of(tmp_path / "late.jsonl", pipeline, backwards)
    assert [own.fault for own in judge_claims.with_rollouts(late, ())] == ["reversed sign"]


def test_rollouts_of_texts_and_rewards_alone_are_not_asked(tmp_path: Path) -> None:
    pipeline = Pipeline(steps=3)
    names = ("step", "group", "prompt", "completion", "reward")
    rows = [{name: row[name] for name in names} for row in pipelines.with_fault(pipeline, pipelines.mixed_groups)]
    run = run_of(tmp_path / "rollouts.jsonl", pipeline, rows)
    assert judge_claims.with_rollouts(run, ()) == ()


def test_a_number_that_is_none_where_the_reward_is_none_is_named(tmp_path: Path) -> None:
    """As in verifiers #1546: a metric of weight 0 that is NaN takes the reward with it; files as verifiers has them."""
    path = tmp_path / "results.jsonl"

    def written(lost: float, other: float, scored: str = "right_reward") -> Run:
        rows = [
            {
                "step": 1 + k // 16, "example_id": k // 4, "prompt": f"What is {k // 4} + 1?", "completion": f"{k % 3}",
                "answer": str(k // 4 + 1), "reward": lost if k % 5 == 0 else float(k % 2), scored: float(k % 2),
                "latency": lost if k % 5 == 0 else 0.25, "turns": other if k % 7 == 0 else 2.0,
            }
            for k in range(96)
        ]  # fmt: skip
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return read(path)

    (found,) = judge_claims.with_rollouts(written(float("nan"), float("nan")), ())
    assert found.fault == "non-finite"
    assert "the reward of 20 of 96 rollouts is NaN, and latency is NaN in exactly these" in found.because
    assert found.remedy.startswith("keep latency out of the sum")
    assert judge_claims.with_rollouts(written(0.0, float("nan")), ()) == ()
    failed = written(float("nan"), float("nan"), "shown")  # no function says that it gave these a number
    assert judge_claims.with_rollouts(failed, ()) == ()
