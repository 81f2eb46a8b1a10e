"""Reads the record that `grposcope train` and the callbacks of other trainers write.

The folder may be that of a run in progress: what is not there yet is empty, an unfinished last line is left out, and
what was left out is said in the notes of the run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import MEND, is_whole, json_number, json_object, read_whole
from grposcope.core.run import Evaluations, Floats, Groups, Meta, Run
from grposcope.logs.columns import ColumnBuilder
from grposcope.logs.native import rollouts, schema
from grposcope.logs.native.schema import LINES, RunPhase, Summary


def read(folder: Path) -> Run:
    """The run in `folder`; UserError for a newer version and for broken files."""
    config = schema.read_config(folder)
    parts = {name: _complete_lines(folder / f"{name}.jsonl") for name in LINES}
    phase, summary = schema.read_phase(folder), schema.read_summary(folder)
    notes = tuple(
        f"{name}.jsonl: the last line is unfinished and was left out" for name, file in parts.items() if file.unfinished
    )
    return Run(
        meta=Meta(folder, config.engine, config.name or folder.resolve().name, _status(phase, summary), notes),
        config=config.document(),
        table=_steps(parts["steps"]),
        groups=read_groups(parts["groups"]),
        evaluations=_evaluations(parts["evals"]),
        rollouts=rollouts.of_run(folder),
        phase=None if phase is None else vars(phase),
        summary=None if summary is None else summary.content,
        window=config.window,
        folder=folder,
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


def _complete_lines(path: Path) -> Lines:
    """The complete lines of the file; none if there is no such file."""
    try:
        data = read_whole(path)
    except FileNotFoundError:
        return Lines(path, b"")
    whole = data[: data.rfind(b"\n") + 1]
    rest = data[len(whole) :].strip(b"\0 ")
    if not rest:
        return Lines(path, whole)
    try:
        json.loads(rest)
    except (ValueError, RecursionError):
        if rest.startswith(b"{"):  # else it is no beginning of a line
            return Lines(path, whole, unfinished=True)
    return Lines(path, whole + rest + b"\n")


def _rows(lines: Lines) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line that is not blank. UserError for a line that is broken."""
    for number, line in enumerate(lines.data.split(b"\n")[:-1], 1):
        if line.strip():
            yield number, json_object(line, f"{lines.path}, line {number}")


def _broken(lines: Lines, number: int, what: str) -> UserError:
    """The error for a line that cannot be read."""
    return UserError(f"{lines.path}, line {number}: {what}; {MEND}")


def columns(lines: Lines) -> dict[str, Floats]:
    """Fields of numbers as float64 columns, NaN where a line lacks one; fields without any number are left out.

    UserError for a broken line and for a field that is a number in some lines and something else in others.
    """
    rows = ColumnBuilder()
    for number, row in _rows(lines):
        rows.row(number, row)
    texts = rows.texts
    numbers, table, sparse = rows.finish()
    for name, few in sparse.items():
        table[name] = np.full(len(numbers), math.nan)
        table[name][few.row] = few.value
    for name, text in texts.items():
        if name in table:
            raise _broken(lines, text.line, f"{name} is not a number")
    return table


def _steps(steps: Lines) -> dict[str, Floats]:
    """steps.jsonl as columns, in the order of the first line."""
    table = columns(steps)
    if not table:
        return {"step": np.empty(0)}
    numbers = table.get("step", np.full(1, math.nan))
    bad = np.flatnonzero(~((np.abs(numbers) < 2**53) & (numbers == np.floor(numbers))))
    if len(bad):
        raise _broken(steps, list(_rows(steps))[int(bad[0])][0], "no step number")
    disorder = np.flatnonzero(np.diff(table["step"]) <= 0)
    if len(disorder):
        at = int(disorder[0])
        before, after = (int(s) for s in table["step"][at : at + 2])
        number = list(_rows(steps))[at + 1][0]
        raise _broken(steps, number, f"step {after} follows step {before}: two programs wrote to this run")
    return table


def _evaluations(lines: Lines) -> Evaluations:
    table: list[tuple[int, str, float, float, int, str]] = []
    for number, row in _rows(lines):
        if not is_whole(row.get("step")):
            raise _broken(lines, number, "no step number")
        for name, estimate in row.items():
            if not isinstance(estimate, dict):
                continue
            value, error = (json_number(estimate.get(field)) for field in ("value", "se"))
            if value is None or error is None or not is_whole(estimate.get("n")):
                raise _broken(lines, number, f"{name} lacks value, se or n")
            table.append((row["step"], name, value, error, estimate["n"], str(estimate.get("flag", ""))))
    return Evaluations.of_rows(table)


def read_groups(lines: Lines) -> Groups:
    """The groups; UserError for a line that is broken."""
    steps, problems, rewards, truncated = [], [], [], []
    components: list[Mapping[str, list[float]]] = []
    lengths: list[list[float]] = []
    for number, row in _rows(lines):
        if not is_whole(row.get("step")) or not isinstance(row.get("problem"), str):
            raise _broken(lines, number, "no step number or no problem id")
        try:
            of_group, flags = _rewards(row)
            components.append(_components(row, len(of_group)))
            long = _numbers(row.get("lengths"), len(of_group)) if "lengths" in row else []
        except (TypeError, ValueError):
            raise _broken(
                lines, number, "rewards, truncated and the columns beside them are not lists of one length"
            ) from None
        steps.append(row["step"])
        problems.append(row["problem"])
        rewards.append(of_group)
        truncated += [] if flags is None else [flags]
        lengths += [long] if long else []
    whole = len(rewards) > 0
    return Groups.of(
        steps, problems, rewards, truncated if len(truncated) == len(rewards) and whole else None,
        components if any(components) else None, lengths if len(lengths) == len(rewards) and whole else None,
    )  # fmt: skip


def _components(row: Mapping[str, Any], size: int) -> dict[str, list[float]]:
    """Rewards of single functions in one line, by name; ValueError if they are not as they should be."""
    rewards_by_name = row.get("components", {})
    if not isinstance(rewards_by_name, dict):
        raise ValueError
    return {name: _numbers(values, size) for name, values in rewards_by_name.items()}


def _numbers(values: Any, size: int) -> list[float]:
    """A list of `size` numbers, null as NaN; ValueError if it is none."""
    numbers = [math.nan if value is None else json_number(value) for value in values]
    if len(numbers) != size or None in numbers:
        raise ValueError
    return numbers  # type: ignore[return-value]


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
