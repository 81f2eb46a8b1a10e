"""How runs, answers and findings show themselves in a notebook: the verdict, numbers, tables, and curves as pictures.

`core.display` asks for these, so that a `Run` knows nothing of pages. What comes from the run is escaped, and curves
are pictures, so that no script and no style of a log reaches the notebook.
"""

from __future__ import annotations

import base64
from html import escape
from typing import Any

from grposcope.core.answer import Answer, Figure, Table
from grposcope.core.finding import Finding
from grposcope.core.run import Run
from grposcope.core.text import visible
from grposcope.instruments.diagnosis import figures
from grposcope.instruments.runs import overview as answer
from grposcope.render import charts as base

COLOURS = {"failing": base.LIGHT["alarm"], "warning": base.LIGHT["run-5"], "healthy": base.LIGHT["run-3"]}
"""First word of a verdict -> its colour."""

DRAWN = 2
"""Charts of an answer that are shown at once."""

ROWS = 20
"""Rows of a table that are shown."""

LONGEST = 600
"""Characters of a sentence."""


def register(shell: Any) -> None:
    """Let an IPython shell show runs as cards, and as their verdict where it shows text."""
    formatters = shell.display_formatter.formatters
    formatters["text/html"].for_type(Run, card)
    formatters["text/plain"].for_type(Run, lambda run, printer, cycle: printer.text(_text(run)))


def _text(run: Run) -> str:
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
        f'<td style="text-align:left;vertical-align:top;padding:2px 18px 2px 0">{_shown(number.name)}<br>'
        f"<b>{_shown(number.shown)}</b><br><small>{_shown(number.detail)}</small></td>"
        for number in said.numbers
    ]
    return f"<table><tr>{''.join(cells)}</tr></table>" if cells else ""


def of_answer(said: Answer) -> str:
    """An answer as HTML: what is said, numbers, the tables that are not folded, and the first charts."""
    colour = COLOURS.get(said.word, base.LIGHT["muted"])
    told = "".join(f"<p>{_shown(text)}</p>" for text in said.paragraphs[1:])
    tables = "".join(_table(table) for table in said.tables if not table.folded)
    drawn = [figure for figure in said.figures if not figure.group]
    more = len(said.figures) - len(drawn[:DRAWN])
    note = f"<p style='opacity:.7'>{more} further charts: .figures[i].chart()</p>" if more > 0 else ""
    return (
        f'<div style="border-left:4px solid {colour};padding:2px 12px;max-width:900px">'
        f'<div style="opacity:.7">{_shown(said.question)}</div>'
        f'<div style="color:{colour};font-size:115%;font-weight:600">{_shown(said.sentence)}</div>'
        f"{told}{_numbers(said)}{tables}{''.join(picture(figure) for figure in drawn[:DRAWN])}{note}</div>"
    )


def of_finding(finding: Finding) -> str:
    """A finding as HTML: which fault, how bad, since when, why, what to do, and what would decide."""
    grade = finding.grade if finding.present and finding.grade else finding.status
    colour = COLOURS.get(grade, base.LIGHT["muted"])
    since = "" if finding.since is None else f", {finding.since}"
    lines = [
        (name, text)
        for name, text in (
            ("Because", finding.because), ("What it does", finding.effect), ("What to do", finding.remedy),
            ("What decides", finding.decides), ("Missing", ", ".join(finding.missing)),
        )
        if text and (finding.present or name not in ("What it does", "What to do"))
    ]  # fmt: skip
    rows = "".join(f"<div><b>{name}</b>: {_shown(text)}</div>" for name, text in lines)
    return (
        f'<div style="border-left:4px solid {colour};padding:2px 12px;max-width:640px">'
        f'<div style="color:{colour};font-weight:600">{_shown(f"{grade}: {finding.fault}{since}")}</div>{rows}</div>'
    )


def picture(figure: Figure) -> str:
    """A chart as a picture in HTML."""
    data = base64.b64encode(base.drawn(figure, "png")).decode()
    return f'<img alt="{_shown(figure.title)}" width="560" src="data:image/png;base64,{data}">'


def _table(table: Table) -> str:
    head = "".join(f"<th style='text-align:left'>{_shown(name)}</th>" for name in table.header)
    rows = "".join(
        f"<tr>{''.join(f'<td style=text-align:left>{_shown(cell)}</td>' for cell in row)}</tr>"
        for row in table.rows[:ROWS]
    )
    return f"<table><caption>{_shown(table.title)}</caption><tr>{head}</tr>{rows}</table>"


def _curve(run: Run) -> str:
    figure = figures.reward([run]) if run.steps else None
    return "" if figure is None else picture(figure)


def _shown(words: str) -> str:
    return escape(visible(words, LONGEST))
