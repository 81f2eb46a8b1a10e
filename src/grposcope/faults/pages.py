"""The page of a fault, from the docstring of its file: a sentence, then sections under known headings."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grposcope.core.answer import Answer
from grposcope.core.errors import UserError
from grposcope.core.fault import Fault
from grposcope.faults import catalogue

ASKED, IS, SHOWS, GRADIENT, DO, DECIDES, SOURCES = HEADINGS = (
    "Asked as",
    "What it is",
    "How it shows",
    "What it does to the gradient",
    "What to do",
    "What decides",
    "Sources",
)
"""Headings of a page, in their order; all but the first are on every page."""


@dataclass(frozen=True)
class _Page:
    """What a fault is: `summary`, a sentence, and its sections by heading, the lines of each joined.

    asked, sources: the lines of these sections one by one.
    """

    summary: str
    sections: Mapping[str, str]
    asked: tuple[str, ...]
    sources: tuple[str, ...]

    @property
    def decides(self) -> str:
        """The cheapest measurement that decides whether the fault is there, as a clause."""
        text = self.sections.get(DECIDES, "").rstrip(".")
        return text[:1].lower() + text[1:] if text[1:2].islower() else text

    @property
    def source(self) -> str:
        """Papers, documentation and threads that it is from, one after another."""
        return "; ".join(self.sources)


def page(fault: Fault) -> _Page:
    """The page of a fault; UserError that names the heading that it lacks or that is not known."""
    return _page(fault.name, catalogue.text(fault))


@functools.lru_cache(None)  # every finding asks for the sources of its fault
def _page(name: str, text: str) -> _Page:
    """The page that a docstring is. name: of its fault."""
    summary, _, rest = inspect.cleandoc(text).partition("\n\n")
    lines: dict[str, list[str]] = {}
    heading = ""
    for line in rest.split("\n"):
        if line and not line.startswith(" "):
            heading = line.strip()
            if heading not in HEADINGS:
                raise UserError(f"{name}: the page has no section {heading!r}; it has {', '.join(HEADINGS)}")
            lines[heading] = []
        elif heading and line.strip():
            lines[heading].append(line.strip())
    if lacking := [each for each in HEADINGS[1:] if not lines.get(each)]:
        raise UserError(f"{name}: the page lacks the section {lacking[0]!r}; write it in the file's docstring")
    sections = {each: " ".join(lines[each]) for each in HEADINGS if each in lines}
    return _Page(" ".join(summary.split()), sections, tuple(lines.get(ASKED, ())), _items(lines[SOURCES]))


def _items(lines: list[str]) -> tuple[str, ...]:
    return tuple(line.rstrip(".") for line in lines)


def explain(name: str) -> Answer:
    """The page of a fault by its name, as an answer that prints and shows itself; UserError for an unknown name."""
    fault = catalogue.fault(name)
    read = page(fault)
    headings = (IS, SHOWS, GRADIENT, DECIDES)
    text = [f"{heading}: {read.sections[heading]}" for heading in headings]
    looked = [f"Looked for in {where}: {how}." for where, how in _looked_for(fault)]
    return Answer(
        "explain", f"What is {fault.name}?", "told", read.summary, do=read.sections[DO].rstrip("."),
        text=[*text, *looked, f"Sources: {'; '.join(read.sources)}."], document=document(fault),
    )  # fmt: skip


def _looked_for(fault: Fault) -> list[tuple[str, str]]:
    """Where a fault is looked for, and by what: log, settings, rollouts."""
    where = []
    if fault.log is not None:
        where.append(("log", f"{fault.log.statistic}; {fault.log.threshold}"))
    if fault.reading is not None:
        where.append(("log", "what was found when it was read"))
    if fault.settings is not None:
        trainers = ", ".join((*fault.settings.trainers, *fault.settings.scripts))
        where.append(("settings", f"{fault.settings.finds} ({trainers})"))
    if fault.rollouts:
        claims = "; or ".join(f"what breaks “{proof.claim}” (needs {proof.needs})" for proof in fault.rollouts)
        where.append(("rollouts", claims))
    return where


def told(fault: Fault, width: int = 100) -> str:
    """The page as text for a terminal."""
    read = page(fault)
    parts = [f"{fault.name} ({catalogue.family(fault)})", _filled(read.summary, width)]
    for heading, text in read.sections.items():
        if heading in (ASKED, SOURCES):
            continue
        parts.append(f"{heading}\n{_filled(text, width, '    ', '    ')}")
    looked = "\n".join(_filled(f"{where}: {how}", width, "    ", "        ") for where, how in _looked_for(fault))
    parts.append(f"Looked for in\n{looked}")
    parts.append("Sources\n" + "\n".join(f"    {source}" for source in read.sources))
    return "\n\n".join(parts)


def document(fault: Fault) -> dict[str, Any]:
    """The page for programs."""
    read = page(fault)
    return {
        "fault": fault.name, "family": catalogue.family(fault), "summary": read.summary,
        "sections": {name: text for name, text in read.sections.items() if name not in (ASKED, SOURCES)},
        "asked": list(read.asked), "sources": list(read.sources), "remedy": fault.remedy,
        "_looked_for": dict(_looked_for(fault)), "grades": [fault.beside, fault.instead],
    }  # fmt: skip


def markdown(fault: Fault) -> str:
    """The page as an entry of docs/faults.md."""
    read = page(fault)
    rows = [f"**{heading}.** {text}" for heading, text in read.sections.items() if heading not in (ASKED, SOURCES)]
    looked = "\n".join(f"- {where}: {how}" for where, how in _looked_for(fault))
    sources = "; ".join(_link(source) for source in read.sources)
    return (
        f"### {fault.name}\n\n{read.summary}\n\n"
        + "\n\n".join(rows)
        + f"\n\nLooked for in:\n\n{looked}\n\nSources: {sources}.\n"
    )


def _filled(text: str, width: int, initial: str = "", further: str = "") -> str:
    """Text in lines of `width`; commands and addresses are not broken."""
    return textwrap.fill(
        text, width, initial_indent=initial, subsequent_indent=further, break_on_hyphens=False, break_long_words=False
    )


def _link(source: str) -> str:
    """A source with the address behind its last colon as a link."""
    name, colon, address = source.partition(": http")
    return f"[{name}](http{address})" if colon else source
