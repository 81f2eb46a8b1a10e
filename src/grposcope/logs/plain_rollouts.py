"""Plain tables of rollouts that no trainer wrote: CSV, TSV or JSON lines of prompt, completion, reward and step.

Names of columns are those of `rollout_columns.NAMES` in any spelling. A table without a column for completions holds no
rollouts.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import json_lines, json_value, opened, read_whole, unreadable
from grposcope.core.rollouts import Rollout
from grposcope.logs.rollout_columns import GROUP, NAMES, PROMPT, SPELLINGS, simple, spelled
from grposcope.logs.rollout_rows import rows_of

ENDINGS = {".csv": ",", ".tsv": "\t"}
"""Ending of a table's name -> what stands between its fields, unless its header has semicolons alone."""

LINES = (".jsonl", ".ndjson", ".json")

CONVERSATIONS = ("conversation", "conversations", "messages", "dialogue", "chat")
"""Names of a whole conversation, from the prompt on."""

LONGEST_FIELD = 2**31 - 1
"""Characters of a field of a table."""

LONGEST_NUMBER = 30
"""Characters of a number."""

_WRITTEN = [name for own in ("prompt", "completion") for name in (*NAMES[own], *SPELLINGS[own])]
_TEXTS = frozenset((*GROUP, *PROMPT, *_WRITTEN))
"""Columns whose values are texts, even where they look like numbers."""


def rollouts(path: Path) -> list[Rollout]:
    """The rollouts of a file; none where it is no such table. UserError for a table that cannot be read."""
    try:
        if path.suffix.lower() in ENDINGS:
            rows = list(_table(path))
        elif path.name.lower().endswith(LINES):
            rows = list(_lines(path))
        else:
            return []
    except OSError as error:
        raise unreadable(path, error) from None
    if not any(row.get(name) is not None for _, row in rows[:50] for name in NAMES["completion"]):
        return []
    return rows_of(rows)


def _table(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Where each row of a CSV stands, and its values by our names."""
    with opened(path) as file:
        if b"\0" in file.read(4096):
            raise UserError(f"{path} is not a text file; give a CSV with prompt, completion and reward")
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            header = file.readline()
            file.seek(0)
            mark = ENDINGS[path.suffix.lower()]
            mark = ";" if mark not in header and ";" in header else mark
            for row in (reader := csv.DictReader((line.replace("\0", " ") for line in file), delimiter=mark)):
                values = {name: _value(name, value) for name, value in row.items() if isinstance(name, str)}
                yield f"{path}, line {reader.line_num}", spelled(values)
    except csv.Error as error:
        raise UserError(f"{path} is not a table: {error}; give a CSV with prompt, completion and reward") from None
    finally:
        csv.field_size_limit(before)


def _value(name: str, text: str | None) -> Any:
    """A cell as what it stands for: a number, messages as JSON, or the text; None where a number is not there."""
    if text is None:
        return None
    if simple(name) in _TEXTS and text.lstrip().startswith('[{"'):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if simple(name) in _TEXTS or len(text) > LONGEST_NUMBER:
        return text
    try:
        return float(text)
    except ValueError:
        truth = {"true": 1.0, "false": 0.0}.get(text.strip().lower())
        return truth if truth is not None else text if text.strip() else None


def _lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Where each row of JSON lines, or of a list of objects, stands, and its values by our names."""
    if path.name.lower().endswith(".json"):
        try:
            content = json_value(read_whole(path))
        except (ValueError, RecursionError):
            return
        if isinstance(content, list):
            for number, row in enumerate(content, 1):
                if isinstance(row, dict):
                    yield f"{path}, entry {number}", divided(spelled(row))
        return
    for number, row in json_lines(path):
        yield f"{path}, line {number}", divided(spelled(row))


def divided(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with a whole conversation under one of CONVERSATIONS, and no completion, as its prompt and completion: what
    stands before the assistant's first message, and the rest."""
    if any(row.get(name) is not None for name in NAMES["completion"]):
        return row
    for name in CONVERSATIONS:
        said = row.get(name)
        if isinstance(said, list) and all(isinstance(message, dict) for message in said):
            first = next((index for index, message in enumerate(said) if message.get("role") == "assistant"), None)
            if first is not None:
                rest = {key: value for key, value in row.items() if key != name}
                return {"prompt": said[:first], **rest, "completion": said[first:]}
    return row
