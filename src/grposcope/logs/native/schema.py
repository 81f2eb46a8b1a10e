"""Schema of the record of a run: its version, and its small documents as types. docs/record.md describes all files.

    config.json     settings, what they resolved to, environment   written once               RunConfig
    steps.jsonl     a line per optimiser step                       appended                   StepRow
    groups.jsonl    a line per group of rollouts                    appended
    evals.jsonl     a line per held-out evaluation                  appended
    rollouts/       a Parquet file per sampled step                 written whole              core.rollouts.Rollout
    phase.json      what the run is doing now                       overwritten in place       RunPhase
    summary.json    what the run came to                            written once, last         Summary

`writer` makes these files and `reader` reads the tables; every other module asks them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import read_whole, typed, unreadable

FORMAT = 2
"""Version of the record, kept in config.json. 2 added rollouts/, phase.json and `truncated` of groups."""

LINES = ("steps", "groups", "evals")
"""The files that grow by lines, without .jsonl."""

ENDED = ("finished", "interrupted", "failed")
"""Phases after which nothing is written any more."""


@dataclass(frozen=True)
class ModelInfo:
    """The model of a run: its name, the class it has in transformers, and its number of parameters, if recorded."""

    name: str = ""
    architecture: str = field(default="", metadata={"key": "class"})
    parameters: int | None = None


@dataclass(frozen=True)
class RunConfig:
    """Content of config.json.

    settings: as given to the trainer, by name; `lab.train.config.TrainConfig` defines those of `grposcope train`.
    resolved: what they came to, by name: task, objective, sampling, lr; of another trainer's run also what else it
    logged of itself. environment: versions and machine. engine, name, window: of runs of another trainer, which trainer
    it was, the run's name there, and how many optimiser steps each row of steps.jsonl is the mean over.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    model: ModelInfo = ModelInfo()
    resolved: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    started: str = ""
    engine: str = "grposcope"
    name: str = ""
    window: int = 1
    format: int = FORMAT

    def document(self) -> dict[str, Any]:
        """The JSON object of config.json; what is not known is left out."""
        model = {"name": self.model.name, "class": self.model.architecture, "parameters": self.model.parameters}
        document: dict[str, Any] = {"format": self.format}
        if self.engine != "grposcope":
            document |= {"engine": self.engine, "window": self.window}
        names = {
            "name": self.name,
            "settings": dict(self.settings),
            "model": {key: value for key, value in model.items() if value},
            **self.resolved,
            "started": self.started,
            "environment": dict(self.environment),
        }
        return document | {key: value for key, value in names.items() if value not in ("", {})}

    @staticmethod
    def parse(document: Mapping[str, Any]) -> RunConfig:
        """The content of a config.json; a field that is absent or of another type has its default."""
        names = {f.name for f in fields(RunConfig)}
        rest = {name: value for name, value in document.items() if name not in names}
        config = typed(RunConfig, {**document, "resolved": rest})
        return replace(config, window=max(config.window, 1))


@dataclass(frozen=True)
class StepRow:
    """A line of steps.jsonl but for its time. docs/record.md has units and definitions; NaN where there is no value.

    reward to truncated, tokens and reward_errors are of the batch of rollouts in use; kl to rollouts_trained of the
    update.
    """

    step: int
    reward: float
    reward_std: float
    dead_fraction: float
    entropy: float
    kl: float
    kl_old: float
    length: float
    truncated: float
    loss: float
    grad_norm: float
    clip_low: float
    clip_high: float
    lr: float
    rollouts_trained: int
    tokens: int
    tokens_generated: int
    seconds_sample: float
    seconds_grade: float
    seconds_update: float
    tokens_per_second: float
    reward_errors: int


@dataclass(frozen=True)
class RunPhase:
    """Content of phase.json: what a run is doing, at which of how many steps, when (Unix time, s), in which process."""

    step: int = 0
    steps: int | None = None
    phase: str = ""
    time: float = 0.0
    pid: int | None = None


@dataclass(frozen=True)
class Summary:
    """Outcome of a run: steps done, whether Ctrl-C ended it, and all of summary.json."""

    steps: int | None
    interrupted: bool
    content: Mapping[str, Any]


def is_record(folder: Path) -> bool:
    """Whether the folder holds a record of a run: a config.json that is whole and has a format version."""
    try:
        return "format" in (_object(folder / "config.json") or {})
    except UserError:
        return False


def read_config(folder: Path) -> RunConfig:
    """config.json of a record; UserError if there is none, or it is broken, or of a newer version."""
    path = folder / "config.json"
    try:
        document = json.loads(read_whole(path))
    except FileNotFoundError:
        raise UserError(f"{folder} has no config.json, so it holds no run; give the folder of a run") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: not valid JSON ({error}); restore it from a copy") from None
    except OSError as error:
        raise unreadable(path, error) from None
    version = document.get("format") if isinstance(document, dict) else None
    if not isinstance(version, int):
        raise UserError(f"{folder}: grposcope train did not write its config.json; give another folder")
    if version > FORMAT:
        raise UserError(
            f"{folder} has record format {version}, and this grposcope reads formats up to {FORMAT}; upgrade grposcope"
        )
    return RunConfig.parse(document)


def read_phase(folder: Path) -> RunPhase | None:
    """phase.json of a record; None if it is not there, or caught while it was being written."""
    content = _object(folder / "phase.json")
    if content is None or not isinstance(content.get("phase"), str):
        return None
    return typed(RunPhase, content)


def read_summary(folder: Path) -> Summary | None:
    """summary.json of a record; None if the run has not ended."""
    content = _object(folder / "summary.json")
    if content is None:
        return None
    steps = content.get("steps")
    return Summary(steps if isinstance(steps, int) else None, bool(content.get("interrupted")), content)


def _object(path: Path) -> dict[str, Any] | None:
    """A small JSON document; None if it is not there or not whole."""
    try:
        content = json.loads(read_whole(path).strip(b"\0 \n"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    except OSError as error:
        raise unreadable(path, error) from None
    return content if isinstance(content, dict) else None
