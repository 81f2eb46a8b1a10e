"""A setting whose name the trainer does not have, and which resembles one that it has.

What it is
    A letter too many or a name of another version: `num_generation` for `num_generations`.
How it shows
    TRL's dataclass refuses unknown names, as do prime-rl and the command line of OpenRLHF, so the run stops at once; a
    YAML file that is read by another program may lose the setting without a word.
What it does to the gradient
    Nothing where the run stops. Where the name is dropped, the default trains instead of what was meant.
What to do
    Use the name that the message proposes.
What decides
    GRPOConfig(**settings) in a Python shell, which takes a second.
Sources
    TRL 1.16, GRPOConfig: https://huggingface.co/docs/trl/grpo_trainer
    prime-rl, CHANGELOG up to July 2026: https://github.com/PrimeIntellect-ai/prime-rl"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Dialect, Settings
from grposcope.faults.known_task import Known
from grposcope.logs.trainers import TRAINERS, openrlhf
from grposcope.signs.settings.names import EVERY

ALIKE = 0.85
"""Likeness of two names, from 0 to 1, from which one may be meant for the other."""

FURTHER = frozenset({
    "num_generations_eval", "per_gpu_train_batch_size", "per_gpu_eval_batch_size", "epsilon_low", "adam_beta2",
    "vllm_importance_sampling_mode", "vllm_importance_sampling_cap", "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min", "vllm_max_model_len", "vllm_max_model_length", "batch_eval_metrics",
    "evaluation_strategy", "eval_accumulation_steps", "num_completions", "max_length", "multi_objective_aggregation",
    "importance_sampling_level", "vllm_importance_sampling_correction", "entropy_coef", "entropy_coef_min",
    "entropy_coef_max", "entropy_coef_delta",
})  # fmt: skip
"""Names that are no mistake, though some resemble others."""


def trl_names(dialect: Dialect) -> frozenset[str]:
    """Names of TRL's settings that are known here."""
    return frozenset({*dialect.keys, *dialect.defaults, *FURTHER})


_PRIME_RL = {
    "max_async_level": ("May 2026", "leave it out; max_off_policy_steps bounds how old rollouts may be"),
    "strict_async_level": ("May 2026", "leave it out"),
    "buffer": ("May 2026", "leave the block out; train.source has a curriculum for each source"),
    "filters": ("May 2026", "write train.filter_zero_advantages or a gate of a curriculum, by version"),
    "advantage": ("June 2026", "write algo"),
    "oversampling_factor": ("August 2026", "leave it out; concurrency bounds what is in flight"),
    "max_inflight_rollouts": ("August 2026", "write concurrency.max_inflight"),
    "rollouts_per_example": ("July 2026", "write group_size"),
    "use_token_client": ("May 2026", "leave it out"),
    "mask_env_responses": ("February 2026", "leave it out"),
    "max_concurrent": ("April 2026", "leave it out; concurrency bounds what is in flight"),
    "val": ("April 2026", "write eval"),
    "env": ("July 2026", "write train.source"),
    "sampling": ("July 2026", "write train.sampling"),
    "train.env": ("July 2026", "write train.source"),
    "eval.env": ("July 2026", "write eval.source"),
    "train.sampling.max_tokens": ("July 2026", "write train.sampling.max_completion_tokens"),
    "seed": ("May 2026", "leave it out"),
}
"""Names below prime-rl's orchestrator that it no longer has -> since when, and what to write."""

_AT_THE_TOP = ("max_async_level", "strict_async_level")
"""Those that stood at the top of a file of the whole run as well."""

_OTHERS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "trl": {
        "max_prompt_length": ("0.28", "shorten the prompts in the data"),
        "use_liger_loss": ("0.28", "write use_liger_kernel"),
        "vllm_guided_decoding_regex": ("0.28", "write vllm_structured_outputs_regex"),
        "wandb_log_unique_prompts": ("0.28", "write log_unique_prompts"),
        "vllm_device": ("0.18", "leave it out; vllm_mode says where vLLM runs"),
        "vllm_dtype": ("0.18", "leave it out"),
    },
    "ms-swift": {"train_type": ("4.1", "write tuner_type")},
}
"""Trainer -> names that it no longer has, since which version, and what to write."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A name that is none, in a call of GRPOConfig or a file for it; names that later versions do not have."""
    yield from _former(config)
    if config.dialect.name == "openrlhf":
        yield from _two_kinds_of_flags(config)
    if config.dialect.name != "trl":
        yield from _near_misses(config)
        return
    names = trl_names(config.dialect)
    for key in (*config.given, *config.opaque):
        if key in names or "." in key:
            continue
        for near in difflib.get_close_matches(key, names, 1, ALIKE):
            yield fact(True, "TRL refuses unknown names", config.signs(key), grade="failing",
                       brief=f"{key} is not a setting", remedy=f"write {near}, if that is what is meant")  # fmt: skip


