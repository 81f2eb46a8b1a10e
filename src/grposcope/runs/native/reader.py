"""Reads the record that `grposcope train` and the callbacks of other trainers write.

The folder may be that of a run in progress: what is not there yet is empty, an unfinished last line is left out, and
what was left out is said in the notes of the run. Lines that our writer wrote all alike are read in bulk
(`runs.formats.json_templates` proves that they are); any others line by line, which also finds the one that is broken.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.files import MEND, is_whole, json_number, json_object
from grposcope.runs import credit, probe
from grposcope.runs.columns import flat
from grposcope.runs.formats import jsonl
from grposcope.runs.native import rollouts, schema
from grposcope.runs.native.schema import LINES, RunPhase, Summary
from grposcope.runs.run import Bools, Evaluations, Floats, Groups, Ints, Meta, Run

_GROUP_LITERALS = (b'{"step": ', b', "problem": "', b'", "rewards": ', b"}\n")


def read(folder: Path) -> Run:
    """The run in `folder`; UserError for a newer version and for broken files."""
    config = schema.read_config(folder)
    with ThreadPoolExecutor(3) as threads:  # the parsing is compiled code, which runs side by side
        parts = {name: threads.submit(complete_lines, folder / f"{name}.jsonl") for name in LINES}
        table = threads.submit(_steps, parts["steps"].result())
        groups = threads.submit(read_groups, parts["groups"].result())
        evaluations = _evaluations(parts["evals"].result())
    phase, summary = schema.read_phase(folder), schema.read_summary(folder)
    notes = tuple(
        f"{name}.jsonl: the last line is unfinished and was left out"
        for name, part in parts.items()
        if part.result().unfinished
    )
    return Run(
        meta=Meta(folder, config.engine, config.name or folder.resolve().name, _status(phase, summary), notes),
        config=config.document(),
        table=table.result(),
        groups=groups.result(),
        evaluations=evaluations,
        rollouts=rollouts.of_run(folder),
        phase=None if phase is None else vars(phase),
        summary=None if summary is None else summary.content,
        window=config.window,
        probes=probe.of_run(folder),
        credits=credit.of_run(folder),
    )


def _status(phase: RunPhase | None, summary: Summary | None) -> str:
    if phase is not None:
        return phase.phase if phase.phase in schema.ENDED else "running"
    if summary is not None:
        return "interrupted" if summary.interrupted else "finished"
    return "unknown"


@dataclass(frozen=True)
class Lines:
    """The complete lines of a file, each with its newline; unfinished: whether a last one was left out."""

    path: Path
    data: bytes
    unfinished: bool = False


def complete_lines(path: Path) -> Lines:
    """The complete lines of the file; none if there is no such file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Lines(path, b"")
    whole = data[: data.rfind(b"\n") + 1]
    rest = data[len(whole) :].strip(b"\0 ")
    if not rest:
        return Lines(path, whole)
    try:
        json.loads(rest)
    except ValueError:
        return Lines(path, whole, unfinished=True)
    return Lines(path, whole + rest + b"\n")


def _rows(lines: Lines) -> list[tuple[int, dict[str, Any]]]:
    """Every line as (line number, object), blank lines left out. UserError for a line that is broken."""
    numbered = enumerate(lines.data.split(b"\n")[:-1], 1)
    return [(n, json_object(line, f"{lines.path}, line {n}")) for n, line in numbered if line.strip()]


def _broken(lines: Lines, number: int, what: str) -> UserError:
    """The error for a line that cannot be read."""
    return UserError(f"{lines.path}, line {number}: {what}; {MEND}")


def columns(lines: Lines) -> dict[str, Floats]:
    """Fields of numbers as float64 columns, NaN where a line lacks one; fields without any number are left out.

    UserError for a broken line and for a field that is a number in some lines and something else in others.
    """
    data = lines.data.replace(b'"NaN"', b"NaN")
    if b'Infinity"' in data:
        data = data.replace(b'"Infinity"', b"Infinity").replace(b'"-Infinity"', b"-Infinity")
    if not data:
        return {}
    alike = jsonl.in_bulk(data)
    return _columns_by_row(lines) if alike is None or alike.texts else alike.columns


def _columns_by_row(lines: Lines) -> dict[str, Floats]:
    rows = _rows(lines)
    table: dict[str, Floats] = {}
    other: dict[str, int] = {}
    for place, (line, row) in enumerate(rows):
        for name, raw in flat(row).items():
            value = json_number(raw)
            if value is None:
                other.setdefault(name, line)
                continue
            if name not in table:
                table[name] = np.full(len(rows), math.nan)
            table[name][place] = value
    for name, line in other.items():
        if name in table:
            raise _broken(lines, line, f"{name} is not a number")
    return table


def _steps(steps: Lines) -> dict[str, Floats]:
    """steps.jsonl as columns, in the order of the first line."""
    table = columns(steps)
    if not table:
        return {"step": np.empty(0)}
    numbers = table.get("step", np.full(1, math.nan))
    bad = np.flatnonzero(~((np.abs(numbers) < 2**53) & (numbers == np.floor(numbers))))
    if len(bad):
        raise _broken(steps, _rows(steps)[int(bad[0])][0], "no step number")
    disorder = np.flatnonzero(np.diff(table["step"]) <= 0)
    if len(disorder):
        at = int(disorder[0])
        before, after = (int(s) for s in table["step"][at : at + 2])
        number = _rows(steps)[at + 1][0]
        raise _broken(steps, number, f"step {after} comes after step {before}: two programs wrote to this run")
    return table


