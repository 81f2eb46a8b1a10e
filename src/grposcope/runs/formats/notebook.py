"""Reads the table of metrics that transformers draws in a Jupyter notebook, as TRL and Unsloth runs leave it.

A notebook may hold several tables (a supervised stage before the RL one): those with a reward are read,
the longest if there are several. Values are rounded to 6 decimals by the widget; there is no grad_norm.
Code is never run, and only text between <td> tags is taken from outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any

from grposcope.errors import UserError
from grposcope.runs.columns import Frame
from grposcope.runs.formats.source import number
from grposcope.runs.normalize import Log, assemble
from grposcope.runs.run import Run

_TABLE = re.compile(r"<table.*?(?:</table>|\Z)", re.S)
_ROW = re.compile(r"<tr.*?(?=<tr|</table>|\Z)", re.S)
_CELL = re.compile(r"<t[hd](?:\s[^<>]*)?>")
_TAG = re.compile(r"<[^<>]*>")


def recognises(content: Any) -> bool:
    """Whether a JSON document is a notebook."""
    return isinstance(content, dict) and isinstance(content.get("cells"), list) and "nbformat" in content


def read(path: Path, content: Mapping[str, Any], given: Mapping[str, Any]) -> Run:
    """The run in the notebook's outputs; UserError if none of its tables has a reward."""
    found = [(cell, head, rows) for cell, head, rows in _tables(content) if any("reward" in name for name in head)]
    if not found:
        raise UserError(
            f"{path}: none of its outputs is a table with steps and rewards (were they cleared?); run it and save it, "
            "or give the trainer_state.json"
        )
    cell, head, rows = max(found, key=lambda table: len(table[2]))
    notes = ["values are rounded to 6 decimals by the notebook's table"]
    if len(found) > 1:
        notes.append(f"{len(found)} tables have rewards; the longest was read, in cell {cell + 1}")
    frame, odd = Frame(), 0
    names = ["step", *(re.sub(r" */ *", "/", name) for name in head[1:])]
    for place, cells in enumerate(rows, 1):
        if len(cells) != len(names):
            odd += 1
            continue
        values = {
            name: (text if (value := number(text)) is None else value) for name, text in zip(names, cells, strict=True)
        }
        values = {key: value for key, value in values.items() if value not in ("", "No log")}
        frame.row(place, values)
    if odd:
        notes.append(f"{odd} rows of the table are cut off and were left out")
    return assemble(Log(path, frame, "trl", notes=notes, given=given, place="row"))


def _tables(content: Mapping[str, Any]) -> Iterator[tuple[int, list[str], list[list[str]]]]:
    """(cell, column names, rows of texts) of every table that begins with Step."""
    for k, cell in enumerate(content["cells"]):
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else []:
            data = output.get("data") if isinstance(output, dict) else None
            html = data.get("text/html", "") if isinstance(data, dict) else ""
            html = "".join(map(str, html)) if isinstance(html, list) else str(html)
            for table in _TABLE.findall(html):
                rows = [cells for row in _ROW.findall(table) if (cells := _cells(row))]
                if rows and rows[0][0] == "Step":
                    yield k, rows[0], rows[1:]


def _cells(row: str) -> list[str]:
    """Texts of a row's cells; one that does not end, as where the notebook was cut, is left out."""
    parts = [part.partition("</t") for part in _CELL.split(row)[1:]]
    return [unescape(_TAG.sub("", text)).strip() for text, end, _ in parts if end]
