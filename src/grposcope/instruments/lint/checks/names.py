"""Names of settings that the trainer does not have, and resemble one that it has."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, Untold
from grposcope.logs.trainers.trl import OWN_SETTINGS, TRL

ALIKE = 0.85
"""Likeness of two names, from 0 to 1, from which one may be meant for the other."""

KNOWN = OWN_SETTINGS | TRL.defaults.keys() | {
    "num_generations_eval", "per_gpu_train_batch_size", "per_gpu_eval_batch_size", "epsilon_low", "adam_beta2",
    "vllm_importance_sampling_mode", "vllm_importance_sampling_cap", "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min", "vllm_max_model_len", "vllm_max_model_length", "batch_eval_metrics",
    "evaluation_strategy", "eval_accumulation_steps", "num_completions", "max_length",
}  # fmt: skip
"""Names that are no mistake, though some resemble others."""


def misspelt(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """A name that is none, in a call of GRPOConfig or a file for it."""
    for key in (*config.given, *config.opaque):
        if key in KNOWN or "." in key:
            continue
        for near in difflib.get_close_matches(key, KNOWN, 1, ALIKE):
            yield Fault("failing", f"{key} is not a setting", "TRL refuses unknown names",
                          f"did you mean {near}?", (key,))  # fmt: skip
