"""Groups of rollouts from verl's rollout_data_dir.

A file N.jsonl per step, a line per rollout, with input, output, score, step, gts, and numbers that the reward function
returned beside the score. Rollouts belong together by `uid` where there is one, else by their input. The score is
before a KL penalty. Outputs of one session of an agent loop, `GROUP_SESSION_OUTPUT`, are one rollout. Texts are not
held: a file is read again when its rollouts are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grposcope.core.rollouts import Rollout
from grposcope.core.trajectories import joined
from grposcope.logs.formats.jsonl import objects
from grposcope.logs.formats.kind import LINES
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.rollout_rows import row_of
from grposcope.logs.written_rollouts import WrittenFiles, kind

_NAME = re.compile(r"(\d{1,15})\.jsonl(?:\.gz)?")


def find(place: Path) -> WrittenFiles | None:
    """The rollouts of a rollout_data_dir, or of a file of it; None at any other place."""
    notes = list[str]()
    if place.is_file():
        return WrittenFiles("verl", place, _reader({}, notes), notes=notes) if KIND.recognises(LogFile(place)) else None
    numbered = {int(match[1]): path for path in place.iterdir() if (match := _NAME.fullmatch(path.name))}
    paths = {step: numbered[step] for step in sorted(numbered)}
    if not paths or not KIND.recognises(LogFile(next(iter(paths.values())))):
        return None
    return WrittenFiles("verl", paths, _reader({path: step for step, path in paths.items()}, notes), notes=notes)


def _reader(steps: Mapping[Path, int], notes: list[str]) -> Callable[[Path], Iterator[Rollout]]:
    """What reads a file, whose rows without a step are of `steps`, by default 0, and notes what it left out."""

    def read(path: Path) -> Iterator[Rollout]:
        file = LogFile(path)
        whole, told = joined(rollouts(file, steps.get(path, 0)))
        yield from whole
        notes.extend([*file.notes, *told])

    return read


def rollouts(file: LogFile, step: int) -> Iterator[Rollout]:
    """The rollouts of a file, in its order; lines that are no objects are left out, and told in the notes of the file.

    step: of rows that do not say. A score that is no number is NaN.
    """
    for line, row in objects(file):
        yield row_of(_cleaned(row, step), f"{file.path}, line {line}")


def _cleaned(row: dict[str, Any], step: int) -> dict[str, Any]:
    """A row whose step, score, uid and texts are of their type; such a file may hold anything."""
    at, score, uid = row.get("step"), row.get("score"), row.get("uid")
    whole = isinstance(at, int) and not isinstance(at, bool) and abs(at) < 2**53
    texts: dict[str, Any] = {name: str(row[name]) for name in ("input", "output") if name in row}
    return {
        **row, **texts, "step": at if whole else step, "score": score if isinstance(score, int | float) else None,
        "uid": uid if isinstance(uid, str) else None,
    }  # fmt: skip


KIND = replace(
    kind(find),
    shapes=LINES,
    rows=tuple(dict.fromkeys(("output", "score", whose), object) for whose in ("input", "uid")),
)
"""A rollout a line, as verl dumps it."""
"""A rollout_data_dir, or one file of it."""
