"""The page about many runs: a table to sort and filter, with a link to the page of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grposcope.facts.overview import SETTINGS, RunLine, sentence, shown_reward
from grposcope.report.elements import Section
from grposcope.report.page import Document


def document(lines: Sequence[RunLine], folder: Path, pages: Mapping[Path, str], unreadable: int = 0) -> Document:
    """Content of the page about the runs below `folder`; pages: path of a run -> address of its page."""
    rows = [row(line, pages.get(line.path, "")) for line in lines]
    top = Section("headline", sentence(lines, unreadable), numbers={"runs": len(lines), "not_read": unreadable})
    table = Section("runs", "All runs", widget="runs", data=rows)
    return Document((folder.resolve().name,), top, (table,))


def row(line: RunLine, page: str) -> dict[str, Any]:
    """A row of the table, as the script of the page reads it."""
    heldout = line.heldout
    return {
        "name": line.name,
        "page": page,
        "word": line.word,
        "verdict": str(line.verdict),
        "heldout": None if heldout is None else {"value": heldout.value, "shown": line.shown_heldout},
        "reward": {"value": line.reward.value, "shown": shown_reward(line)} if line.reward.n else None,
        "curve": line.curve,
        "steps": line.steps,
        "status": line.status,
        **{name: line.settings.get(name) for name in SETTINGS},
        "began": line.began[:16].replace("T", " "),
    }
