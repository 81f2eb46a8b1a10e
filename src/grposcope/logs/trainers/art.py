"""ART: history.jsonl in the folder of a model, and the same keys in W&B.

A row for the rollouts of a step, one for its update, one for costs, one for an evaluation. Older versions put `train/`
before every key, newer ones have sections, `reward/mean`, `loss/train`. `reward/std_dev` is the mean over groups of a
spread with ddof 0, so it keeps its name; so does what a trajectory reports beside its reward. The trajectories lie
beside it (`art_trajectories`).

On a console it prints the bar of the rollouts of a step, the bar of its update, and that none was made.

    gather: 100%|##########| 9/9 [00:36<00:00,  4.0s/it, reward=1.19, win=0.333, completion_tokens=21.3]
    Skipping tuning as there is no suitable data. This can happen when all the trajectories in the same group …
    Advanced step from 0 to 1 (no training occurred)

A bar is drawn again and again; what it says last before the step ends is the mean over the rollouts. A step ends with
the line that says that no training occurred, or where the next rollouts begin.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from grposcope.logs.columns import ColumnBuilder, LeftOut, RawLog
from grposcope.logs.formats.console import clean, printed_number
from grposcope.logs.formats.jsonl import objects
from grposcope.logs.formats.kind import LINES, LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.trainers import art_trajectories
from grposcope.logs.trainers.trainer import Columns, Made, Trainer, with_prefix

_BAR = re.compile(
    r"(?P<kind>gather|train): +\d{1,3}%\|[^|\r\n]*\| *(?P<done>\d{1,9})/(?P<of>\d{1,9}) "
    r"\[[^,\]]*,[^,\]]*(?P<rest>[^\]\r\n]*)\]"
)
_PAIR = re.compile(r"(?P<key>[A-Za-z_][\w/.-]{0,80})=(?P<value>[^,\s\]]+)")
_SKIPPED = re.compile(r"Advanced step from \d{1,12} to (?P<step>\d{1,12}) \(no training occurred\)")

TRAINED = "trained"
"""Key that we give to what is said of an update: 1 where a bar of training was drawn, 0 where none occurred."""


def _read(file: LogFile, hints: Hints) -> RawLog:
    """A row per step: what the bars say of its rollouts and of its update, and whether there was one."""
    steps: list[tuple[int, dict[str, float]]] = []  # line of the first bar, what was said
    left_out, gathered, ended = LeftOut(), False, True
    for line, text, _ in file.lines():
        cleaned = clean(text)
        bars = list(_BAR.finditer(cleaned))
        if (skipped := _SKIPPED.search(cleaned)) is not None and not ended:
            steps[-1][1].update({"step": float(skipped["step"]), TRAINED: 0.0})
            ended = True
        elif not bars and text.strip():
            left_out.add(line, text)
        for bar in bars:
            whole = bar["done"] == bar["of"]
            if bar["kind"] == "gather":
                ended = ended or TRAINED in steps[-1][1] or (gathered and not whole)
                gathered = whole
            if values := _values(bar["rest"]):
                if ended:
                    steps.append((line, {}))
                steps[-1][1].update(values | ({TRAINED: 1.0} if bar["kind"] == "train" else {}))
                ended = False
    rows = ColumnBuilder()
    for number, (line, said) in zip(_numbers([said.get("step") for _, said in steps]), steps, strict=True):
        rows.row(line, {**said, "step": number})
    return RawLog(file.path, rows, "art", notes=file.notes, left_out=left_out)


def _numbers(told: Sequence[float | None]) -> list[float]:
    """Numbers of steps that follow one another, of which some are told: counted on, or back from the first told."""
    first = next(((index, step) for index, step in enumerate(told) if step is not None), (0, 1.0))
    numbers: list[float] = []
    for step in told:
        counted = numbers[-1] + 1 if numbers else first[1] - first[0]
        numbers.append(counted if step is None else step)
    return numbers


def _values(rest: str) -> dict[str, float]:
    """The pairs key=value behind the speed of a bar."""
    values = {pair["key"]: printed_number(pair["value"]) for pair in _PAIR.finditer(rest)}
    return {key: value for key, value in values.items() if value is not None}


KIND = LogKind(_read, printed=re.compile(rb"Advanced step from \d{1,12} to \d{1,12} \(no training occurred\)"))
"""A text is ART's where a step ended without training: its bars alone may be anybody's."""

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
        "trained": (TRAINED,),
        "agent/errors": ("reward/exception_rate", *with_prefix("exception_rate")),
    },
    logs=(
        LogKind(_read_model, folder=_is_model),
        LogKind(_read_history, shapes=LINES, rows=(dict.fromkeys(("training_step", "recorded_at", "step"), object),)),
        art_trajectories.TABLE,
        art_trajectories.LINES,
        KIND,
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
