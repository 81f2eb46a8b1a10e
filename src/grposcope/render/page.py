"""One self-contained HTML file about one or several runs.

Everything that a run says (names, settings, prompts, completions) is data: JSON in a script block of type
application/json, with <, >, &, U+2028 and U+2029 written as \\uXXXX, which assets/page.js puts on the page as text.
Only the scripts of this package run: the Content-Security-Policy names their hashes and allows no connection, and
Vega evaluates its expressions with an interpreter, without eval.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import grposcope
from grposcope.core.answer import Answer, Figure
from grposcope.core.errors import UserError
from grposcope.core.files import atomic, dumps
from grposcope.core.text import listed
from grposcope.render.charts import colour

FOLDED = ("dynamics", "stability", "bandit", "other", "time", "geometry_curves")
"""Sections that are folded after the panels of a run: theory, and what no check asks for."""

SMALL = ("learning", "components", "comparison", "policy", "completions", "update", "spread", "critic", "dead_groups")
"""Sections of curves of a run, which are small multiples beside one another."""

LOW = 130
"""Height of a small chart in pixels."""

AT_ONCE = {"figures": 2, "text": 2}
"""Charts and paragraphs that a measurement shows before it is asked for all; its tables are folded beside charts."""

LOWER = 200
"""Height of its charts in pixels, where they are higher."""

WHOLE = ("diagnosis", "settings", "parting")
"""Sections that are shown whole."""

MORE = "more"

FURTHER = "further charts"
"""Group of the other charts of a measurement."""

CHARTS = ("adapted", "charts", "bar")
"""Scripts of a page that has charts."""

WIDGETS = {"rollouts": ("words", "tokens", "chosen", "rollouts")}
"""Widget of a section -> its scripts in assets/, where these are more than one of its name."""


@dataclass(frozen=True)
class Document:
    """Content of a page: the names of the runs, the headline, the sections, other axes than steps of each run, and
    lines that say which run it is."""

    names: tuple[str, ...]
    top: Answer
    sections: tuple[Answer, ...]
    axes: tuple[Mapping[str, Any], ...] = ()
    identity: tuple[str, ...] = ()

    @property
    def figures(self) -> list[Figure]:
        """All charts in the order of the page."""
        return [figure for answer in (self.top, *self.sections) for figure in answer.figures]

    @property
    def numbers(self) -> dict[str, Mapping[str, Any]]:
        """The numbers of every section that has some, by the section's name."""
        return {answer.name: answer.document for answer in (self.top, *self.sections) if answer.document}


def html(content: Document, live: bool = False) -> str:
    """The page as HTML. live: it asks the server it came from for news, and loads itself again."""
    assets = files("grposcope.render") / "assets"
    texts = [(assets / f"{name}.js").read_text() for name in _scripts_of(content, live)]
    scripts = [*([_chart_script()] if content.figures else []), *map(_script, texts)]
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    parts = {
        "POLICY": f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'" + ("; connect-src 'self'" if live else ""),
        "STYLE": (assets / "page.css").read_text(),
        "DATA": _escaped(_data(content)),
        "SCRIPTS": "".join(f"<script>{script}</script>\n" for script in scripts),
    }
    template = (assets / "page.html").read_text()
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match.group(1)], template)  # once: data may hold {{DATA}}


def _scripts_of(content: Document, live: bool) -> list[str]:
    """Names of the scripts in assets/ that this page needs, in the order in which they run."""
    widgets = sorted({section.widget for section in content.sections if section.widget})
    return [
        "elements",
        *(CHARTS if content.figures else ()),
        *(name for widget in widgets for name in WIDGETS.get(widget, (widget,))),
        "page",
        *(["live"] if live else []),
    ]


def write(content: Document, path: Path) -> int:
    """Write the page atomically; returns its size in bytes. UserError where it cannot be written."""
    text = html(content).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise UserError(f"{path} is a folder; name a file, such as {path / 'page.html'}")
        with atomic(path) as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    return len(text)


