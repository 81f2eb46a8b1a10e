"""What is said of many runs: how many there are by verdict, and a table to sort and filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from grposcope.core.answer import Answer, Table
from grposcope.core.text import listed, sparkline, visible
from grposcope.instruments.runs.run_lines import SETTINGS, RunLine
from grposcope.render.page import Document


def of_lines(lines: Sequence[RunLine], folder: Path, problems: Sequence[str] = ()) -> Answer:
    """The runs below a folder, in the order given. problems: what could not be read."""
    document = {"folder": str(folder), "runs": [_entry(line) for line in lines], "not_read": list(problems)}
    sentence = _sentence(lines, len(problems))
    return Answer("runs", "Which runs are there?", sentence=sentence, tables=[_table(lines)], document=document)


def page(answer: Answer, lines: Sequence[RunLine], folder: Path, pages: Mapping[Path, str]) -> Document:
    """Content of the page of these runs, whose table can be sorted and leads to the page of each.

    pages: path of a run -> address of its page.
    """
    numbers = {"runs": len(lines), "not_read": len(answer.document["not_read"])}
    top = Answer("headline", "How are these runs?", sentence=answer.sentence, document=numbers)
    rows = [_row(line, pages.get(line.path, "")) for line in lines]
    table = replace(answer, sentence="", tables=(), document={}, widget="runs", data=rows)
    return Document((folder.resolve().name,), top, (table,))


def _sentence(lines: Sequence[RunLine], unreadable: int = 0) -> str:
    """How many runs there are, by verdict."""
    count = Counter(line.word for line in lines)
    parts = [f"{count[word]} {word}" for word in ("failing", "warning", "healthy", "cannot tell") if count[word]]
    runs = f"{len(lines)} run{'s' * (len(lines) != 1)}: {listed(parts)}"
    return f"{runs}; {unreadable} more cannot be read." if unreadable else f"{runs}."


def _table(lines: Sequence[RunLine]) -> Table:
    """A row per run; what no run records has no column."""
    settings = [name for name in SETTINGS if any(line.setting(name) for line in lines)]
    judged = any(line.status != "unknown" for line in lines)
    header = ("run", "verdict", "failure", "held-out", "reward", "course", "steps", *("status",) * judged, *settings)
    rows = [
        (
            _shortened(visible(line.name), 40),
            line.word,
            line.verdict.fault if line.word in ("failing", "warning") else "",
            line.shown_heldout.partition(" (")[0],
            line.shown_reward,
            sparkline(line.curve, 16),
            f"{line.steps:,}",
            *(line.status,) * judged,
            *(visible(line.setting(name), 24) for name in settings),
        )
        for line in lines
    ]
    return Table("", header, rows)


def _shortened(name: str, most: int) -> str:
    """A name with … in its middle where it is longer: runs of a sweep often differ in the end alone."""
    end = (most - 1) * 2 // 3
    return name if len(name) <= most else f"{name[: most - 1 - end]}…{name[-end:]}"


def _row(line: RunLine, page: str) -> dict[str, Any]:
    """A row of the table, as the script of the page reads it."""
    heldout = line.heldout
    return {
        "name": line.name,
        "page": page,
        "word": line.word,
        "verdict": str(line.verdict),
        "heldout": None if heldout is None else {"value": heldout.value, "shown": line.shown_heldout},
        "reward": {"value": line.reward.value, "shown": line.shown_reward} if line.reward.n else None,
        "curve": line.curve,
        "steps": line.steps,
        "status": line.status,
        **{name: line.settings.get(name) for name in SETTINGS},
        "began": line.began[:16].replace("T", " "),
    }


def _entry(line: RunLine) -> dict[str, Any]:
    """The line as JSON."""
    return {
        "path": str(line.path),
        "name": line.name,
        "engine": line.engine,
        "status": line.status,
        "verdict": str(line.verdict),
        "steps": line.steps,
        "heldout": None if line.heldout is None else vars(line.heldout),
        "reward": vars(line.reward),
        "began": line.began,
        "settings": line.settings,
        "curve": line.curve,
    }
