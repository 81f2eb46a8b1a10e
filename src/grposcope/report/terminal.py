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
    from grposcope.training.result import Outcome

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def training(outcome: Outcome) -> str:
    """Headline, curve and next steps of a training run, as text."""
    return "\n".join([_curve(outcome), "", _headline(outcome), "", _next(outcome)])


def training_json(outcome: Outcome) -> str:
    """The outcome on one line of JSON: accuracies with standard errors, counts, speed, paths."""
    folder = outcome.folder
    paths = {"run": folder, **{name: folder / name for name in ("model", "config.json", "steps.jsonl", "groups.jsonl")}}
    return dumps(
        {
            "heldout": {name: asdict(value) for name, value in outcome.heldout.items()},
            "best_step": outcome.best_step,
            "steps": outcome.steps,
            "rollouts": outcome.rollouts,
            "tokens": outcome.tokens,
            "seconds": round(outcome.seconds, 2),
            "tokens_per_second": round(outcome.tokens / max(outcome.seconds, 1e-9), 1),
            "interrupted": outcome.interrupted,
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


def _headline(outcome: Outcome) -> str:
    learning = outcome.learning
    ran = f"{outcome.steps} steps, {outcome.rollouts:,} rollouts, {outcome.tokens:,} tokens in {outcome.seconds:.0f} s"
    return "\n".join([learning.sentence, *learning.details, ran])


def _curve(outcome: Outcome) -> str:
    """Mean reward of each batch against the step, drawn with characters."""
    plotext.clear_figure()
    if all(0 <= reward <= 1 for reward in outcome.rewards):
        plotext.ylim(0, 1)
    plotext.plot(range(1, len(outcome.rewards) + 1), outcome.rewards, marker="braille")
    return plot_text("mean reward of the rollouts", "step")


def _next(outcome: Outcome) -> str:
    """Commands worth trying after this run, aligned with what they do."""
    folder = outcome.folder
    commands = {
        f"grposcope train --model {folder / 'model'} --task arithmetic:steps=4": "go on, with longer sums",
        "grposcope train --recipe dr_grpo --seed 1": "another objective, another seed",
        f"grposcope report {folder}": "the whole run on one page",
    }
    width = max(map(len, commands))
    return "\n".join(["next:", *(f"  {command:{width}}  {what}" for command, what in commands.items())])