def _evaluations(lines: Lines) -> Evaluations:
    table: list[tuple[int, str, float, float, int, str]] = []
    for number, row in _rows(lines):
        if not is_whole(row.get("step")):
            raise _broken(lines, number, "no step number")
        for name, estimate in row.items():
            if not isinstance(estimate, dict):
                continue
            value, error = (json_number(estimate.get(part)) for part in ("value", "se"))
            if value is None or error is None or not is_whole(estimate.get("n")):
                raise _broken(lines, number, f"{name} lacks value, se or n")
            table.append((row["step"], name, value, error, estimate["n"], str(estimate.get("flag", ""))))
    return Evaluations.of_rows(table)


def read_groups(lines: Lines) -> Groups:
    """The groups; UserError for a line that is broken."""
    fast = groups_alike(lines.data) if len(lines.data) >= jsonl.FEW else None
    return groups_by_row(lines) if fast is None else fast


def groups_alike(data: bytes) -> Groups | None:
    """Groups of lines as our writer writes them; None if there are others, such as ids with quotes in them."""
    if not data or b"\\" in data:
        return None
    try:
        from grposcope.runs.formats import json_templates
    except ImportError:  # without pyarrow, every line is parsed by itself
        return None
    seen = json_templates.marks(np.frombuffer(data, np.uint8))
    if not np.isin(seen.inside, (8, 10)).all():
        return None
    places = json_templates.edges(_GROUP_LITERALS, (0, 0, 0), seen, np.arange(len(seen.ends)))
    if not json_templates.fit(data, places, _GROUP_LITERALS).all():
        return None
    cut, first = json_templates.pieces(data, places), np.arange(0, places.size, places.shape[1])
    steps, ids, tails = (json_templates.taken(cut, first + k) for k in (1, 3, 5))
    try:
        step = steps.cast("large_string").cast("int64").to_numpy()
        names, patterns = ids.dictionary_encode(), tails.dictionary_encode()
        problems = tuple(name.decode() for name in names.dictionary.to_pylist())
        rows = [json.loads(b'{"rewards": ' + tail + b"}") for tail in patterns.dictionary.to_pylist()]
        kinds = _ragged([_rewards(row) for row in rows])
    except (ValueError, TypeError):  # ArrowInvalid is a ValueError
        return None
    rewards, offsets, truncated = _repeated(*kinds, patterns.indices.to_numpy().astype(np.int64))
    return Groups(
        step=step,
        problem=names.indices.to_numpy().astype(np.int64),
        problems=problems,
        rewards=rewards,
        offsets=offsets,
        truncated=truncated,
    )


def _repeated(
    rewards: Floats, offsets: Ints, truncated: Bools | None, which: Ints
) -> tuple[Floats, Ints, Bools | None]:
    """The ragged rows `which`, in that order and as often as they occur in it."""
    sizes = np.diff(offsets)
    if (sizes == sizes[0]).all():  # much the fastest, and what a run has unless its settings changed
        table = rewards.reshape(len(sizes), -1)
        flags = None if truncated is None else truncated.reshape(len(sizes), -1)[which].ravel()
        return table[which].ravel(), sizes[0] * np.arange(len(which) + 1), flags
    ends = np.append(0, np.cumsum(sizes[which]))
    take = np.repeat(offsets[which] - ends[:-1], sizes[which]) + np.arange(ends[-1])
    return rewards[take], ends, None if truncated is None else truncated[take]


def groups_by_row(lines: Lines) -> Groups:
    """Any groups, line by line; UserError for a line that is broken."""
    steps, problems, rewards, truncated = [], [], [], []
    for number, row in _rows(lines):
        if not is_whole(row.get("step")) or not isinstance(row.get("problem"), str):
            raise _broken(lines, number, "no step number or no problem id")
        try:
            of_group, flags = _rewards(row)
        except (TypeError, ValueError):
            raise _broken(lines, number, "rewards or truncated are not lists of one length") from None
        steps.append(row["step"])
        problems.append(row["problem"])
        rewards.append(of_group)
        truncated += [] if flags is None else [flags]
    return Groups.of(steps, problems, rewards, truncated if len(truncated) == len(rewards) > 0 else None)


def _rewards(row: Mapping[str, Any]) -> tuple[list[float], list[bool] | None]:
    """Rewards and flags of one line; ValueError or TypeError if they are not as they should be."""
    rewards = [json_number(value) for value in row["rewards"]] if "rewards" in row else [None]
    truncated = row.get("truncated")
    flags = truncated is None or (
        isinstance(truncated, list)
        and len(truncated) == len(rewards)
        and all(isinstance(f, bool | int) for f in truncated)
    )
    if None in rewards or not flags:
        raise ValueError
    return rewards, truncated  # type: ignore[return-value]


def _ragged(parts: list[tuple[list[float], list[bool] | None]]) -> tuple[Floats, Ints, Bools | None]:
    """Lists of lists as flat arrays: rewards, offsets, and truncated or None where a list lacks it."""
    offsets = np.append(0, np.cumsum([len(rewards) for rewards, _ in parts], dtype=np.int64)).astype(np.int64)
    rewards = np.array([value for part, _ in parts for value in part], np.float64)
    flags = [part for _, part in parts if part is not None]
    if len(flags) < len(parts) or not parts:
        return rewards, offsets, None
    return rewards, offsets, np.array([value for part in flags for value in part], bool)
