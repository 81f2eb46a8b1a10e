"""Groups, masks, rewards, dropping, metrics, resumes, the first update: faults are seen and named, sound ones hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import judged_claims
import numpy as np
import pipelines
import pytest
import synthetic_series
from pipelines import Pipeline

from grposcope.core.rollouts import Rollout
from grposcope.signs.rollouts.claims import groups
from grposcope.signs.rollouts.evidence import PipelineEvidence

SIZES = ((1, 4, 4), (2, 16, 8))


@pytest.mark.parametrize(("fault", "claim", "name"), [
    (pipelines.end_masked, "tokens", "end of text masked"),
    (pipelines.end_twice, "tokens", "end of text twice"),
    (pipelines.padding_trained, "tokens", "padding trained on"),
    (pipelines.off_by_one, "tokens", "mask off by one"),
    (pipelines.prompt_trained, "tokens", "prompt trained on"),
    (pipelines.tool_trained, "tokens", "tool output trained on"),
    (pipelines.truncated_trained, "tokens", "truncated completions trained on"),
    (pipelines.mixed_groups, "groups", "mixed prompts"),
    (pipelines.singletons, "groups", "singletons"),
    (pipelines.copied, "groups", "copied rollouts"),
    (pipelines.failures_as_zeros, "rewards", "failures as zeros"),
])  # fmt: skip
def test_faults_of_rollouts(fault: pipelines.Fault, claim: str, name: str) -> None:
    """At two sizes, from the last step on; the same pipelines without the fault hold."""
    for steps, prompts, group in SIZES:
        pipeline = Pipeline(seed=1, steps=steps, prompts=prompts, group=group, masks_truncated=True)
        sound = pipelines.judged(pipeline.rows(), pipeline.settings)
        assert {one.status for one in sound.values()} <= {"holds", "cannot tell"}
        result = pipelines.judged(pipelines.with_fault(pipeline, fault, since=steps), pipeline.settings)[claim]
        assert result.status == "broken", (steps, result)
        assert name in (result.told[0].fault, result.told[0].brief)
        assert name == "copied rollouts" or result.told[0].onset == steps


def test_end_is_inferred() -> None:
    """Without the id of the end, the token that nearly all shorter completions end with is taken."""
    pipeline = Pipeline(prompts=16)
    settings = {name: value for name, value in pipeline.settings.items() if name != "ends"}
    assert pipelines.judged(pipeline.rows(), settings)["tokens"].status == "holds"
    found = pipelines.judged(pipelines.with_fault(pipeline, pipelines.end_masked), settings)["tokens"]
    assert found.told[0].fault == "end of text masked"


def test_a_mask_that_leaves_tools_out_holds() -> None:
    """Tool tokens in the middle that are not trained on."""
    pipeline = Pipeline()
    rows = [pipelines.with_tool(row, 0) for row in pipeline.rows()]
    assert pipelines.judged(rows, pipeline.settings)["tokens"].status == "holds"


def test_groups_whose_size_moves_from_step_to_step() -> None:
    """Stated by auto_group: each step has one size of its own, and a lost rollout is seen all the same."""
    rows = [row for step, size in ((1, 4), (2, 8)) for row in Pipeline(steps=2, prompts=4, group=size).rows()
            if row["step"] == step]  # fmt: skip
    settings = {**Pipeline(group=4).settings, "auto_group": 20}
    result = pipelines.judged(rows, settings)["groups"]
    assert result.status == "holds", result
    assert any("One size in each step: 4, 8 (8 groups;" in one.because for one in result.told)
    assert pipelines.judged(rows, Pipeline(group=4).settings)["groups"].status == "broken"
    broken = pipelines.judged(rows[:-1], settings)["groups"]
    assert broken.status == "broken"
    assert broken.told[0].fault == "wrong group size"
    assert "at step 2, has 7 instead of 8" in broken.told[0].because


def test_a_batch_of_one_prompt_is_said() -> None:
    """Steps 3 and 4 are of one prompt each, with the rollouts of all eight groups of a step before."""
    pipeline = Pipeline(steps=4)
    rows = pipeline.rows()
    for row in rows:
        if row["step"] > 2:
            row.update(group=f"batch {row['step']}", prompt="the same", prompt_ids=None)
    settings = {name: value for name, value in pipeline.settings.items() if name != "num_generations"}
    told = pipelines.judged(rows, settings)["groups"].told[0]
    assert (told.fault, told.brief) == ("wrong group size", "one prompt fills the batch")
    assert "2 of these fill whole batches, with the rollouts of one prompt" in told.because
    assert told.remedy.startswith("Print the prompts of such a batch")


def test_groups_over_two_steps() -> None:
    """A group of which one half lies in another step."""
    pipeline = Pipeline(steps=2)
    rows = pipeline.rows()
    for row in rows[: pipeline.group // 2]:
        row["step"] = 2
    told = pipelines.judged(rows, pipeline.settings)["groups"].told[0]
    assert (told.fault, told.brief) == ("split groups", "groups split between steps")
    assert told.onset == 1


def test_prompts_without_ids_are_cut_into_groups() -> None:
    """A prompt that was drawn twice in a step is two groups of the stated size."""
    pipeline = Pipeline(steps=1, prompts=2)
    rows = [{**row, "prompt": "the same", "group": None, "prompt_ids": None} for row in pipeline.rows()]
    result = pipelines.judged(rows, pipeline.settings)["groups"]
    assert any("All 2 groups have 8 rollouts" in one.because for one in result.told)
    assert result.status == "cannot tell"  # as groups that were formed by prompt have one prompt by themselves


@pytest.mark.parametrize(
    ("entropy", "alike", "present"), [(0.3, 1.0, True), (0.02, 1.0, False), (0.3, 0.5, False), (None, 1.0, None)]
)
def test_groups_of_one_text(entropy: float | None, alike: float, present: bool | None) -> None:
    """As where every request is drawn with one seed: told where the log's entropy says that draws would differ."""
    names = [f"{group}" if group < alike * 40 else f"{group} {row}" for group in range(40) for row in range(4)]
    rows = tuple(
        Rollout(f"row {i}", step=1 + i // 80, group=str(i // 4), prompt=f"p{i // 4}", completion=name, reward=0.0)
        for i, name in enumerate(names)
    )
    log = {"step": np.arange(1.0, 3.0), "length": np.full(2, 15.0)} | (
        {} if entropy is None else {"entropy": np.full(2, entropy)}
    )
    told = list(groups.PROOF.check(PipelineEvidence("made", rows=rows, run=synthetic_series.run(log))))[-1]
    assert told.present is bool(present)
    assert ("all siblings are the same text" in told.because) is (present is not False)
    if present:
        assert "In 40 of 40 groups" in told.because
        assert "0.3 nats per token, 4.5 for 15 tokens" in told.because
    assert told.status == ("present" if present else "cannot tell" if present is None else told.status)


def test_copies_by_order_keep_their_level() -> None:
    """Without log-probabilities: copies at half the group are seen; independent short answers in 5 % at most."""
    random, seen = np.random.default_rng(0), 0
    for _ in range(40):
        texts = [[str(one) for one in random.integers(0, 3, 8)] for _ in range(6)]
        seen += groups._by_order(texts).status == "possible"
        half = [text[:4] * 2 for text in texts]
        assert groups._by_order(half).status == "possible"
    assert seen <= 5  # Binomial(40, 0.05): more has chance 1 %


def test_repeats_by_probability_keep_their_level() -> None:
    """Answers of three words, whose repeats are frequent and expected: p below 0.05 in at most 5 %."""
    random, seen = np.random.default_rng(0), 0
    chances = np.array([0.6, 0.3, 0.1])
    for _ in range(300):
        drawn = random.choice(3, (8, 8), p=chances)
        test = groups._by_probability([[str(one) for one in part] for part in drawn],
                                      [np.log(chances[part]).tolist() for part in drawn])  # fmt: skip
        seen += test.status == "possible"
    assert seen <= 15


@pytest.mark.parametrize(("move", "fault"), [
    (lambda rewards: np.roll(rewards, 1), "shifted in the batch"),
    (lambda rewards: np.roll(rewards.reshape(-1, 8), 1, axis=1).ravel(), "shifted among siblings"),
    (lambda one: np.random.default_rng(0).permuted(one.reshape(-1, 8), axis=1).ravel(), "shuffled in the group"),
    (lambda rewards: np.random.default_rng(0).permutation(rewards), "shuffled across the batch"),
    (lambda rewards: np.where(np.arange(len(rewards)) % 5, rewards, 0.0), "zeros"),
    (lambda rewards: rewards + 0.1, "rewards of another function"),
    (lambda rewards: rewards, ""),
])  # fmt: skip
def test_rewards_graded_again(move: Any, fault: str) -> None:
    """Rewards that are not in their place; those that are hold."""
    pipeline = Pipeline(steps=1)
    rows = pipelines.of_function(pipeline.rows())
    rewards = move(np.array([row["reward"] for row in rows]))
    rows = [{**row, "reward": float(reward)} for row, reward in zip(rows, rewards, strict=True)]
    result = pipelines.judged(rows, pipeline.settings, grader=pipelines.graded)["rewards"]
    assert result.status == ("broken" if fault else "holds")
    assert not fault or result.told[0].brief == fault


def test_graders_that_are_no_functions() -> None:
    """One that depends on the order, and one that does not repeat."""
    rows = pipelines.of_function(Pipeline(steps=1).rows())
    told = pipelines.judged(rows, {}, grader=pipelines.by_order)["rewards"].told
    assert told[0].fault == "reward depends on neighbours"
    random = np.random.default_rng(0)
    noisy = pipelines.judged(rows, {}, grader=lambda prompts, texts: random.random(len(texts)).tolist())["rewards"]
    assert noisy.told[0].fault == "reward not repeatable"


def _dropped(pipeline: Pipeline, chance: Any) -> list[dict[str, Any]]:
    random = np.random.default_rng(pipeline.seed)
    return [{**row, "dropped": "late" if random.random() < chance(row) else ""} for row in pipeline.rows()]


@pytest.mark.parametrize(("chance", "fault"), [
    (lambda row: 0.5 if len(row["completion_ids"]) > 12 else 0.02, "dropped by length"),
    (lambda row: 0.4 if row["reward"] else 0.02, "dropped by reward"),
    (lambda row: 0.15, ""),
])  # fmt: skip
def test_dropping(chance: Any, fault: str) -> None:
    """By length or reward is seen, blindly holds."""
    pipeline = Pipeline(prompts=24)
    result = pipelines.judged(_dropped(pipeline, chance), pipeline.settings)["dropped"]
    assert result.status == ("broken" if fault else "holds")
    assert not fault or result.told[0].brief == fault


def test_metrics() -> None:
    """A log of the rollouts holds; each metric that is another quantity is named with what it is."""
    pipeline = Pipeline(steps=4, prompts=12, limit=8)
    rows = pipeline.rows()
    run = pipelines.log(rows, 4)
    assert pipelines.judged(rows, pipeline.settings, run)["metrics"].status == "holds"
    parts = [[row for row in rows if row["step"] == step] for step in range(1, 5)]
    every = np.array([np.std([row["reward"] for row in part], ddof=1) for part in parts])
    lengths = [np.array([len(row["completion_ids"]) for row in part]) for part in parts]
    for name, column, words in (
        ("reward_std", every, "the standard deviation of the whole batch"),
        ("dead_fraction", np.full(4, 0.9), ""),
        ("truncated", np.array([(one == one.max()).mean() + 0.0 for one in lengths]), "as long as the longest"),
    ):
        wrong = replace(run, table={**run.table, name: column})
        if name == "truncated":  # every batch has one that ends at the limit
            for row in rows:
                row["truncated"] = row["truncated"] and len(row["completion_ids"]) > 8
        told = pipelines.judged(rows, pipeline.settings, wrong)["metrics"].told[0]
        assert (told.fault, told.brief) == ("metric logged wrongly", f"metric {name}")
        assert words in told.because


def test_logs_of_other_rollouts_are_not_compared() -> None:
    """Where the mean rewards differ, nothing is said of the other metrics."""
    pipeline = Pipeline(steps=4)
    run = pipelines.log(Pipeline(steps=4, seed=9).rows(), 4)
    assert pipelines.judged(pipeline.rows(), pipeline.settings, run)["metrics"].status == "cannot tell"


def test_resume() -> None:
    """Learning rate, data order and optimiser at a restart."""
    pipeline = Pipeline(steps=60, prompts=2, group=2)
    rows = pipeline.rows()
    sound = pipelines.log(rows, 60, restart=31)
    assert pipelines.judged(rows, pipeline.settings, sound)["resume"].status == "holds"
    lr = sound.table["lr"].copy()
    lr[30:] = lr[:30]
    norm = sound.table["grad_norm"].copy()
    norm[30] = 40.0
    again = [{**row, "prompt": f"problem {row['step'] - 30 if row['step'] > 30 else row['step']} {row['prompt'][-1]}"}
             for row in rows]  # fmt: skip
    for made, log, fault in (
        (rows, pipelines.log(rows, 60, restart=31, lr=lr), "learning rate restarted"),
        (rows, pipelines.log(rows, 60, restart=31, grad_norm=norm), "optimiser state lost"),
        (again, sound, "repeated data"),
    ):
        told = pipelines.judged(made, pipeline.settings, log)["resume"].told
        assert told[0].present, fault
        assert fault in (told[0].fault, told[0].brief)


def test_first_update() -> None:
    """Old log-probabilities in bfloat16, those of another mode, and a learning rate that is not the schedule's."""
    pipeline = Pipeline(steps=1)
    rows = pipeline.rows()
    random = np.random.default_rng(0)
    for change, fault in (
        (lambda one: pipelines.stored(one, "bfloat16"), "old log-probabilities in bfloat16"),
        (lambda one: one + random.normal(0, 0.1), "ratio is not 1"),
    ):
        made = [{**row, "old_logprobs": [change(one) for one in row["old_logprobs"]]} for row in rows]
        told = pipelines.judged(made, pipeline.settings)["first update"].told[0]
        assert told.present
        assert (told.fault, told.brief) == ("wrong old log-probabilities", fault)
    settings = {**pipeline.settings, "learning_rate": 1e-5, "lr_scheduler_type": "linear", "max_steps": 40,
                "warmup_steps": 0}  # fmt: skip
    run = pipelines.log(rows, 40)
    result = pipelines.judged(rows, settings, run)["first update"]
    assert result.status == "holds"
    assert any("schedule linear" in one.because for one in result.told)
    wrong = pipelines.judged(rows, {**settings, "lr_scheduler_type": "cosine"}, run)["first update"]
    assert wrong.told[0].fault == "learning rate off schedule"


def test_what_is_missing_is_said() -> None:
    """No, one and odd rollouts: every claim holds or cannot be told, with a reason."""
    one = Pipeline(steps=1, prompts=1, group=2).rows()[:1]
    bare = [{"completion": "a", "reward": 1.0}, {"completion": "b", "reward": 0.0}]
    absent = [{**row, "sampling_logprobs": [math.nan] * len(row["mask"]), "old_logprobs": [math.nan] * len(row["mask"])}
              for row in Pipeline().rows()]  # fmt: skip
    for rows in ([], one, bare, absent):
        for result in pipelines.judged(rows, {}).values():
            assert result.status != "broken"
            assert result.status == "cannot tell"
            assert result.untested
    assert pipelines.judged(absent, Pipeline().settings)["first update"].status == "cannot tell"


def test_the_prompt_of_a_group_is_what_its_trajectories_begin_with() -> None:
    """A history that a template rewrote, or a turn whose beginning is missing, has another prompt and no other task."""

    def rollout(prompt: list[int], group: str = "g", **more: Any) -> Rollout:
        return Rollout(
            step=1, group=group, named=True, prompt_ids=np.array(prompt), completion_ids=np.array([7]), **more
        )

    def told(*rows: Rollout) -> bool:
        claim = judged_claims.of(PipelineEvidence("made", rows=rows))["groups"]
        return any(own.fault == "mixed prompts" and own.present for own in claim.told)

    plain, rewritten = rollout([1, 2]), rollout([1, 3, 4], pieces=2, continuations=(rollout([1, 2]),))
    assert not told(plain, rewritten, plain)
    assert not told(plain, plain, rollout([1, 2, 7, 9], turn=1), rewritten)
    assert told(plain, rollout([1, 3]))
    assert told(plain, replace(rewritten, continuations=(rollout([5, 2]),)))


def _of_three_turns(behind: tuple[int, ...], trained: int, lengths: int = 3) -> list[dict[str, Any]]:
    """Rollouts of three turns that each end with id 2, before `behind` and ids of an environment, whose mask alone
    says which tokens the policy wrote; trained: mask of the tokens behind an end, lengths: of the turns."""
    random = np.random.default_rng(3)
    rows = []
    for place in range(32):
        ids: list[int] = []
        mask: list[int] = []
        for turn in range(3):
            own = [*(int(x) for x in random.integers(10, 99, 6 + place % lengths)), 2]
            between = [int(x) for x in random.integers(10, 99, 5)] if turn < 2 else []
            ids += [*own, *(behind if turn < 2 else ()), *between]
            mask += [1] * len(own) + [trained] * (len(behind) if turn < 2 else 0) + [0] * len(between)
        rows.append({"step": 1, "prompt": f"p{place // 4}", "prompt_ids": [1, place // 4], "completion_ids": ids,
                     "mask": mask, "reward": float(place % 2)})  # fmt: skip
    return rows


@pytest.mark.parametrize("behind", [(), (7,), (7, 8)])
def test_turns_that_end_alike_are_no_padding(behind: tuple[int, ...]) -> None:
    """Each turn ends with the token that ends the completion: what is trained on behind the first is the next turn."""
    for lengths in (1, 3):
        assert pipelines.judged(_of_three_turns(behind, 0, lengths), {})["tokens"].status != "broken"


def test_a_template_behind_each_turn_is_trained_on() -> None:
    """The newline behind the end of a turn has a mask of one (codescout #60)."""
    result = pipelines.judged(_of_three_turns((7,), 1), {})["tokens"]
    assert (result.status, result.told[0].brief) == ("broken", "template trained on")
    assert (
        "32 of 32 rollouts train on the same tokens behind the end of every turn but the last" in result.told[0].because
    )


def test_a_mask_of_what_is_between_turns_is_inverted() -> None:
    """As in RAGEN #71: 1 on what the environment wrote and 0 on the policy's turns, with nothing else that says so."""
    rows = [{**row, "mask": [1 - own for own in row["mask"]]} for row in _of_three_turns((), 0)]
    result = pipelines.judged(rows, {})["tokens"]
    assert (result.status, result.told[0].fault) == ("broken", "mask inverted")
    assert "32 of 32 rollouts are trained on no token up to the first end and on none of the last" in str(result.told)
    last = [{**row, "mask": [int(k >= len(row["mask"]) - 7) for k in range(len(row["mask"]))]}
            for row in _of_three_turns((), 0)]  # fmt: skip
    assert all(told.fault != "mask inverted" for told in pipelines.judged(last, {})["tokens"].told if told.present)
