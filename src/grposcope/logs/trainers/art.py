"""ART: history.jsonl in the folder of a model, and the same keys in W&B.

A row for the rollouts of a step, one for its update, one for costs, one for an evaluation. Older versions put `train/`
before every key, newer ones have sections, `reward/mean`, `loss/train`. `reward/std_dev` is the mean over groups of a
spread with ddof 0, so it keeps its name; so does what a trajectory reports beside its reward. The trajectories lie
beside it (`art_trajectories`); `art_console` reads what is printed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats.jsonl import objects
from grposcope.logs.formats.kind import LINES, LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.trainers import art_console, art_trajectories
from grposcope.logs.trainers.trainer import Columns, Made, Trainer, with_prefix

HISTORY = "history.jsonl"
"""The metrics, in the folder of a model."""


_EVALUATED = ("val/", "test/")


def _read_history(file: LogFile, hints: Hints) -> RawLog:
    """The rows of a history; of an evaluation, what it has besides, such as data/…, is about its own rollouts."""
    rows = ColumnBuilder()
    for line, row in objects(file):
        evaluated = any(key.startswith(_EVALUATED) for key in row)
        rows.row(line, {k: v for k, v in row.items() if k.startswith((*_EVALUATED, "step"))} if evaluated else row)
    return RawLog(file.path, rows, "art", notes=file.notes)


def _read_model(folder: LogFile, hints: Hints) -> RawLog:
    """The folder of a model: its history, and the groups of its trajectories."""
    log = replace(_read_history(LogFile(folder.path / HISTORY), hints), source=folder.path)
    trajectories = art_trajectories.find(folder.path)
    if trajectories is not None:
        log.groups, where, notes = trajectories.groups()
        log.rollouts = trajectories.texts(where)
        log.notes += notes
    return log


def _made(columns: Columns) -> dict[str, Made]:
    """The share of dead groups: those whose rewards are all equal cannot train."""
    sent, trained = (columns.get(f"data/step_num_groups_{which}") for which in ("submitted", "trainable"))
    if sent is None or trained is None:
        return {}
    formula = "1 − data/step_num_groups_trainable ÷ data/step_num_groups_submitted"
    return {"dead_fraction": Made(1 - trained / np.where(sent > 0, sent, np.nan), formula)}


def _is_model(folder: Path) -> bool:
    return (folder / HISTORY).is_file() and (folder / "trajectories" / "train").is_dir()


ART = Trainer(
    name="art",
    title="ART",
    recognises=lambda keys: (
        bool(keys & {"reward/exception_rate", *with_prefix("exception_rate")}) or {"reward/mean", "loss/train"} <= keys
    ),
    keys={
        "reward": ("reward/mean", *with_prefix("reward")),
        "entropy": ("loss/entropy", *with_prefix("entropy")),
        "kl_k1": ("loss/kl_policy_ref",),
        "kl_estimate": ("loss/kl_div", *with_prefix("kl_div")),
        "loss": ("loss/train", *with_prefix("loss")),
        "policy_loss": ("loss/policy_loss", *with_prefix("policy_loss")),
        "grad_norm": ("loss/grad_norm", *with_prefix("grad_norm")),
        "lr": ("loss/learning_rate", *with_prefix("learning_rate")),
        "clip_fraction": ("loss/clipped_token_fraction",),
        "importance/ratio": ("loss/importance_ratio_mean",),
        "mismatch/correlation": ("loss/probs_corr",),
        "staleness/mean": ("offpolicy/token_weighted_policy_age_steps", *with_prefix("steps_off_policy")),
        "trained": (art_console.TRAINED,),
        "agent/errors": ("reward/exception_rate", *with_prefix("exception_rate")),
    },
    logs=(
        LogKind(_read_model, folder=_is_model),
        LogKind(_read_history, shapes=LINES, rows=(dict.fromkeys(("training_step", "recorded_at", "step"), object),)),
        art_trajectories.TABLE,
        art_trajectories.LINES,
        art_console.KIND,
    ),
    made=_made,
    how_to_log={
        "groups": 'model.log(groups, split="train")',
        "reward": 'model.log(groups, split="train")',
        "evaluation": 'model.log(groups, split="val")',
        "grad_norm": "log the metrics that backend.train returns",
        "loss": "log the metrics that backend.train returns",
        "lr": "log the metrics that backend.train returns",
        "entropy": "log the metrics that backend.train returns",
        "length": "put it into trajectory.metrics",
    },
)
"""Everything that is known of ART."""
