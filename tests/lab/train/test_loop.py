"""Whole runs on a small random model: the record, determinism, and what stops a run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import config, rows, timeless, weights
from transformers import LlamaConfig, LlamaForCausalLM

from grposcope.core.errors import UserError
from grposcope.lab.cpu import native
from grposcope.lab.policies import Policy
from grposcope.lab.train import command, loop
from grposcope.lab.train.loop import train
from grposcope.lab.train.result import TrainResult


@pytest.fixture
def run(policy: Policy, tmp_path: Path) -> Callable[..., TrainResult]:
    """Run with small settings and the given changes, in a new folder."""
    small = config(policy, tmp_path, steps=4, eval_every=2, eval_problems=3, eval_samples=2)
    count = iter(range(100))

    def go(reward: str | None = "letters", **changes: Any) -> TrainResult:
        own = reward and f"{tmp_path / 'rewards.py'}:{reward}"
        return train(replace(small, **{"reward": own, "out": str(tmp_path / f"run{next(count)}"), **changes}))

    return go


def test_the_record_holds_every_step_group_and_evaluation(run) -> None:
    outcome = run()
    steps, groups, evals = (rows(outcome.folder, name) for name in ("steps", "groups", "evals"))
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    assert [row["step"] for row in groups] == [s for s in (1, 2, 3, 4) for _ in range(3)]
    assert [row["step"] for row in evals] == [0, 2, 4]
    for row in steps:
        rewards = [r for g in groups if g["step"] == row["step"] for r in g["rewards"]]
        assert len(rewards) == 12
        assert row["reward"] == pytest.approx(sum(rewards) / 12)
        assert row["kl"] == "NaN"  # there is no reference, and absent is not 0
    assert outcome.rewards == [row["reward"] for row in steps]
    assert outcome.rollouts == 48
    assert outcome.tokens == sum(row["tokens"] for row in steps)
    config = json.loads((outcome.folder / "config.json").read_text())
    assert config["settings"]["seed"] == 0
    assert config["objective"]["name"] == "grpo"
    assert json.loads((outcome.folder / "summary.json").read_text())["steps"] == 4


@pytest.mark.parametrize(("asked", "said"), [(3, False), (100, True)])
def test_fewer_evaluated_problems_than_were_asked_for_are_said(
    run, asked: int, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """About a tenth of a file of problems is held out."""
    outcome = run(steps=1, eval_problems=asked)
    evaluated = outcome.heldout["last"].n
    told = f"each evaluation is over {evaluated} problems, not {asked}: of 40 the task holds out no more"
    assert (evaluated < asked) == said
    assert (told in " ".join(capsys.readouterr().err.split())) == said


@pytest.mark.parametrize(("reward", "steps", "said"), [("equal", 12, 1), ("equal", 2, 0), ("letters", 12, 0)])
def test_a_run_whose_first_rewards_are_all_equal_is_told_once_in_one_line(
    run, reward: str, steps: int, said: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run(reward, steps=steps, eval_every=0, eval_problems=0)
    err = " ".join(capsys.readouterr().err.split())
    told = "step 10: warning: constant reward, because every rollout has a reward of exactly 1 in all 10 steps; what"
    assert err.count(told) == said
    assert err.count("warning: ") == said


def test_a_run_says_before_its_first_step_which_prompts_its_model_cannot_read(
    run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [f"caf\u00e9 {i}:" if i % 2 else f"tea {i}:" for i in range(40)]
    (tmp_path / "menu.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    run(steps=1, task=f"jsonl:{tmp_path / 'menu.jsonl'}", eval_problems=0)
    err = capsys.readouterr().err
    before, told, _ = err.partition("training prompts have text that the tokenizer of")
    assert told
    assert "maps to its unknown token, such as '\u00e9': the model cannot" in " ".join(err.split())
    assert "0/1" in before or "step" not in before


def test_it_learns(run) -> None:
    """Reward is the share of letters; forty steps from about a half must leave it clearly higher."""
    outcome = run(steps=40, eval_every=0, eval_problems=0)
    first, last = sum(outcome.rewards[:5]) / 5, sum(outcome.rewards[-5:]) / 5
    assert last > first + 0.2


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"interval": 6, "minibatches": 3, "kl": 0.1, "entropy": 0.01},
        {"recipe": "dapo"},
        {"optimizer": "sgd", "recipe": "rloo", "interval": 2},
    ],
)
def test_same_seed_same_run_bit_for_bit(run, changes: dict) -> None:
    one, two, other = run(**changes), run(**changes), run(**changes, seed=1)
    for name in ("steps", "groups", "evals"):
        assert timeless(rows(one.folder, name)) == timeless(rows(two.folder, name))
    assert weights(one.folder) == weights(two.folder) != weights(other.folder)


def test_micro_batches_do_not_change_the_run(run) -> None:
    whole, pieces = run(), run(micro_batch=5)
    for a, b in zip(rows(whole.folder), rows(pieces.folder), strict=True):
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-3)


def test_refresh_interval_reuses_rollouts(run) -> None:
    outcome = run(interval=2)
    assert outcome.rollouts == 24
    steps = rows(outcome.folder)
    assert [row["reward"] for row in steps[::2]] == [row["reward"] for row in steps[1::2]]
    assert steps[0]["kl_old"] == pytest.approx(0, abs=1e-6)
    assert steps[1]["kl_old"] > 1e-5
    assert {row["step"] for row in rows(outcome.folder, "groups")} == {1, 3}


@pytest.mark.parametrize("interval", [1, 2])
def test_a_rounded_sampler_is_the_policy_that_ratios_are_to(policy: Policy, tmp_path: Path, interval: int) -> None:
    """The KL to the sampling policy of a fresh batch is that of rounding: seen in int8, next to none in float32."""
    if native._library() is None or native.available("int8") != "int8":
        pytest.skip("needs a C compiler and a processor with the instructions")
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=policy.model.config.vocab_size)).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    small = config(replace(policy, model=model), tmp_path, steps=2, eval_every=0, eval_problems=0, interval=interval)
    kl = {}
    for precision in ("float32", "int8"):
        out = str(tmp_path / precision)
        kl[precision] = rows(train(replace(small, sampler_precision=precision, out=out)).folder)[0]["kl_old"]
    assert abs(kl["float32"]) < 1e-7
    assert 1e-6 < kl["int8"] < 0.05


def test_kl_to_the_start_grows_from_zero(run) -> None:
    kl = [row["kl"] for row in rows(run(kl=0.01).folder)]
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert kl[-1] > kl[0]


@pytest.mark.parametrize("credit", ["steps", "process"])
def test_per_step_credit(credit: str, run, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(task="arithmetic:size=50", reward=None, credit=credit)
    assert outcome.steps == 4
    assert ("warning: credit process" in capsys.readouterr().err) == (credit == "process")
    with pytest.raises(UserError, match="needs a task that labels steps"):
        run(credit=credit)


@pytest.mark.parametrize(
    "changes", [{"dtype": "bfloat16"}, {"checkpointing": True}, {"schedule": "cosine", "warmup": 2}]
)
def test_settings_of_the_machine_and_the_schedule_run(run, changes: dict) -> None:
    assert run(**changes).steps == 4


def test_interrupted_runs_keep_what_is_done(run, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = loop.update
    calls = iter(range(10))

    def interrupted(*args, **kwargs):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return whole(*args, **kwargs)

    monkeypatch.setattr(loop, "update", interrupted)
    outcome = run()
    assert outcome.interrupted
    assert outcome.steps == 2
    assert len(rows(outcome.folder)) == 2
    assert (outcome.folder / "model" / "model.safetensors").exists()
    went_on = f"to continue: grposcope train --resume {outcome.folder}"
    assert (
        command._stopped(outcome) == "stopped after step 2 of 4; there is no checkpoint yet, so a resumed run starts "
        f"from its first step; {went_on}"
    )
    calls = iter(range(10))
    outcome = run(checkpoint_every=1)
    assert "stopped after step 2 of 4; the last checkpoint is of step 2; to continue: " in command._stopped(outcome)


def test_gradients_that_stay_infinite_end_the_run(run, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = loop.update
    monkeypatch.setattr(loop, "update", lambda *a, **k: replace(whole(*a, **k), grad_norm=math.nan))
    with pytest.raises(UserError, match=r"not finite for 10 steps up to step 10; lower the learning rate"):
        run(steps=20)


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        ("broken", r"raised ZeroDivisionError: division by zero in .*rewards.py, line 14 \(rollout 0"),
        ("leaves", r"raised SystemExit: 0 in .*rewards.py, line \d+ \(rollout 0"),
        ("short", r"returned 1 value for \d+ rollouts"),
        ("nan", r"is nan for rollout 2 \(problem"),
    ],
)
def test_rewards_that_fail_name_the_rollout(run, reward: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        run(reward)


def test_a_folder_that_holds_a_run_is_left_alone(run) -> None:
    outcome = run()
    before = {f: f.read_bytes() for f in outcome.folder.rglob("*") if f.is_file()}
    with pytest.raises(UserError, match="already holds a run; choose another folder, or resume that run"):
        run(out=str(outcome.folder))
    assert {f: f.read_bytes() for f in outcome.folder.rglob("*") if f.is_file()} == before