def _near_misses(config: Settings) -> Iterator[Finding]:
    """Names that differ by one letter from one that the trainer has at the same place, and that the file lacks."""
    names = {setting.key for setting in TRAINERS[config.dialect.name].settings}
    for key in (*config.given, *config.opaque):
        place, dot, last = key.rpartition(".")
        if key in names or len(last) < _LONG or config.resolved:
            continue
        beside = [name for name in names if name.startswith(place + dot) and "." not in name[len(place + dot) :]]
        near = next((name for name in beside if _is_typo(last, name[len(place + dot) :])), None)
        if near is not None and not config.says(near):
            yield fact(
                True,
                f"{key} differs by a letter from {near}, which {config.dialect.title} has at the same place and which "
                "the file does not give: if that is what is meant, its default trains",
                config.signs(key),
                grade="warning",
                brief=f"{key} may be misspelt",
                remedy=f"write {near}, if that is what is meant",
            )


_LONG = 6
"""Letters of a name below which another one may be as near by chance."""


def _is_typo(name: str, other: str) -> bool:
    """Whether two names differ by one letter too many, too few or wrong, two that are swapped, or signs between words;
    a letter too many at the end, as of a plural, or a digit makes another name."""
    if name.replace("-", "_") == other.replace("-", "_") or name.replace("_", "") == other.replace("_", ""):
        return name != other
    if abs(len(name) - len(other)) > 1 or any(letter.isdigit() for letter in name + other):
        return False
    start = next((i for i, (one, two) in enumerate(zip(name, other, strict=False)) if one != two), None)
    if start is None:
        return len(name) < len(other)
    short, long = sorted((name[start:], other[start:]), key=len)
    if len(short) < len(long):
        return long[1:] == short
    swapped = short[:2] == long[1::-1] and short[2:] == long[2:]
    return len(short) > 1 and (swapped or short[1:] == long[1:])


def _former(config: Settings) -> Iterator[Finding]:
    """Names that the trainer had, and has no more, in one finding."""
    if config.resolved:
        return
    given = [*config.given, *config.opaque]
    whole = config.dialect.name == "prime-rl" and any(key.startswith("orchestrator.") for key in given)
    former: list[tuple[str, str, str, str]] = []
    for name, (since, remedy) in (_PRIME_RL if whole else {}).items():
        for own in (f"orchestrator.{name}", *([name] if name in _AT_THE_TOP else [])):
            key = next((key for key in given if key == own or key.startswith(f"{own}.")), None)
            if key is not None:
                former.append((own, key, since, remedy))
    of_another = config.dialect.name == "trl" and not config.form.startswith("the call")  # a file may be of any program
    for name, (since, remedy) in ({} if of_another else _OTHERS.get(config.dialect.name, {})).items():
        if name in given:
            former.append((name, name, since, remedy))
    if former:
        told = "; ".join(f"{own} (until {since}): {remedy}" for own, _, since, remedy in former)
        yield fact(
            True,
            f"{config.dialect.title} no longer has {', '.join(own for own, *_ in former)}, and refuses unknown names: "
            "a current version does not start with this file",
            config.signs(*(key for _, key, *_ in former)),
            grade="note",
            brief=f"{former[0][0]} is of an older version",
            remedy=f"with a current version: {told}",
        )


def _two_kinds_of_flags(config: Settings) -> Iterator[Finding]:
    """Flags with dots, of OpenRLHF from 0.10, beside flags of before, which no version takes together."""
    dotted = [key for key in config.given if key.startswith(("rollout.", "algo.", "actor.", "train."))]
    flat = [setting.key for setting in openrlhf.BEFORE_0_10 if setting.key in config.given]
    if dotted and flat:
        yield fact(
            True,
            f"{flat[0]} is a flag of OpenRLHF before 0.10 and {dotted[0]} one of 0.10 or later: no version takes both",
            config.signs(flat[0], dotted[0]),
            grade="failing",
            brief="flags of two versions",
            remedy="write all flags as the installed version has them (pip show openrlhf)",
        )


FAULT = Fault(
    name="misspelt setting",
    rank=1.0,
    remedy="use the trainer's name of the setting",
    settings=SettingsCheck(
        "misspelt setting",
        _settings,
        EVERY[:-1],
        "names that are not settings but resemble one, or that only older versions have",
        ("failing", "warning", "note"),
    ),
)
