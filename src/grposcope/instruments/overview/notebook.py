"""How a run shows itself in a notebook: its verdict, a few numbers and the curve of its reward.

`%load_ext grposcope` registers this with IPython, so that a `Run` knows nothing of pages. What comes from the run is
escaped, and the curve is a picture, so that no script and no style of a log reaches the notebook.
"""

from __future__ import annotations

import base64
from html import escape
from typing import Any

from grposcope.core.answer import Answer
from grposcope.core.run import Run
from grposcope.core.text import visible
from grposcope.instruments.diagnosis import figures
from grposcope.instruments.overview import answer
from grposcope.render import charts as base

COLOURS = {"failing": base.LIGHT["alarm"], "warning": base.LIGHT["run-5"], "healthy": base.LIGHT["run-3"]}
"""First word of a verdict -> its colour."""

LONGEST = 600
"""Characters of a sentence."""


def register(shell: Any) -> None:
    """Let an IPython shell show runs as cards, and as their verdict where it shows text."""
    formatters = shell.display_formatter.formatters
    formatters["text/html"].for_type(Run, card)
    formatters["text/plain"].for_type(Run, lambda run, printer, cycle: printer.text(text(run)))


def text(run: Run) -> str:
    """A run in one line: its name and its verdict."""
    return f"{visible(run.meta.name, 80)}: {visible(answer.of_run(run).sentence, LONGEST)}"


def card(run: Run) -> str:
    """A run as HTML that can stand in any page."""
    said = answer.of_run(run)
    colour = COLOURS.get(said.word, base.LIGHT["muted"])
    name = f"{run.meta.name} · {run.meta.engine} · {run.steps:,} rows"
    clauses = "".join(f"<li>{_shown(text)}</li>" for text in said.paragraphs[1:])
    return (
        f'<div style="border-left:4px solid {colour};padding:2px 12px;max-width:640px">'
        f'<div style="opacity:.7">{_shown(name)}</div>'
        f'<div style="color:{colour};font-size:115%;font-weight:600">{_shown(said.sentence)}</div>'
        f"{f'<ul>{clauses}</ul>' if clauses else ''}{_numbers(said)}{_curve(run)}</div>"
    )


def _numbers(said: Answer) -> str:
    cells = [
        f'<td style="text-align:left;vertical-align:top;padding:2px 18px 2px 0">{_shown(one.name)}<br>'
        f"<b>{_shown(one.shown)}</b><br><small>{_shown(one.detail)}</small></td>"
        for one in said.numbers
    ]
    return f"<table><tr>{''.join(cells)}</tr></table>" if cells else ""


def _curve(run: Run) -> str:
    figure = figures.reward([run]) if run.steps else None
    if figure is None:
        return ""
    data = base64.b64encode(base.drawn(figure, "png")).decode()
    return f'<img alt="{_shown(figure.title)}" width="560" src="data:image/png;base64,{data}">'


def _shown(words: str) -> str:
    return escape(visible(words, LONGEST))
