"""prime-rl: metrics.jsonl of its trainer and of its orchestrator, in one file or two, the same in W&B; token_exports/.

The orchestrator logs rewards, lengths and evaluations, the trainer the update; both count the same steps, and the
orchestrator is ahead. Of the scopes of the rollouts, `all` has every one drawn and `effective` those trained on; `agg`
is over all environments, and the part behind is the agent, `agent` where it has no name of its own. `mismatch_kl` is
the k3 estimate between the trainer's log-probabilities and those of the sampling, mean over tokens.

token_exports/step_N/rank_R.jsonl has a row per sequence with an array per column; the means over the tokens trained on
(`loss_mask`) are what the trainer logs under the same names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Floats
from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats.jsonl import objects
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.rollout_columns import STOP_WORDS
from grposcope.logs.trainers.trainer import Columns, Definitions, Made, Scoped, Setting, Settings, Trainer

EXPORTS = "token_exports"
"""Folder of a run with a file of tokens per step and rank."""

_EXPORTED = {
    "mismatch_kl": "mismatch_kl", "entropy": "entropy", "is_masked": "is_masked", "importance_ratio": "importance_ratio"
}  # fmt: skip
"""Column of an export -> the key that its mean has in the trainer's log."""

_STEP = re.compile(r"step_(\d{1,15})")
_POOL = re.compile(r"(?:train/)?(?P<env>[^/]+)/(?P<subset>all|effective)/(?P<rest>.+)")
_TOKENS = re.compile(
    r"(?P<what>entropy|mismatch_kl|is_masked|reward|num_output_tokens|decode_len|is_truncated)/"
    r"(?P<env>(?!all/|mean$)[^/]+)/mean"
)
_OF_AGENTS = ("reward", "num_output_tokens", "is_truncated")


def _scopes(metric: str) -> tuple[str, ...]:
    """Keys of a metric of the rollouts in the versions of prime-rl, with and without the prefix train/."""
    whole = [f"agg/{scope}/{agent}{metric}/mean" for scope in ("all", "effective") for agent in ("agent/", "")]
    return (f"{metric}/all/mean", *(f"{prefix}{key}" for prefix in ("train/", "") for key in whole))


def _off_policy_level(what: str) -> tuple[str, ...]:
    """Keys of the staleness of the rollouts in earlier versions of prime-rl."""
    return f"off_policy_level/all/{what}", f"off_policy_level/{what}", f"batch/off_policy_level/{what}"


def _of_any_agent(metric: str) -> tuple[re.Pattern[str], ...]:
    """Patterns of a metric of the rollouts of an agent with a name of its own."""
    return tuple(
        re.compile(rf"(?:train/)?agg/{subset}/(?P<agent>[^/]+)/{metric}/mean") for subset in ("all", "effective")
    )


def _agents(keys: Collection[str]) -> list[str]:
    """Names of the agents whose rewards are logged over all environments."""
    forms = _of_any_agent("reward")
    return sorted({match["agent"] for key in keys for form in forms if (match := form.fullmatch(key))})


def _define(columns: Columns, settings: Settings, window: int) -> Definitions:
    """Of several agents, the metrics of the one that is trained; none where several are."""
    names = _agents(columns)
    if len(names) < 2:
        return {}, []
    shares = {name: columns.get(f"{_prefix(columns)}agg/all/{name}/is_trainable/mean") for name in names}
    trained = [name for name, share in shares.items() if share is None or bool((share > 0).any())]
    if len(trained) != 1:
        return {}, [f"{len(trained)} agents are trained ({', '.join(trained)}), each with a reward of its own: --scope"]
    defined = {}
    for metric, forms in PRIME_RL.patterns.items():
        matches = (match for form in forms for key in columns if (match := form.fullmatch(key)))
        key = next((match[0] for match in matches if match["agent"] == trained[0]), None)
        if key is not None:
            defined[key] = metric
    return defined, [f"rewards and lengths are those of the agent {trained[0]}, the only one that is trained"]


def _prefix(keys: Collection[str]) -> str:
    return "train/" if any(key.startswith("train/agg/") for key in keys) else ""


def _made(columns: Columns) -> dict[str, Made]:
    """The share of dead groups, and why rollouts ended."""
    return {**_dead(columns), **_ends(columns)}


_ENDS = {"agent/stop_turns": "turns", "agent/stop_environment": "environment"}
"""Metric -> why a rollout ended, of `core.rollouts.STOPS`."""


