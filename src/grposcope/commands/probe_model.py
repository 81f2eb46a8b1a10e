"""Which model `grposcope probe` measures: the last one of a run, one of its checkpoints, or any other."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.instruments import has
from grposcope.lab.train import checkpoint as checkpoints
from grposcope.logs.native import schema
from grposcope.logs.trainers import trl_output

DEFAULTS: Mapping[str, Any] = {"task": "arithmetic", "reward": None, "max_tokens": None, "temperature": 1.0,
                               "recipe": "grpo", "advantage": None, "credit": "outcome"}  # fmt: skip
"""Settings that are those of the run where their flag is not given, and their values without a run."""

OF_TASK = ("reward", "max_tokens")
"""Settings that belong to the task, so that the run decides them for its own task only."""

OF_RECIPE = ("advantage",)
"""Settings that belong to the recipe, so that the run decides them for its own recipe only."""


@dataclass(frozen=True)
class ModelSource:
    """A model to measure. model: the name it loads with; of a run: its folder, its settings, the model's step.

    task_unknown: whether the model was trained on a task that nobody wrote down. output: of TRL, the folder with its
    checkpoints. logged: of TRL, the trainer's own arguments, where they are known.
    """

    model: str
    run: Path | None = None
    step: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    task_unknown: bool = False
    output: Path | None = None
    logged: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> Path | None:
        """Folder in the run where its page looks for probes of this model; None outside of runs."""
        if self.run is not None and has("gradient"):
            from grposcope.instruments.gradient import probe_record as probe

            return self.run / probe.FOLDER / f"step-{self.step:06d}"
        return None

    def complete(self, arguments: argparse.Namespace) -> None:
        """Set the flags that were not given: to the run's settings, else to DEFAULTS; UserError without a task."""
        if self.task_unknown and arguments.task is None and arguments.rollouts is None:
            raise UserError(
                f"{self.model} is a checkpoint of TRL, which does not name its task; give --task, such as gsm8k, "
                "or jsonl:PATH with --reward MODULE:FUNCTION for your own; or --rollouts with the completions "
                "folder of the run"
            )
        others = (OF_TASK if arguments.task is not None else ()) + (OF_RECIPE if arguments.recipe is not None else ())
        for name, default in DEFAULTS.items():
            recorded = None if name in others else self.settings.get(name)
            if getattr(arguments, name) is None:
                setattr(arguments, name, default if recorded is None else recorded)


def find(model: str, checkpoint: int | None = None) -> ModelSource:
    """The model that `--model` and `--checkpoint` name; UserError where the run has none such."""
    folder = Path(model)
    try:
        whole = folder.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # a name on the hub, or said below
        whole = folder.absolute()
    except (OSError, RuntimeError):  # a link to itself: RuntimeError before Python 3.13
        raise UserError(f"{model} cannot be followed to a folder; give the folder of a model or a run") from None
    if whole.parent.name == "checkpoints" and (settings := _settings(whole.parent.parent)) is not None:
        if checkpoint is not None:
            raise UserError(f"--checkpoint {checkpoint}: {model} is already a checkpoint; leave the flag out")
        return _of_checkpoint(whole.parent.parent, folder, settings)
    settings = _settings(folder)
    ended = settings is not None and (folder / "model" / "config.json").is_file()
    if (checkpoint is not None or not ended) and (models := trl_output.models(folder)):
        return _of_trl(folder, models, checkpoint)
    if settings is None:
        if checkpoint is not None:
            raise UserError(f"--checkpoint {checkpoint} needs --model with the folder of a run; {model} is not one")
        return ModelSource(model)
    if checkpoint is not None:
        return _of_checkpoint(folder, checkpoints.folder_of(folder, checkpoint), settings)
    summary = schema.read_summary(folder)
    if summary is None or summary.steps is None:
        raise UserError(f"{folder} has not ended, so it has no final model; {_remedy(folder)}")
    return ModelSource(str(folder / "model"), folder, summary.steps, settings)


def _of_trl(folder: Path, models: Mapping[int, Path], checkpoint: int | None) -> ModelSource:
    """The model of a checkpoint of TRL, by default the last; only a run that we started knows its task."""
    step = max(models) if checkpoint is None else checkpoint
    if step not in models:
        raise UserError(
            f"--checkpoint {step}: {folder} has no such checkpoint; use one of {', '.join(map(str, models))}"
        )
    output = models[step].resolve().parent
    completions = trl_output.find(folder) or trl_output.find(output)
    record = None if completions is None else completions[1]
    config = None if record is None else _config(record)
    known = {} if config is None else config.settings
    logged = {} if config is None else dict(config.resolved.get("logged") or {}, trainer=known.get("trainer"))
    sampling = {name: known[name] for name in ("temperature", "max_tokens", "group") if known.get(name) is not None}
    ours = known.get("task") is not None
    settings = known if ours else sampling
    return ModelSource(str(models[step]), record, step, settings, task_unknown=not ours, output=output, logged=logged)


def _of_checkpoint(run: Path, folder: Path, settings: Mapping[str, Any]) -> ModelSource:
    """The model of the checkpoint in `folder`; UserError where there is no complete one."""
    try:
        state = checkpoints.read_state(folder)
    except UserError:
        raise UserError(f"{folder} is not a complete checkpoint; {_remedy(run)}") from None
    return ModelSource(str(folder / "model"), run, state.step, settings)


def _settings(folder: Path) -> Mapping[str, Any] | None:
    """The settings of the run in `folder`; None where there is no run."""
    config = _config(folder)
    return None if config is None else config.settings


def _config(folder: Path) -> schema.RunConfig | None:
    """The configuration of the run in `folder`; None where there is no run."""
    try:
        return schema.read_config(folder)
    except (OSError, UserError):
        return None


def _remedy(run: Path) -> str:
    """Remedy for the message that a run does not have the model that was asked for."""
    if steps := checkpoints.steps(run):
        return f"use --checkpoint with one of {', '.join(map(str, steps))}"
    return f"it has no checkpoints; finish it with grposcope train --resume {run}"
