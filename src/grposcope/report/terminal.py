"""Text for the terminal: plots drawn with characters, and what a training run came to."""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING

import plotext

if TYPE_CHECKING:  # training needs torch, and the plots of other commands do not
    from grposcope.training.result import TrainResult

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def plot_text(title: str, xlabel: str) -> str:
    """Text of the current plotext figure, at most 100 columns wide, without colours unless on a terminal."""
    plotext.plot_size(min(shutil.get_terminal_size().columns, 100), 18)
    plotext.theme("clear")
    plotext.title(title)
    plotext.xlabel(xlabel)
    text = str(plotext.build())
    return text if sys.stdout.isatty() else _COLOUR.sub("", text)


def training(result: TrainResult) -> str:
    """Reward curve of a training run, whether it learned, and what it took."""
    spent = f"{result.rollouts:,} rollouts, {result.tokens:,} tokens in {result.seconds:.0f} s"
    learning = result.learning
    return "\n".join(
        [_reward_curve(result), "", learning.sentence, *learning.details, f"{result.steps} steps, {spent}"]
    )


def _reward_curve(result: TrainResult) -> str:
    """Mean reward of each batch against the step."""
    plotext.clear_figure()
    if all(0 <= reward <= 1 for reward in result.rewards):
        plotext.ylim(0, 1)
    plotext.plot(range(1, len(result.rewards) + 1), result.rewards, marker="braille")
    return plot_text("mean reward of the rollouts", "step")
