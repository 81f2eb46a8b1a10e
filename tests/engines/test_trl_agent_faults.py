"""Faults of agents put into trainings of TRL are named by verify, and the sound training is left alone.

`tables` plays the hidden table with TRL's `rollout_func`, whose further columns say what the turns were paid, the
states before them, what ended them and what failed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import judged_claims
import numpy as np
import pytest
import torch

pytest.importorskip("trl", minversion="1.16")
pytest.importorskip("datasets")

import trl
from datasets import Dataset

from grposcope.engines.trl import GRPOscopeMixin
from grposcope.instruments.verify import read
from grposcope.lab import policies, tasks
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.sampling.turn_sampler import sample_turns
from grposcope.maths import turn_rules

pytestmark = pytest.mark.slow

GROUP = 9

TASK = tasks.load("hidden_table:cost=0.05")
PROBLEMS = {problem.prompt: problem for problem in TASK.problems("train")}

OF_TOKENS = ("completion_ids", "logprobs", "env_mask", "turn_of")

Columns = dict[str, list[Any]]
Rollouts = Callable[[Columns], Columns]


def drawn(prompts: list[str], trainer: Any) -> Columns:
    """Episodes of the groups of prompts: what TRL needs of them, and what it passes on."""
    tokenizer = trainer.processing_class
    ends = torch.tensor([tokenizer.eos_token_id])
    model = trainer.accelerator.unwrap_model(trainer.model)
    policy = Policy("training", model, tokenizer, ends, tokenizer.pad_token_id)
    stream = torch.Generator().manual_seed(trainer.state.global_step)
    settings = DrawSettings(Sampling(TASK.max_tokens))
    with torch.no_grad():
        episodes = sample_turns(policy, TASK, [PROBLEMS[each] for each in prompts[::GROUP]], GROUP, settings, stream)
    made = episodes.completions
    of_tokens = made.tokens, made.logp, made.mask.int(), episodes.turns
    there = episodes.turns >= 0
    return {
        "prompt_ids": [tokenizer(prompt).input_ids for prompt in prompts],
        **{name: [row[kept].tolist() for row, kept in zip(values, there, strict=True)]
           for name, values in zip(OF_TOKENS, of_tokens, strict=True)},
        "turn_rewards": [list(own) for own in episodes.turn_rewards],
        "anchors": [list(own) for own in episodes.anchors], "stop": list(episodes.stops),
        "paid": [sum(own) for own in episodes.turn_rewards],
    }  # fmt: skip


def sound(columns: Columns) -> Columns:
    return columns


def ends_dropped(columns: Columns) -> Columns:
    """The mask leaves out the last token of each turn, which the policy drew."""
    following = ([*mask[1:], 1] for mask in columns["env_mask"])
    both = zip(columns["env_mask"], following, strict=True)
    return {**columns, "env_mask": [[a and b for a, b in zip(*pair, strict=True)] for pair in both]}


def no_mask(columns: Columns) -> Columns:
    """No mask is returned, so that TRL trains on all tokens."""
    return {name: values for name, values in columns.items() if name != "env_mask"}


def failures(columns: Columns) -> Columns:
    """One rollout in eight fails and is paid 0."""
    failed = [row % 8 == 3 for row in range(len(columns["paid"]))]
    return {
        **columns, "error": ["connection reset" if own else "" for own in failed],
        "paid": [0.0 if own else paid for own, paid in zip(failed, columns["paid"], strict=True)],
        "turn_rewards": [[0.0] * len(rewards) if own else rewards
                         for own, rewards in zip(failed, columns["turn_rewards"], strict=True)],
    }  # fmt: skip


def row_a_turn(columns: Columns) -> Columns:
    """The places of a group are taken by the turns of some of its episodes, a row each."""
    names = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "paid", "trajectory", "turn")
    made: Columns = {name: [] for name in names}
    for start in range(0, len(columns["paid"]), GROUP):
        rows = {row: rows_of_turns(columns, row) for row in range(start, start + GROUP)}
        several = [some for count in range(2, GROUP) for some in combinations(rows, count)
                   if sum(len(rows[row]) for row in some) == GROUP]  # fmt: skip
        chosen = max(several, key=lambda some: len({(len(rows[row]), columns["paid"][row]) for row in some}))
        for values in (values for row in chosen for values in rows[row]):
            for name, value in zip(names, values, strict=True):
                made[name].append(value)
    return made


def rows_of_turns(columns: Columns, row: int) -> list[tuple[Any, ...]]:
    """Of each turn of an episode: prompt, tokens, log-probabilities, mask, reward, and which turn of which it is."""
    ids, turns, mask = (columns[name][row] for name in ("completion_ids", "turn_of", "env_mask"))
    rows = []
    for turn in range(max(turns) + 1):
        own = [i for i in range(len(ids)) if turns[i] == turn and mask[i]]
        logp = [columns["logprobs"][row][i] for i in own]
        before = [*columns["prompt_ids"][row], *ids[: own[0]]]
        rows.append((before, [ids[i] for i in own], logp, [1] * len(own), columns["paid"][row], str(row), turn))
    return rows


class LostInTheLoss(trl.GRPOTrainer):
    """Its loss does not see the mask of tools."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        return super()._compute_loss(model, {name: own for name, own in inputs.items() if name != "tool_mask"})


