"""A setting whose name the trainer does not have, and which resembles one that it has.

What it is
    A letter too many or a name of another version: `num_generation` for `num_generations`.
How it shows
    TRL's dataclass refuses unknown names, so the run stops at once; a YAML file that is read by another program may
    lose the setting without a word.
What it does to the gradient
    Nothing where the run stops. Where the name is dropped, the default trains instead of what was meant.
What to do
    Use the name that the message proposes.
What decides
    GRPOConfig(**settings) in a Python shell, which takes a second.
Sources
    TRL 1.16, GRPOConfig: https://huggingface.co/docs/trl/grpo_trainer"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Dialect, Settings
from grposcope.faults.known_task import Known

ALIKE = 0.85
"""Likeness of two names, from 0 to 1, from which one may be meant for the other."""

FURTHER = frozenset({
    "num_generations_eval", "per_gpu_train_batch_size", "per_gpu_eval_batch_size", "epsilon_low", "adam_beta2",
    "vllm_importance_sampling_mode", "vllm_importance_sampling_cap", "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min", "vllm_max_model_len", "vllm_max_model_length", "batch_eval_metrics",
    "evaluation_strategy", "eval_accumulation_steps", "num_completions", "max_length", "multi_objective_aggregation",
    "importance_sampling_level", "vllm_importance_sampling_correction",
})  # fmt: skip
"""Names that are no mistake, though some resemble others."""


def trl_names(dialect: Dialect) -> frozenset[str]:
    """Names of TRL's settings that are known here."""
    return frozenset({*dialect.keys, *dialect.defaults, *FURTHER})


def settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A name that is none, in a call of GRPOConfig or a file for it."""
    names = trl_names(config.dialect)
    for key in (*config.given, *config.opaque):
        if key in names or "." in key:
            continue
        for near in difflib.get_close_matches(key, names, 1, ALIKE):
            yield fact(True, "TRL refuses unknown names", config.signs(key), grade="failing",
                       brief=f"{key} is not a setting", remedy=f"write {near}, if that is what is meant")  # fmt: skip


FAULT = Fault(
    name="misspelt setting",
    rank=1.0,
    remedy="use the trainer's name of the setting",
    settings=SettingsCheck(
        "misspelt setting", settings, ("trl",), "names that are not settings but resemble one", ("failing",)
    ),
)
