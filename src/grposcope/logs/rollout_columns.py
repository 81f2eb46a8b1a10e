"""Names that trainers and people give to the columns of a rollout, and what tells groups apart.

The one table of names: whatever reads rollouts takes them from here, so that a file has one answer in every spelling.
Names are those of the batches and files of TRL, verl, prime-rl, OpenRLHF, ART, ms-swift, slime and verifiers.

**Which rollouts are a group** is decided here too: those of one step that share, by the first of these that is there,

1. an id of the pipeline's own (`GROUP`): `group`, `group_id`, `group_index` of ART and slime, or `uid` of verl, where
   the numbers of session and output at its end tell siblings apart and are left away; `Rollout.named` is then True;
2. an id of the prompt (`PROMPT`): `prompt_id` of ms-swift, `problem_id`, `example_id` of verifiers, `problem`;
3. the prompt, as text, messages or tokens.

The last two do not tell two groups of one prompt in one step apart. Where the size of groups is known, or most prompts
of a step have one number of rollouts, and it divides theirs, each `size` in turn are a group (`with_groups`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from grposcope.core.rollouts import Rollout

GROUP = ("group", "group_id", "group_index", "uid")
"""Columns with the pipeline's own id of a group."""

PROMPT = ("prompt_id", "problem_id", "example_id", "problem")
"""Columns that say which prompt a rollout is of."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "global_step"),
    "group": GROUP,
    "problem": PROMPT,
    "prompt": ("prompt", "input", "prompts"),
    "completion": ("completion", "output", "response", "responses"),
    "prompt_ids": ("prompt_ids", "prompt_token_ids", "prompt_tokens", "prompts"),
    "completion_ids": (
        "completion_ids", "completion_token_ids", "response_ids", "response_token_ids", "responses", "token_ids",
    ),
    "sequence_ids": ("sequences", "input_ids"),
    "mask": (
        "mask", "completion_mask", "loss_mask", "response_mask", "action_mask", "response_loss_mask", "assistant_mask",
    ),
    "attended": ("attended", "completion_attention_mask"),
    "written": ("tool_mask", "env_mask", "written"),
    "prompt_trained": ("prompt_mask_trained", "prompt_trained", "prompt_loss_mask"),
    "sampler": (
        "rollout_logprobs", "sampling_logprobs", "inference_logprobs", "rollout_log_probs", "sampling_per_token_logps",
        "rollout_per_token_logps", "completion_logprobs",
    ),
    "old": ("old_logprobs", "old_log_probs", "old_per_token_logps", "action_log_probs"),
    "current": ("logprobs", "trainer_logprobs", "log_probs", "per_token_logps"),
    "reference": (
        "ref_logprobs", "ref_log_prob", "ref_log_probs", "ref_per_token_logps", "base_action_log_probs",
    ),
    "loss_weights": ("loss_weights",),
    "micro_batch": ("part", "micro_batch"),
    "last": ("last_logprobs",),
    "last_weights": ("last_loss_weights",),
    "last_step": ("last_step",),
    "last_part": ("last_part",),
    "rewards": ("rewards", "metrics", "reward_components", "component_rewards", "reward_breakdown"),
    "reward": ("reward", "score", "rewards"),
    "advantages": ("advantage", "advantages"),
    "length": ("length", "response_length", "completion_length"),
    "turns": ("turns",),
    "trajectory": ("trajectory", "trajectory_id", "session_id", "episode_id", "rollout_id"),
    "turn": ("turn", "turn_index", "turn_id", "step_index"),
    "turn_rewards": ("turn_rewards", "turn_scores"),
    "pieces": ("pieces",),
    "stop": ("stop", "stop_reason", "stop_condition", "finish_reason"),
    "anchors": ("anchors",),
    "version": ("version", "weight_version", "policy_version"),
    "version_by_turn": ("version_by_turn", "weight_versions"),
    "truncated": ("truncated", "is_truncated"),
    "environment": (
        "environment", "env", "env_name", "env_id", "data_source", "domain", "task_name", "dataset", "agent",
        "agent_name", "task", "scope",
    ),
    "failed": ("error", "failed"),
    "dropped": ("dropped", "filtered"),
}  # fmt: skip
"""Our column, a field of `Rollout` -> the names that it may have, of which the first that is there is taken.

