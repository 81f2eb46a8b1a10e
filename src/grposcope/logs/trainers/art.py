"""ART: history.jsonl in the folder of a model, and the same keys in W&B.

A row for the rollouts of a step, one for its update, one for costs, one for an evaluation. Older versions put `train/`
before every key, newer ones have sections, `reward/mean`, `loss/train`. `reward/std_dev` is the mean over groups of a
spread with ddof 0, so it keeps its name; so does what a trajectory reports beside its reward. The trajectories lie
beside it (`art_trajectories`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from grposcope.logs.columns import RawLog
from grposcope.logs.formats import jsonl
from grposcope.logs.formats.log_file import LogFile, LogKind
from grposcope.logs.hints import Hints
from grposcope.logs.trainers import art_trajectories
from grposcope.logs.trainers.trainer import Trainer, with_prefix

HISTORY = "history.jsonl"
"""The metrics, in the folder of a model."""


def read_model(folder: LogFile, hints: Hints) -> RawLog:
    """The folder of a model: its history, and the groups of its trajectories."""
    log = replace(jsonl.read(LogFile(folder.path / HISTORY), hints), engine="art", source=folder.path)
    found = art_trajectories.find(folder.path)
    if found is not None:
        log.groups, where, notes = found.groups()
        log.rollouts = found.texts(where)
        log.notes += notes
    return log


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
        "kl_estimate": ("loss/kl_div", *with_prefix("kl_div")),
        "loss": ("loss/train", *with_prefix("loss")),
        "policy_loss": ("loss/policy_loss", *with_prefix("policy_loss")),
        "grad_norm": ("loss/grad_norm", *with_prefix("grad_norm")),
        "lr": ("loss/learning_rate", *with_prefix("learning_rate")),
    },
    logs=(
        LogKind(read_model, folder=_is_model),
        art_trajectories.KIND,
    ),
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
