"""Groups of rollouts from ms-swift's completions.jsonl (log_completions=true), in the output folder of a run.

A line is a logged step, an object of columns: `step`, `prompt`, `completion`, a column for each reward function, then
`advantages`, and columns of the data set behind them. The completions of a prompt stand together. An evaluation at the
same step is a line of its own behind that of the training, and is left out. With logging_steps above 1 only the last
batch before each line is there. The weights of the functions are not in it; those of the run's args.json are taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import json_lines, read_whole
from grposcope.core.rollouts import Rollout
from grposcope.core.text import visible
from grposcope.logs.formats.kind import OBJECTS
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.written_rollouts import WrittenFiles, kind, number

NAME = "completions.jsonl"
"""The file, in the output folder."""

ARGUMENTS = "args.json"
"""The arguments of the run, in its output folder and in its checkpoints."""


def arguments(folder: Path) -> dict[str, Any]:
    """The arguments that ms-swift wrote into a folder; empty where it wrote none."""
    try:
        content = json.loads(read_whole(folder / ARGUMENTS))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) and "rlhf_type" in content else {}


def find(place: Path) -> WrittenFiles | None:
    """The completions at a place, a file or the output folder of a run."""
    path = place / NAME if place.is_dir() else place
    if not path.is_file() or not KIND.recognises(LogFile(path)):
        return None
    steps = {step: path for _, step, _ in _lines(path)}
    return WrittenFiles("ms-swift", steps, rollouts)


def rollouts(path: Path) -> Iterator[Rollout]:
    """The rollouts of a file, in its order. UserError, with the line, for what does not fit."""
    weights, size = _weights(path)
    for line, step, row in _lines(path):
        where = f"{path}, line {line}"
        names = _functions(row)
        columns = {name: [number(element, name, where) for element in row[name]] for name in (*names, "advantages")}
        if weights is not None and len(weights) != len(names):
            raise UserError(
                f"{where}: {len(names)} reward functions, and {len(weights)} reward_weights in {ARGUMENTS} beside it; "
                "give the file without that one"
            )
        scale = np.array(weights if weights is not None else [1.0] * len(names))
        for first, group in _groups(row["prompt"], size):
            parts = {name: columns[name][first] for name in names}
            values = np.array(list(parts.values()))
            absent = not len(values) or bool(np.isnan(values).all())
            yield Rollout(
                where=f"{where}, rollout {first + 1}",
                step=step,
                group=group,
                named=True,
                prompt=_text(row["prompt"][first]),
                completion=_text(row["completion"][first]),
                reward=float("nan") if absent else float(np.nansum(values * scale)),
                rewards={name: value for name, value in parts.items() if not np.isnan(value)},
                advantages=np.array([columns["advantages"][first]]),
            )


def _lines(path: Path) -> list[tuple[int, int, dict[str, Any]]]:
    """(line, step, columns) of every step that trains, of steps that were done again the last attempt."""
    rows: list[tuple[int, int, dict[str, Any]]] = []
    for line, row in json_lines(path, growing=True):
        where = f"{path}, line {line}"
        lengths = {name: len(value) for name, value in row.items() if isinstance(value, list)}
        if lacking := [name for name in ("step", "prompt", "completion", "advantages") if name not in lengths]:
            raise UserError(f"{where}: no list {lacking[0]!r} in it; give completions.jsonl as ms-swift writes it")
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
            raise UserError(f"{where}: columns of one step differ in length ({shown})")
        if not row["step"]:
            continue
        step = _step(row["step"][0], where)
        if rows and rows[-1][1] == step:
            continue
        while rows and rows[-1][1] > step:
            rows.pop()
        if not rows or rows[-1][1] != step:
            rows.append((line, step, row))
        else:
            rows[-1] = (line, step, row)
    return rows


def _step(value: Any, where: str) -> int:
    text = str(value)
    if not text.isdecimal() or len(text) > 15:
        raise UserError(f"{where}: step is {visible(text, 40)}; give a whole number")
    return int(text)


def _functions(row: Mapping[str, Any]) -> list[str]:
    """Names of the reward functions: the columns between the completions and the advantages."""
    names = list(row)
    return names[names.index("completion") + 1 : names.index("advantages")]


def _groups(prompts: Sequence[Any], size: int | None) -> Iterator[tuple[int, str]]:
    """(place, group) of every rollout: neighbours with one prompt, divided where they are several groups of `size`."""
    position = 0
    for number_of, (_, same) in enumerate(groupby(map(str, prompts))):
        count = len(list(same))
        each = size if size and count % size == 0 else count
        for k in range(count):
            yield position + k, f"{number_of}.{k // each}"
        position += count


def _weights(path: Path) -> tuple[list[float] | None, int | None]:
    """The weights of the functions and the group size, by args.json beside the file; None where they are not known."""
    settings = arguments(path.parent)
    weights, size = settings.get("reward_weights"), settings.get("num_generations")
    weighted = isinstance(weights, list) and all(isinstance(weight, int | float) for weight in weights)
    return [float(weight) for weight in weights] if weighted and weights else None, size if isinstance(
        size, int
    ) else None


def _text(value: Any) -> Any:
    return value if isinstance(value, list) and all(isinstance(message, dict) for message in value) else str(value)


KIND = replace(
    kind(find), shapes=OBJECTS, rows=(dict.fromkeys(("step", "prompt", "completion", "advantages"), list),), folder=None
)
"""Completions by themselves; the output folder is read by its log."""
