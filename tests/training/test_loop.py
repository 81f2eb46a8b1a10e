"""Whole runs on a small random model: the record, determinism, and what stops a run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from grposcope.errors import UserError
from grposcope.training import loop
from grposcope.training.config import TrainConfig
from grposcope.training.loop import train
from grposcope.training.result import TrainResult

REWARDS = """
def letters(prompts, completions, **columns):
    return [sum(c.isalpha() for c in text) / max(len(text), 1) for text in completions]

def broken(prompts, completions, **columns):
    return [1 / 0 for text in completions]

def short(prompts, completions, **columns):
    return [1.0]

def nan(prompts, completions, **columns):
    return [float("nan") if i == 2 else 0.0 for i, _ in enumerate(completions)]
"""


@pytest.fixture
def model(policy, tmp_path: Path) -> str:
    folder = tmp_path / "model"
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def run(model: str, tmp_path: Path):
    """Run with small settings and the given changes; `out` is made fresh."""
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"say {i}:"}) + "\n" for i in range(40)))
    count = iter(range(100))

    def go(reward: str | None = "letters", **changes: object) -> TrainResult:
        settings: dict = {
            "model": model,
            "task": f"jsonl:{tmp_path / 'prompts.jsonl'}",
            "reward": reward and f"{tmp_path / 'rewards.py'}:{reward}",
            "out": str(tmp_path / f"run{next(count)}"),
            "steps": 4,
            "prompts": 3,
            "group": 4,
            "max_tokens": 6,
            "eval_every": 2,
            "eval_problems": 3,
            "eval_samples": 2,
            "lr": 1e-2,
        }
        return train(TrainConfig(**{**settings, **changes}))

    return go


def lines(outcome: TrainResult, name: str) -> list[dict]:
    return [json.loads(line) for line in (outcome.folder / f"{name}.jsonl").read_text().splitlines()]


def weights(outcome: TrainResult) -> str:
    return hashlib.sha256((outcome.folder / "model" / "model.safetensors").read_bytes()).hexdigest()


def timeless(rows: list[dict]) -> list[dict]:
    return [{k: v for k, v in row.items() if "second" not in k and k != "time"} for row in rows]


def test_the_record_holds_every_step_group_and_evaluation(run) -> None:
    outcome = run()
    steps, groups, evals = (lines(outcome, name) for name in ("steps", "groups", "evals"))
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
        assert timeless(lines(one, name)) == timeless(lines(two, name))
    assert weights(one) == weights(two) != weights(other)


def test_micro_batches_do_not_change_the_run(run) -> None:
    whole, pieces = run(), run(micro_batch=5)
    for a, b in zip(lines(whole, "steps"), lines(pieces, "steps"), strict=True):
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-3)


def test_refresh_interval_reuses_rollouts(run) -> None:
    outcome = run(interval=2)
    assert outcome.rollouts == 24
    steps = lines(outcome, "steps")
    assert [row["reward"] for row in steps[::2]] == [row["reward"] for row in steps[1::2]]
    assert steps[0]["kl_old"] == pytest.approx(0, abs=1e-6)
    assert steps[1]["kl_old"] > 1e-5
    assert {row["step"] for row in lines(outcome, "groups")} == {1, 3}


def test_kl_to_the_start_grows_from_zero(run) -> None:
    kl = [row["kl"] for row in lines(run(kl=0.01), "steps")]
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert kl[-1] > kl[0]


def test_per_step_credit(tmp_path: Path, run) -> None:
    outcome = run(task="arithmetic:size=50", reward=None, credit="steps")
    assert outcome.steps == 4
    with pytest.raises(UserError, match="needs a task that labels steps"):
        run(credit="steps")


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
    assert len(lines(outcome, "steps")) == 2
    assert (outcome.folder / "model" / "model.safetensors").exists()


def test_gradients_that_stay_infinite_end_the_run(run, monkeypatch: pytest.MonkeyPatch) -> None:
    import math
    from dataclasses import replace

    whole = loop.update
    monkeypatch.setattr(loop, "update", lambda *a, **k: replace(whole(*a, **k), grad_norm=math.nan))
    with pytest.raises(UserError, match=r"not finite for 10 steps up to step 10; lower the learning rate"):
        run(steps=20)


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        ("broken", r"raised ZeroDivisionError.*rollout 0"),
        ("short", r"returned 1 values for \d+ rollouts"),
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