def _ends(columns: Columns) -> dict[str, Made]:
    """Shares of rollouts by what stopped them; a condition that no trainer knows is the environment's own."""
    for subset in ("all", "effective"):
        form = re.compile(rf"(?:train/)?agg/{subset}/(?:[^/]+/)?stop_condition/(?P<why>[^/]+)(?:/mean)?")
        reasons = {key: match["why"] for key in columns if (match := form.fullmatch(key))}
        if reasons:
            break
    else:
        return {}
    words = {key: STOP_WORDS.get(why, "environment") for key, why in reasons.items()}
    logged = np.isfinite(np.array([columns[key] for key in reasons])).any(0)
    made = {}
    for metric, end in _ENDS.items():
        keys = [key for key, word in words.items() if word == end]
        share = np.nansum([columns[key] for key in keys], axis=0) if keys else np.zeros(len(logged))
        made[metric] = Made(np.where(logged, share, np.nan), " + ".join(keys) or "0, no such stop_condition is logged")
    return made


def _dead(columns: Columns) -> dict[str, Made]:
    """The share of dead groups: those of which nothing or all is solved, for rewards from 0 to 1."""
    names = _agents(columns)
    base = f"{_prefix(columns)}agg/all/{names[0]}" if len(names) == 1 else ""
    some, least, most = (columns.get(f"{base}/{key}") for key in ("solved_some", "reward/min", "reward/max"))
    if some is None or least is None or most is None or np.nanmin(least) < 0 or np.nanmax(most) > 1:
        return {}
    return {"dead_fraction": Made(1 - some, f"1 − {base}/solved_some")}


def _scoped(keys: Collection[str]) -> Scoped:
    """The keys of each environment; of a run on one environment with several agents, those of each agent."""
    scoped: Scoped = {}
    for key in keys:
        if (match := _POOL.fullmatch(key)) and match["env"] not in ("agg", "eval"):
            whole = f"{'train/' if key.startswith('train/') else ''}agg/{match['subset']}/{match['rest']}"
            if whole in keys:
                scoped.setdefault(match["env"], {})[key] = whole
        elif (match := _TOKENS.fullmatch(key)) and (whole := f"{match['what']}/all/mean") in keys:
            scoped.setdefault(match["env"], {})[key] = whole
    return scoped if len(scoped) > 1 else _by_agent(keys)


def _by_agent(keys: Collection[str]) -> Scoped:
    scoped: Scoped = {}
    for metric in _OF_AGENTS:
        for key in keys:
            for form in _of_any_agent(metric):
                if match := form.fullmatch(key):
                    scoped.setdefault(match["agent"], {})[key] = key.replace(f"/{match['agent']}/", "/agent/")
    return scoped


def export_files(folder: Path) -> dict[int, list[Path]]:
    """Step -> files of the ranks in a folder token_exports, or in the folder of a run that has one."""
    exports = folder / EXPORTS if (folder / EXPORTS).is_dir() else folder
    steps = {int(match[1]): path for path in exports.iterdir() if (match := _STEP.fullmatch(path.name))}
    files = {step: sorted(steps[step].glob("rank_*.jsonl")) for step in sorted(steps) if steps[step].is_dir()}
    return {step: paths for step, paths in files.items() if paths}


def _read_exports(folder: LogFile, hints: Hints) -> RawLog:
    """A folder of token exports as a log whose metrics are means over tokens trained on, of each environment too."""
    files = export_files(folder.path)
    rows = ColumnBuilder()
    for step, paths in files.items():
        sums: dict[str, tuple[float, int]] = {}
        for path in paths:
            file = LogFile(path)
            for _, row in objects(file):
                for key, total, count in _means(row):
                    before = sums.get(key, (0.0, 0))
                    sums[key] = before[0] + total, before[1] + count
            folder.notes += file.notes
        means = {key: total / count for key, (total, count) in sums.items() if count}
        rows.row(step, {"step": step, **means})
    if not rows.present() - {"step"}:
        raise UserError(f"{folder.path}: its exports contain no trained tokens; give metrics.jsonl")
    folder.notes.append(f"the means are over the tokens of {len(files)} exported steps")
    return RawLog(folder.path, rows, "prime-rl", notes=folder.notes, place="step")


def _means(row: dict[str, Any]) -> Iterator[tuple[str, float, int]]:
    """(key, sum, count) over the trained tokens of one sequence, for the whole and for its environment."""
    mask = np.array([bool(value) for value in row.get("loss_mask") or ()], bool)
    scopes = ("all", row["env_name"]) if isinstance(row.get("env_name"), str) and row["env_name"] else ("all",)
    for column, key in _EXPORTED.items():
        values = row.get(column)
        if not isinstance(values, list) or len(values) != len(mask):
            continue
        numbers: Floats = np.array([np.nan if value is None else float(value) for value in values])[mask]
        there = numbers[~np.isnan(numbers)]
        for scope in scopes:
            yield f"{key}/{scope}/mean", float(there.sum()), len(there)


_OF_TRAINING = ("batch_size", "token_batch_size", "seq_len", "max_steps")
"""What a file of the orchestrator alone has, and one of an evaluation has not."""

