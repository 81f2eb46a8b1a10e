"""Which quantity each key of a log is: by its engine, by its settings, and by what its own numbers prove.

The same key is another quantity in another version or under another setting. Where neither settings
nor numbers decide, the metric keeps a name that says so, and a note says what is assumed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from grposcope.runs import metrics
from grposcope.runs.run import Floats

_SCALE = re.compile(r"(?P<base>.*\S)\s*\(\s*(?P<factor>\d+(?:\.\d*)?[eE][-+]?\d+)\s*\)")


def engine_of(keys: Iterable[str]) -> str:
    """The engine whose keys these are: trl, verl, openrlhf, tinker, grposcope, or generic."""
    present = set(keys)
    if any(key.startswith(("critic/score", "critic/rewards", "actor/pg_")) for key in present):
        return "verl"
    if present & {"group_reward_std", "rollout/reward_mean", "ppo_clip_ratio", "is_filter_ratio"}:
        return "openrlhf"
    if {"dead_fraction", "rollouts_trained"} <= present:
        return "grposcope"
    if "progress/done_frac" in present:
        return "tinker"
    if present & {"frac_reward_zero_std", "completions/mean_length", "completion_length"} or (
        "reward_std" in present and any(key.startswith("rewards/") for key in present)
    ):
        return "trl"
    return "generic"


def scaled(key: str) -> tuple[str, float] | None:
    """A key with a factor in it, such as lr(1e-4), as the bare key and the factor; None for other keys."""
    match = _SCALE.fullmatch(key)
    return (match["base"], float(match["factor"])) if match else None


def names(
    engine: str, columns: Mapping[str, Floats], settings: Mapping[str, Any], window: int
) -> tuple[dict[str, str], list[str]]:
    """Our name of each key that has one, and what had to be assumed or was proved, a sentence each.

    If two keys of a log are one metric, the first listed in the vocabulary has it, and the other keeps its key.
    """
    found: dict[str, str] = {}
    for key in columns:
        if name := _plain(engine, key):
            found[key] = name
    for name in set(found.values()):
        owners = [key for key, own in found.items() if own == name]
        for extra in sorted(owners, key=lambda key: _rank(engine, name, key))[1:]:
            del found[extra]
    notes: list[str] = []
    if engine == "trl":
        _trl(columns, settings, window, found, notes)
    if engine in ("generic", "tinker") and found:
        named = ", ".join(sorted(set(found.values()) - {"step", "time", "epoch", "lr"}))
        if named:
            notes.append(f"the file does not say how these are defined; taken as their usual meaning: {named}")
    return found, notes


def _plain(engine: str, key: str) -> str | None:
    if engine == "grposcope":
        return key if key in metrics.METRICS else None
    name = metrics.canonical(engine, key)
    if name is None and engine in ("generic", "tinker"):
        if key in metrics.METRICS or key in metrics.LOGGED:
            return key
        return next((name for name, keys in metrics.GENERIC.items() if key in keys), None)
    return name


def _rank(engine: str, name: str, key: str) -> int:
    entry = metrics.metric(name)
    keys = (name, *entry.aliases.get(engine, ()), *metrics.GENERIC.get(name, ()))
    return keys.index(key) if key in keys else len(keys)


def _trl(
    columns: Mapping[str, Floats], settings: Mapping[str, Any], window: int, found: dict[str, str], notes: list[str]
) -> None:
    """reward_std, frac_reward_zero_std and kl of TRL, whose meaning changed between versions and settings."""
    old = "completion_length" in columns
    batchwise = settings.get("scale_rewards") == "batch" or (
        settings.get("multi_objective_aggregation") == "normalize_then_sum"
    )
    spread, dead, kl = (columns.get(key) for key in ("reward_std", "frac_reward_zero_std", "kl"))
    if dead is not None:
        if batchwise:
            found["frac_reward_zero_std"] = "dead_batches"
        elif not (window == 1 and bool(((dead > 0) & (dead < 1)).any())):
            notes.append(
                "frac_reward_zero_std is taken as the share of dead groups; with scale_rewards=batch it would be that "
                "of whole batches (give scale_rewards to be sure)"
            )
    if spread is not None:
        found["reward_std"], why = _trl_spread(columns, settings, old, batchwise)
        notes.append(f"reward_std: {why}")
    if kl is not None:
        if settings.get("trainer") == "rloo" or bool((kl < -1e-6).any()):
            found["kl"] = "kl_k1"
            _rloo_reward(columns, settings, found, notes)
            notes.append("kl is the k1 estimate: it has negative values, which k3 cannot have, or the trainer is RLOO")
        elif old and "clip_ratio" not in columns:
            found["kl"] = "kl_sequence"
            notes.append("kl is averaged over completions, as TRL did up to 0.15")


def _rloo_reward(
    columns: Mapping[str, Floats], settings: Mapping[str, Any], found: dict[str, str], notes: list[str]
) -> None:
    """reward of TRL's RLOO: with the KL penalty subtracted up to 0.29, without it from 1.0."""
    version, reward = _version(settings.get("trl_version")), columns.get("reward")
    if reward is None:
        return
    means = [key for key in columns if re.fullmatch(r"rewards/.+/mean", key)]
    total = np.sum([columns[key] for key in means], axis=0) if means else np.full(len(reward), np.nan)
    if (version is not None and version >= (1, 0)) or np.allclose(reward, total, rtol=1e-3, atol=1e-4, equal_nan=False):
        return
    if version is not None:
        found["reward"] = "reward_after_kl"
        notes.append(f"reward has the KL penalty subtracted, as in RLOO of TRL {settings['trl_version']}")
    else:
        notes.append(
            "reward may have the KL penalty subtracted, as in RLOO up to TRL 0.29: it is not the sum of its parts "
            "(give trl_version)"
        )


def _trl_spread(
    columns: Mapping[str, Floats], settings: Mapping[str, Any], old: bool, batchwise: bool
) -> tuple[str, str]:
    """Name of TRL's reward_std and why."""
    version = _version(settings.get("trl_version"))
    if version is not None:
        if version >= (0, 27):
            return "reward_std_batch", f"of the whole batch, as in TRL {settings['trl_version']}"
        if batchwise:
            return "reward_std_batch", "of the whole batch, by scale_rewards=batch"
        return "reward_std", f"within groups, as in TRL {settings['trl_version']}"
    if old:
        return "reward_std", "within groups, as in the TRL versions that log completion_length (up to 0.16)"
    spread, dead = columns["reward_std"], columns.get("frac_reward_zero_std")
    if dead is not None and not batchwise and bool(((dead == 1) & (spread > 1e-4)).any()):
        return "reward_std_batch", "of the whole batch, since it is not 0 where all groups are dead"
    parts = [key for key in columns if re.fullmatch(r"rewards/.+/std", key)]
    if len(parts) == 1:
        whole = columns[parts[0]]
        both = np.isfinite(whole) & np.isfinite(spread) & (whole > 1e-3)
        if both.sum() >= 3:
            ratio = spread[both] / whole[both]
            if np.ptp(ratio) <= 1e-3 * abs(ratio).max():
                return "reward_std_batch", "of the whole batch, since it is that of the only reward function"
            return "reward_std", "within groups, since it differs from the batch's of the only reward function"
    return "reward_std_unclear", (
        "within groups up to TRL 0.26, of the whole batch from 0.27, and the log does not show which (give trl_version)"
    )


def _version(text: Any) -> tuple[int, ...] | None:
    match = re.match(r"(\d+)\.(\d+)", str(text)) if text is not None else None
    return (int(match[1]), int(match[2])) if match else None