class LostOnTheWay(trl.GRPOTrainer):
    """Its batches lose the mask of tools."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        return {
            name: own for name, own in super()._generate_and_score_completions(inputs).items() if name != "tool_mask"
        }


class Survivors(trl.GRPOTrainer):
    """Each turn is compared with those alone who took it too."""

    rule = "survivors"

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        out = super()._generate_and_score_completions(inputs)
        paid = [each["turn_rewards"] for each in inputs]
        rewards = np.full((len(paid), max(map(len, paid))), np.nan)
        for row, own in enumerate(paid):
            rewards[row, : len(own)] = own
        groups = np.split(rewards, len(rewards) // GROUP)
        credit = torch.tensor(np.nan_to_num(np.concatenate([turn_rules.RULES[self.rule](own) for own in groups])))
        mask = out["tool_mask"].bool()
        begins = mask & ~torch.nn.functional.pad(mask[:, :-1], (1, 0))
        out["advantages"] = credit.gather(1, (begins.cumsum(1) - 1).clamp(min=0)).float() * mask
        return out


class ToGo(Survivors):
    """Each turn is compared with the same turn of all, 0 for those that ended."""

    rule = "to-go"


def reward(completions: list[str], paid: list[float], **_: Any) -> list[float]:
    return paid


def named(folder: Path, change: Rollouts, kind: type = trl.GRPOTrainer, steps: int = 2) -> set[str]:
    """Faults that are present in the evidence of a training."""
    policy = policies.load("tables")
    policy.model.config.max_position_embeddings = 4096
    arguments = trl.GRPOConfig(
        str(folder), use_cpu=True, bf16=False, report_to="none", disable_tqdm=True, num_generations=GROUP,
        per_device_train_batch_size=8 * GROUP, max_completion_length=TASK.max_tokens, logging_steps=1, max_steps=steps,
        save_strategy="no", num_completions_to_print=0, learning_rate=1e-4, gradient_checkpointing=False,
        loss_type="grpo", seed=1,
    )  # fmt: skip

    def rollouts(prompts: list[str], trainer: Any) -> Columns:
        columns = change(drawn(prompts, trainer))
        return {name: values for name, values in columns.items() if name != "turn_of"}

    type("Own", (GRPOscopeMixin, kind), {})(
        policy.model, reward, args=arguments, processing_class=policy.tokenizer, verify_every=1, rollout_func=rollouts,
        train_dataset=Dataset.from_dict({"prompt": [problem.prompt for problem in TASK.problems("train")[:64]]}),
    ).train()  # fmt: skip
    judged = judged_claims.of(read.evidence(folder))
    return {own.fault for claim in judged.values() for own in claim.told if own.present}


@pytest.mark.parametrize("kind", [trl.GRPOTrainer, ToGo])
def test_a_sound_training_is_left_alone(kind: type, tmp_path: Path) -> None:
    assert named(tmp_path, sound, kind) == set()


@pytest.mark.parametrize(
    ("change", "kind", "fault"),
    [
        (no_mask, trl.GRPOTrainer, "tool output trained on"),
        (sound, LostInTheLoss, "tool output trained on"),
        (sound, LostOnTheWay, "tool output trained on"),
        (ends_dropped, trl.GRPOTrainer, "turn ends masked"),
        (row_a_turn, trl.GRPOTrainer, "baseline by rows"),
        (failures, trl.GRPOTrainer, "failures as zeros"),
        (sound, Survivors, "absent turns"),
    ],
)
def test_faults_are_named(change: Rollouts, kind: type, fault: str, tmp_path: Path) -> None:
    assert fault in named(tmp_path, change, kind)
