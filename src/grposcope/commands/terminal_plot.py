"""What the plots of the commands have in common."""

from __future__ import annotations

import re
import shutil
import sys

import plotext

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def framed(title: str, xlabel: str) -> str:
    """The current plotext figure as text, at most 100 columns wide, without colours unless on a terminal."""
    plotext.plot_size(min(shutil.get_terminal_size().columns, 100), 18)
    plotext.theme("clear")
    plotext.title(title)
    plotext.xlabel(xlabel)
    text = str(plotext.build())
    return text if sys.stdout.isatty() else _COLOUR.sub("", text)