def _escaped(content: Any) -> str:
    """The content as JSON that is safe inside a script block."""
    text = dumps(content)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def _chart_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which tests/helpers/vega_script.py makes."""
    return _script((files("grposcope.render") / "assets" / "vega.js").read_text())


def _data(content: Document) -> dict[str, Any]:
    shared = _Shared()
    folded = _folded_sections(content.sections)
    axes: Sequence[Mapping[str, Any]] = content.axes or [{}] * len(content.names)
    return {
        "title": listed(content.names[:3]) + (" and others" if len(content.names) > 3 else ""),
        "version": grposcope.__version__,
        "runs": [
            {"name": name, "colour": colour(i), "axes": of_run}
            for i, (name, of_run) in enumerate(zip(content.names, axes, strict=True))
        ],
        "identity": list(content.identity),
        "top": _shown(content.top, content.top.sentence, content.top.paragraphs[1:], shared),
        "sections": [_section(answer, shared) | {"folded": answer.name in folded} for answer in content.sections],
        "shared": shared.values,
    }


def _section(answer: Answer, shared: _Shared) -> dict[str, Any]:
    """Content of a section: curves of a run as small multiples, a measurement with its first parts at once."""
    if answer.name in WHOLE:
        return _shown(answer, answer.question, answer.paragraphs, shared)
    text, most, told = answer.paragraphs, AT_ONCE["text"], bool(answer.figures or answer.paragraphs)
    tables = [replace(table, folded=True, title=table.title or MORE) if told else table for table in answer.tables]
    if answer.name in SMALL:
        small = [_lower(figure) for figure in answer.figures]
        return _shown(replace(answer, figures=small, tables=tables), answer.question, text, shared) | {"small": True}
    first = [figure.name for figure in answer.figures if not figure.group][: AT_ONCE["figures"]]
    figures = [
        figure if figure.group else _lower(figure, LOWER) if figure.name in first else replace(figure, group=FURTHER)
        for figure in answer.figures
    ]
    most = 1 if answer.widget else most
    shown = _shown(replace(answer, figures=figures, tables=tables), answer.question, text[:most], shared)
    return shown | ({"more": list(text[most:])} if text[most:] else {})


def _lower(figure: Figure, height: int = LOW) -> Figure:
    return replace(figure, spec={**figure.spec, "height": min(height, figure.spec["height"])})


def _folded_sections(sections: Sequence[Answer]) -> set[str]:
    """Names of the sections that the page shows folded: theory and viewers that come after charts of a run."""
    folded, before = set(), 0
    for section in sections:
        if before and (section.widget == "rollouts" or section.name in FOLDED):
            folded.add(section.name)
        before += sum(not figure.group for figure in section.figures)
    return folded


class _Shared:
    """Values that many charts of a page have in common, columns of steps above all, kept once and named by index."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        """Index of the value, which is added if there is no equal one."""
        key = repr(value)
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(value)
        return self._places[key]

    def figure(self, figure: Figure) -> dict[str, Any]:
        """A figure with its columns, layers and theme as indices."""
        spec = {**figure.spec, "layer": [self.place(layer) for layer in figure.spec["layer"]]}
        data = {name: {key: self.place(list(column)) for key, column in of.items()} for name, of in figure.data.items()}
        return {**vars(figure), "spec": {**spec, "config": self.place(figure.spec["config"])}, "data": data}


def _shown(answer: Answer, title: str, paragraphs: Sequence[str], shared: _Shared) -> dict[str, Any]:
    """Content of an answer for the scripts that draw it; data sets are not copied, since they can be megabytes."""
    shown: dict[str, Any] = {
        "name": answer.name,
        "title": title,
        "grade": answer.word if answer.word != "told" else "",
        "text": list(paragraphs),
        "tiles": [{"label": number.name, "value": number.shown, "detail": number.detail} for number in answer.numbers],
        "figures": [shared.figure(figure) for figure in answer.figures],
        "tables": [vars(table) for table in answer.tables],
        "widget": answer.widget,
        "data": answer.data,
    }
    return {name: value for name, value in shown.items() if value}


def _script(text: str) -> str:
    """The script without anything that would end a <script> block."""
    return text.replace("\r", "").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