PRIME_RL = Trainer(
    name="prime-rl",
    title="prime-rl",
    recognises=lambda keys: bool(
        keys & {"mismatch_kl/all/mean", "kl_ent_ratio/mean", "is_truncated/all/mean", *_scopes("num_total_tokens")}
        or _agents(keys)
    ),
    keys={
        "reward": _scopes("reward"),
        "entropy": ("entropy/all/mean", "entropy/mean"),
        "mismatch/k3": ("mismatch_kl/all/mean", "mismatch_kl/mean"),
        "length": ("decode_len/all/mean", *_scopes("num_output_tokens")),
        "truncated": _scopes("is_truncated"),
        "loss": ("loss/mean",),
        "grad_norm": ("optim/grad_norm",),
        "lr": ("optim/lr",),
        "seconds_step": ("time/step",),
        "importance/masked": ("is_masked/mean", "is_masked/all/mean"),
        "importance/ratio": ("importance_ratio/all/mean",),
        "staleness/mean": ("off_policy/mean", "dispatcher/off_policy/mean", *_off_policy_level("mean")),
        "staleness/max": (
            "off_policy/max",
            "dispatcher/off_policy/max",
            *_off_policy_level("max"),
            "scheduler/async_level",
            "batch/async_level",
        ),
        "agent/turns": _scopes("num_turns"),
        "agent/turns_max": tuple(key.removesuffix("mean") + "max" for key in _scopes("num_turns")),
        "agent/rows": _scopes("num_branches"),
        "agent/errors": _scopes("has_error"),
    },
    patterns={
        metric: _of_any_agent(key) for metric, key in zip(("reward", "length", "truncated"), _OF_AGENTS, strict=True)
    },
    define=_define,
    made=_made,
    scoped=_scoped,
    logs=(LogKind(_read_exports, folder=lambda folder: folder.name == EXPORTS and bool(export_files(folder))),),
    without_reward="it has no reward: the orchestrator of prime-rl logs it in its own file; give that file as well",
    version="of August 2026",
    configured=lambda keys: (
        any(key.startswith("orchestrator.") or key == "max_async_level" for key in keys)
        or ("rollouts_per_example" in keys and any(key in _OF_TRAINING or key.startswith("optim.") for key in keys))
    ),
    settings=(
        Setting("orchestrator.group_size", "group"),
        Setting("orchestrator.rollouts_per_example", "group"),
        Setting("rollouts_per_example", "group"),
        Setting("orchestrator.train.sampling.temperature", "temperature"),
        Setting("orchestrator.sampling.temperature", "temperature"),
        Setting("trainer.optim.lr", "lr", 1e-06),
        Setting("trainer.optim.type", "optim", "adamw"),
        Setting("optim.type", "optim"),
        Setting("orchestrator.batch_size", "batch", 128),
        Setting("batch_size", "batch"),
        Setting("orchestrator.train.sampling.max_completion_tokens", "max_tokens"),
        Setting("orchestrator.train.sampling.max_tokens", "max_tokens"),
        Setting("orchestrator.sampling.max_completion_tokens", "max_tokens"),
        Setting("orchestrator.sampling.max_tokens", "max_tokens"),
        Setting("orchestrator.seq_len", "room"),
        Setting("trainer.model.seq_len", "room"),
        Setting("seq_len", "room"),
        Setting("max_steps", "steps"),
        Setting("orchestrator.max_steps", "steps"),
        Setting("trainer.max_steps", "steps"),
        Setting("trainer.scheduler.warmup_steps", "warmup"),
        Setting("scheduler.warmup_steps", "warmup"),
        Setting("trainer.scheduler.decay_steps", "decay"),
        Setting("scheduler.decay_steps", "decay"),
        Setting("trainer.scheduler.type", "schedule", "constant"),
        Setting("trainer.model.optimization_dtype", default="float32"),
        Setting("trainer.loss.kl_tau", default=1e-3),
        Setting("orchestrator.max_off_policy_steps", default=8),
        Setting("sampling.temperature", "temperature"),
        Setting("sampling.top_k", "top_k"),
        Setting("sampling.top_p", "top_p"),
        Setting("sampling.max_tokens", "max_tokens"),
        Setting("optim.lr", "lr"),
        Setting("scheduler.type", "schedule"),
    ),
    how_to_log={
        "reward": "the orchestrator logs it; give its metrics.jsonl",
        "evaluation": "orchestrator.eval.interval",
        "grad_norm": "the trainer logs optim/grad_norm; give its metrics.jsonl",
        "entropy": "the trainer logs entropy/all/mean; give its metrics.jsonl",
        "length": "the orchestrator logs it; give its metrics.jsonl",
        "truncated": "is_truncated, always logged by the orchestrator",
        "lr": "the trainer logs optim/lr; give its metrics.jsonl",
        "loss": "the trainer logs loss/mean; give its metrics.jsonl",
        "mismatch": "the trainer logs mismatch_kl/all/mean; give its metrics.jsonl",
        "agent/turns": "the orchestrator logs num_turns; give its metrics.jsonl",
    },
)
"""Everything that is known of prime-rl."""
