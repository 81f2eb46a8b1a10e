"""The table of metrics that the transformers library draws in a Jupyter notebook, as rows; or what its cells printed.

A notebook may hold several tables, such as one of a supervised stage before the RL one: of those with a reward, the
longest is read. The widget rounds values to 6 decimals and leaves out grad_norm. Code is never run; only the text of
table cells is taken from the outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from typing import Any

from grposcope.core.errors import UserError
from grposcope.logs.columns import ColumnBuilder, RawLog
from grposcope.logs.formats.console import printed_number
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints

_TABLE = re.compile(r"<table.*?(?:</table>|\Z)", re.S)
_ROW = re.compile(r"<tr.*?(?=<tr|</table>|\Z)", re.S)
_CELL = re.compile(r"<t[hd](?:\s[^<>]*)?>")
_TAG = re.compile(r"<[^<>]*>")


def read(file: LogFile, hints: Hints) -> RawLog:
    """The rows of the table in the notebook's outputs; UserError if no table has a reward."""
    tables = _with_rewards(file.document)
    if not tables:
        raise UserError(
            f"{file.path}: no output shows steps and rewards (were the outputs cleared?); run the notebook "
            "and save it, or give the trainer_state.json"
        )
    chains = _chains(tables)
    if hints.run is not None and not -len(chains) <= hints.run - (hints.run > 0) < len(chains):
        raise UserError(f"{file.path} has {len(chains)} tables with rewards, so there is no #{hints.run}")
    chain = max(chains, key=_rows) if hints.run is None else chains[hints.run - (hints.run > 0)]
    head, rows = chain[0][1], [row for _, _, of_table in chain for row in of_table]
    notes = ["values are rounded to 6 decimals by the notebook's table"]
    if len(chain) > 1:
        notes.append(f"{len(chain)} tables are one run: each continues from the last step of the one before")
    if len(chains) > 1 and hints.run is None:
        which = f"in cell {chain[0][0] + 1}; give {file.path.name}#1 to #{len(chains)} for one of them"
        notes.append(f"{len(chains)} tables have rewards; the longest was read, {which}")
    builder, odd = ColumnBuilder(), 0
    names = ["step", *(re.sub(r" */ *", "/", name) for name in head[1:])]
    for place, cells in enumerate(rows, 1):
        if len(cells) != len(names):
            odd += 1
            continue
        values = {
            name: (text if (value := printed_number(text)) is None else value)
            for name, text in zip(names, cells, strict=True)
        }
        values = {key: value for key, value in values.items() if value not in ("", "No log")}
        builder.row(place, values)
    if odd:
        notes.append(f"{odd} rows of the table are cut off and were left out")
    return RawLog(file.path, builder, notes=notes, place="row", numbered=True)


Table = tuple[int, list[str], list[list[str]]]


def _chains(tables: Sequence[Table]) -> list[list[Table]]:
    """The tables in groups of one run: the same columns, and each begins after the last step of the one before."""
    chains: list[list[Table]] = []
    for table in tables:
        before = chains[-1][-1] if chains else None
        ends = _step(before[2][-1]) if before is not None and before[2] else None
        begins = _step(table[2][0]) if table[2] else None
        if before is not None and before[1] == table[1] and None not in (ends, begins) and begins > ends:  # type: ignore[operator]
            chains[-1].append(table)
        else:
            chains.append([table])
    return chains


def _rows(chain: Sequence[Table]) -> int:
    return sum(len(rows) for _, _, rows in chain)


def _step(cells: list[str]) -> float | None:
    return printed_number(cells[0]) if cells else None


def printed(content: Mapping[str, Any]) -> bytes:
    """What the cells of a notebook without a table of rewards printed, in their order; empty where there is one."""
    if _with_rewards(content):
        return b""
    streams = (output for _, output in _outputs(content) if output.get("output_type") == "stream")
    texts = (output.get("text", "") for output in streams)
    return "\n".join("".join(map(str, text)) if isinstance(text, list) else str(text) for text in texts).encode()


def _with_rewards(content: Mapping[str, Any]) -> list[Table]:
    """The tables (as `_tables`) that have a reward."""
    return [table for table in _tables(content) if any("reward" in name for name in table[1])]


def _outputs(content: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(index of the cell, output) of every output."""
    for k, cell in enumerate(content["cells"]):
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else []:
            if isinstance(output, dict):
                yield k, output


def _tables(content: Mapping[str, Any]) -> Iterator[Table]:
    """(index of the cell, column names, rows of texts) of every table whose first column is Step."""
    for k, output in _outputs(content):
        data = output.get("data")
        html = data.get("text/html", "") if isinstance(data, dict) else ""
        html = "".join(map(str, html)) if isinstance(html, list) else str(html)
        for table in _TABLE.findall(html):
            rows = [cells for row in _ROW.findall(table) if (cells := _cells(row))]
            if rows and rows[0][0] == "Step":
                yield k, rows[0], rows[1:]


def _cells(row: str) -> list[str]:
    """Texts of the cells of a row; a cell without its end, as where the notebook was cut, is left out."""
    parts = [word.partition("</t") for word in _CELL.split(row)[1:]]
    return [unescape(_TAG.sub("", text)).strip() for text, end, _ in parts if end]
