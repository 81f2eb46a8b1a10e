"""Text for the terminal: plots drawn with characters, and what a training run came to."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import plotext

from grposcope.files import dumps

if TYPE_CHECKING:  # training needs torch, and plots of other commands do not
    from grposcope.training.result import TrainResult

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def training(result: TrainResult) -> str:
    """Headline, curve and next steps of a training run, as text."""
    return "\n".join([_curve(result), "", _headline(result), "", _next(result)])


def training_json(result: TrainResult) -> str:
    """What a run came to on one line of JSON: accuracies with standard errors, counts, speed, paths."""
    folder = result.folder
    paths = {"run": folder, **{name: folder / name for name in ("model", "config.json", "steps.jsonl", "groups.jsonl")}}
    return dumps(
        {
            "heldout": {name: asdict(value) for name, value in result.heldout.items()},
            "best_step": result.best_step,
            "steps": result.steps,
            "rollouts": result.rollouts,
            "tokens": result.tokens,
            "seconds": round(result.seconds, 2),
            "tokens_per_second": round(result.tokens / max(result.seconds, 1e-9), 1),
            "interrupted": result.interrupted,
            "paths": {name: str(path) for name, path in paths.items()},
        }
    )


def plot_text(title: str, xlabel: str) -> str:
    """The current plotext figure as text, at most 100 columns wide, without colours unless on a terminal."""
    plotext.plot_size(min(shutil.get_terminal_size().columns, 100), 18)
    plotext.theme("clear")
    plotext.title(title)
    plotext.xlabel(xlabel)
    text = str(plotext.build())
    return text if sys.stdout.isatty() else _COLOUR.sub("", text)


def _headline(result: TrainResult) -> str:
    learning = result.learning
    ran = f"{result.steps} steps, {result.rollouts:,} rollouts, {result.tokens:,} tokens in {result.seconds:.0f} s"
    return "\n".join([learning.sentence, *learning.details, ran])


def _curve(result: TrainResult) -> str:
    """Mean reward of each batch against the step, drawn with characters."""
    plotext.clear_figure()
    if all(0 <= reward <= 1 for reward in result.rewards):
        plotext.ylim(0, 1)
    plotext.plot(range(1, len(result.rewards) + 1), result.rewards, marker="braille")
    return plot_text("mean reward of the rollouts", "step")


def _next(result: TrainResult) -> str:
    """Commands worth trying after this run, aligned with what they do."""
    folder = result.folder
    commands = {
        f"grposcope train --model {folder / 'model'} --task arithmetic:steps=4": "go on, with longer sums",
        "grposcope train --recipe dr_grpo --seed 1": "another objective, another seed",
        f"grposcope report {folder}": "the whole run on one page",
    }
    width = max(map(len, commands))
    return "\n".join(["next:", *(f"  {command:{width}}  {what}" for command, what in commands.items())])
