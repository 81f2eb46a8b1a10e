"""GRPOscopeTrainer with rollouts of several turns: TRL's `rollout_func`, `tools` and `environment_factory`.

The model is `tables`, whose tokenizer has a token per character: the mark-up of calls is unknown to it, so that tools
are offered and calls are scripted or none. What is tested is that training, record, probe and claims hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import judged_claims
import pytest
import torch

pytest.importorskip("trl", minversion="1.16")
pytest.importorskip("datasets")

import trl
from datasets import Dataset

from grposcope.engines.trl import GRPOscopeTrainer
from grposcope.instruments.verify import read
from grposcope.lab import policies
from grposcope.logs import read as read_run
from grposcope.signs.rollouts.evidence import PipelineEvidence

pytestmark = pytest.mark.slow


def drawn(model: Any, ids: list[int], count: int) -> tuple[list[int], list[float]]:
    """`count` tokens that the model draws after `ids`, up to the first `;`, and their log-probabilities."""
    made, logp = [], []
    for _ in range(count):
        with torch.no_grad():
            chances = model(input_ids=torch.tensor([[*ids, *made]])).logits[0, -1].float().log_softmax(-1)
        token = int(torch.multinomial(chances.exp(), 1))
        made.append(token)
        logp.append(float(chances[token]))
    return made, logp


def two_turns(prompts: list[Any], trainer: Any) -> dict[str, Any]:
    """Three tokens of the policy, two of an environment, three of the policy: TRL's `rollout_func`."""
    tokenizer, model = trainer.processing_class, trainer.accelerator.unwrap_model(trainer.model)
    heard = tokenizer("42").input_ids
    found: dict[str, list[Any]] = {name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask")}
    for prompt in prompts:
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        ids = tokenizer(text).input_ids
        first, one = drawn(model, ids, 3)
        second, other = drawn(model, [*ids, *first, *heard], 3)
        found["prompt_ids"].append(ids)
        found["completion_ids"].append([*first, *heard, *second])
        found["logprobs"].append([*one, *[0.0] * len(heard), *other])
        found["env_mask"].append([1] * 3 + [0] * len(heard) + [1] * 3)
    return found


def trainer(folder: Path, conversation: bool, ours: Mapping[str, Any], **more: Any) -> GRPOscopeTrainer:
    policy = policies.load("tables")
    policy.model.config.max_position_embeddings = 4096
    text = ["a+b=", "c+d=", "e+f=", "a+c="]
    prompts: list[Any] = [[{"role": "user", "content": each}] for each in text] if conversation else text
    if conversation:
        template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
        policy.tokenizer.chat_template = template.read_text()

    def reward(completions: list[Any], **_: Any) -> list[float]:
        return [sum(map(ord, json.dumps(each))) % 7 / 6 for each in completions]

    arguments = trl.GRPOConfig(
        str(folder), use_cpu=True, bf16=False, report_to="none", disable_tqdm=True, per_device_train_batch_size=8,
        num_generations=4, max_completion_length=8, logging_steps=1, max_steps=2, save_strategy="no",
        num_completions_to_print=0, learning_rate=1e-4, gradient_checkpointing=False, loss_type="grpo",
    )  # fmt: skip
    return GRPOscopeTrainer(
        policy.model, reward, args=arguments, train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=policy.tokenizer, **ours, **more,
    )  # fmt: skip


def steps(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "grposcope" / "steps.jsonl").read_text().splitlines()]


def broken(evidence: PipelineEvidence) -> list[str]:
    return [name for name, claim in judged_claims.of(evidence).items() if claim.status == "broken"]


def test_rollout_func(tmp_path: Path) -> None:
    """Text of the environment is masked in record, probe and claims, and nothing is called broken."""
    trainer(tmp_path, False, {"probe_every": 1, "verify_every": 1}, rollout_func=two_turns).train()
    assert [row["step"] for row in steps(tmp_path)] == [1, 2]
    assert all(row["geometry/dead"] < 1 for row in steps(tmp_path))
    assert read_run(tmp_path).table["agent/turns"].tolist() == [2.0, 2.0]
    found = read.evidence(tmp_path)
    for row in found.rows:
        assert row.mask is not None
        assert row.mask.tolist() == [True] * 3 + [False] * 2 + [True] * 3
    assert broken(found) == []


def test_rollout_func_with_credit_for_tokens(tmp_path: Path) -> None:
    """A credit of our own reaches the tokens of the policy alone."""
    trainer(tmp_path, False, {"credit": "prefix", "verify_every": 1}, rollout_func=two_turns).train()
    for row in read.evidence(tmp_path).rows:
        assert row.advantages is not None
        assert (row.advantages[3:5] == 0).all()


def look_up(letter: str) -> str:
    """
    The number of a letter.

    Args:
        letter: one letter
    """
    return "4"


class Table:
    """An environment with one tool."""

    def reset(self, **_: Any) -> str | None:
        return None

    def look_up(self, letter: str) -> str:
        """
        The number of a letter.

        Args:
            letter: one letter
        """
        return "4"


@pytest.mark.parametrize("more", [{"tools": [look_up]}, {"environment_factory": Table}])
def test_tools_and_environments(tmp_path: Path, more: dict[str, Callable[..., Any]]) -> None:
    trainer(tmp_path, True, {"probe_every": 1, "verify_every": 1}, **more).train()
    assert [row["step"] for row in steps(tmp_path)] == [1, 2]
    assert read_run(tmp_path).table["agent/calls"].tolist() == [0.0, 0.0]
    assert broken(read.evidence(tmp_path)) == []


def test_tools_without_a_template_are_refused_by_trl_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="chat template"):
        trainer(tmp_path, False, {}, tools=[look_up])


def by_characters(completions: list[str], **_: Any) -> list[list[tuple[int, float]]]:
    """Step rewards at the third, the fifth and the last character; the environment wrote the fifth."""
    return [[(3, 0.0), (5, float(sum(map(ord, text)) % 3)), (len(text), 0.5)] for text in completions]


def test_a_step_that_the_environment_closes_is_paid_to_the_turn_before(tmp_path: Path) -> None:
    """No reward is lost: the advantages of the first turn depend on what its answer was paid."""
    ours = {"credit": "steps", "step_rewards": by_characters, "verify_every": 1}
    trainer(tmp_path, False, ours, rollout_func=two_turns).train()
    rows = read.evidence(tmp_path).rows
    assert any(row.advantages is not None and row.advantages[:3].any() for row in rows)