`prompts` and `responses` are texts or token ids, by what is in them; `rewards` is an object by function, or one number.
`rollout_id` is a trajectory beside a `turn`, or where it tells rollouts of several rows from their siblings
(`rollout_rows`): elsewhere it counts steps or rows.
`sequence_ids` are prompt and completion in one, told apart by the mask."""

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "step": ("iteration", "training_step", "train_step"),
    "group": ("group_number",),
    "prompt": ("question", "query", "instruction", "prompt_text", "user"),
    "completion": (
        "generated_text",
        "generation",
        "model_output",
        "answer_text",
        "completion_text",
        "response_text",
        "text",
        "assistant",
        "completions",
        "outputs",
    ),
    "reward": ("total_reward", "reward_total", "reward_score", "return"),
}
"""Our column -> further names that people give to it in plain tables, taken where a row has none of NAMES for it."""

ENVIRONMENTS = 50
"""Most environments of a file; a column with more texts is something else."""

STOP_WORDS: Mapping[str, str] = {
    "stop": "eos", "end_turn": "eos", "done": "eos", "completed": "eos",
    "max_tokens": "length", "truncated": "length", "max_input_tokens": "length", "max_output_tokens": "length",
    "max_total_tokens": "length", "max_turns": "turns", "max_turns_reached": "turns",
    "tool_calls": "tool", "abort": "aborted",
    "generation_truncated": "length", "context_length": "length", "prompt_too_long": "length",
    "compaction_failed": "length", "has_error": "error", "no_tools_called": "eos", "agent_completed": "eos",
    "env_done": "environment", "environment_done": "environment", "max_turns_exceeded": "turns",
    "max_response_length_exceeded": "length", "max_prompt_length_exceeded": "length", "timeout": "error",
}  # fmt: skip
"""A trainer's word for why a rollout ended -> ours, of `core.rollouts.STOPS`."""

_EVERY_NAME = frozenset(name for names in NAMES.values() for name in names)


def with_groups(rows: Sequence[Rollout], size: int | None) -> tuple[Rollout, ...]:
    """The rollouts, those of a prompt that was drawn for several groups in a step divided into groups of `size`.

    Where that is None, it is the size of most prompts of a step, and a prompt that is alone in its step stays whole.
    """
    counts: dict[tuple[int, str], int] = {}
    for row in rows:
        if row.group is not None and not row.named:
            counts[row.step, row.group] = counts.get((row.step, row.group), 0) + 1
    alone = {step for step, prompts in Counter(step for step, _ in counts).items() if prompts == 1}
    each = _size_of_most(counts) if size is None else size
    seen: dict[tuple[int, str], int] = {}
    made = []
    for row in rows:
        if row.group is None or row.named:
            made.append(row)
            continue
        key = (row.step, row.group)
        number = seen[key] = seen.get(key, -1) + 1
        several = each > 0 and counts[key] > each and counts[key] % each == 0
        several = several and (size is not None or row.step not in alone)
        made.append(replace(row, group=f"{row.group}\x1f{number // each}") if several else row)
    return tuple(made)


def _size_of_most(counts: Mapping[tuple[int, str], int]) -> int:
    """The number of rollouts that most prompts of a step have; 0 where no number is that of half of them, or 1 is."""
    usual, times = Counter(counts.values()).most_common(1)[0] if counts else (0, 0)
    return usual if usual > 1 and 2 * times >= len(counts) else 0


def simple(name: str) -> str:
    """The name of a column in small letters, with _ for blanks and hyphens."""
    return re.sub(r"[\s-]+", "_", str(name).strip().lower())


def spelled(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a plain table under our names: capitals, blanks and hyphens count nothing, and a column that has none of
    NAMES may have one of SPELLINGS."""
    made = {}
    for name, value in row.items():
        own = simple(name)
        made[own if own in _EVERY_NAME and own not in row else name] = value
    for column, names in SPELLINGS.items():
        if not any(name in made for name in NAMES[column]):
            other = next((name for name in made if simple(name) in names), None)
            if other is not None:
                made[column] = made[other]
    return made
