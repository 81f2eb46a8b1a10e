"""Rollouts of anybody's JSON lines: a rollout a line, with any of the names in `rollout_columns.NAMES`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from grposcope.core.files import json_lines
from grposcope.core.rollouts import Rollout
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.plain_rollouts import divided
from grposcope.logs.rollout_columns import GROUP, NAMES, PROMPT
from grposcope.logs.rollout_rows import rows_of
from grposcope.logs.written_rollouts import WrittenFiles, kind

ENDINGS = (".jsonl", ".ndjson", ".json", ".gz")
"""Endings of files that may have a rollout a line."""


def find(path: Path) -> WrittenFiles | None:
    """The rollouts of a file, or of the files rollouts*.jsonl in a folder; None where there are none."""
    if not _files(path):
        return None
    notes = list[str]()
    return WrittenFiles("generic", path, partial(_rollouts, notes=notes), sums=True, notes=notes)


def _files(place: Path) -> list[Path]:
    paths = sorted(place.glob("rollouts*.jsonl*")) if place.is_dir() else [place]
    return [path for path in paths if path.is_file() and _recognises(LogFile(path))]


def _recognises(file: LogFile) -> bool:
    """Whether a file has a rollout a line, by its first."""
    if not file.path.name.endswith(ENDINGS):
        return False
    row = None if file.shape == "text" else file.first_row
    in_columns = row is not None and any(isinstance(row.get(name), list) for name in ("step", "reward"))
    return row is not None and not in_columns and _has_columns(row)


_OF_ROLLOUTS = ("completion", "completion_ids", "mask", "sampler", "old", "current", "advantages")


def _has_columns(row: Mapping[str, Any]) -> bool:
    """Whether an object is a rollout and no row of metrics: it has rewards by function, a text or list that only a
    completion has, an advantage beside the group or prompt, or a reward beside the text of one."""
    if isinstance(row.get("rewards"), dict):
        return True
    own = [row[name] for column in _OF_ROLLOUTS for name in NAMES[column] if row.get(name) is not None]
    if any(isinstance(value, str | list) for value in own):
        return True
    named = any(row.get(name) is not None for name in GROUP)
    told = any(isinstance(row.get(name), str | list) for name in (*GROUP, *PROMPT, *NAMES["prompt"]))
    rewarded = any(isinstance(row.get(name), int | float) for name in NAMES["reward"])
    return (bool(own) and (named or told)) or (rewarded and told)


def _rollouts(place: Path, notes: list[str] | None = None) -> Iterator[Rollout]:
    """The rollouts of a file or folder, in its order. UserError, with the line, for what does not fit.

    notes: takes what did not fit of trajectories of several rows, a sentence each.
    """
    for path in _files(place):
        yield from rows_of(((f"{path}, line {line}", divided(row)) for line, row in json_lines(path)), notes)


METRICS = ("loss", "lr", "learning_rate", "grad_norm", "entropy", "kl", "epoch")
"""Columns of a log of metrics, which may show a prompt and a completion of each step."""


def _recognises_groups(file: LogFile) -> bool:
    """Whether a file has a rollout a line and no metrics of a step, and its group or prompt with it."""
    row = file.first_row or {}
    if any(name in row for name in METRICS):
        return False
    names = (NAMES[column] for column in ("group", "problem", "prompt", "prompt_ids"))
    return _recognises(file) and any(row.get(name) is not None for own in names for name in own)


KIND = replace(kind(find), file=_recognises_groups, folder=None)
"""Rollouts by themselves; a folder that has such a file is read by its log."""
