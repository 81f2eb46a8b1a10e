"""Reads groups of rollouts from verl's rollout_data_dir: a file N.jsonl per step, a line per rollout.

Fields input, output, score, step, gts and more. Rollouts belong together by uid ("sample_rollout_output")
where there is one, else by their input. score is before a KL penalty. Texts are not held: a file is
read again when its rollouts are asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.errors import UserError
from grposcope.runs.formats.jsonl import loaded
from grposcope.runs.formats.source import Source
from grposcope.runs.run import Groups, Rollout, Run
from grposcope.runs.trainers.trl_completions import from_groups

_NAME = re.compile(r"(\d{1,15})\.jsonl(?:\.gz)?")


def files(folder: Path) -> dict[int, Path]:
    """Step -> file, in order; empty if the folder is none of rollouts."""
    found = {int(match[1]): path for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))}
    ordered = {step: found[step] for step in sorted(found)}
    if not ordered or not recognises(_first(next(iter(ordered.values())))):
        return {}
    return ordered


def recognises(row: Mapping[str, Any]) -> bool:
    """Whether an object is a rollout of verl."""
    return "output" in row and "score" in row and ("input" in row or "uid" in row)


def read(place: Path, given: Mapping[str, Any]) -> Run:
    """The folder, or one file of it, as a run whose table is made of the groups."""
    paths = files(place) if place.is_dir() else {0: place}
    names: dict[str, int] = {}
    steps: list[int] = []
    problems: list[int] = []
    parts: list[list[float]] = []
    notes: list[str] = []
    where: dict[int, Path] = {}
    without, bad = 0, 0
    for name, path in paths.items():
        groups: dict[tuple[int, str], tuple[str, list[float]]] = {}
        source = Source(path)
        for _, row in _rows(source):
            score = row.get("score")
            if not isinstance(score, int | float):
                bad += 1
                continue
            at = row.get("step")
            at = at if isinstance(at, int) and not isinstance(at, bool) and abs(at) < 2**53 else name
            text = str(row.get("input", ""))
            uid = row.get("uid")
            without += not isinstance(uid, str)
            key = uid.split("_")[0] if isinstance(uid, str) else text
            groups.setdefault((at, key), (text, []))[1].append(float(score))
            where.setdefault(at, path)
        notes += source.notes
        for (at, key), (text, scores) in groups.items():
            label = _label(text or key)
            steps.append(at)
            problems.append(names.setdefault(label, len(names)))
            parts.append(scores)
    if without:
        notes.append(
            "rollouts are grouped by their input, as they have no uid; prompts drawn twice in a step are one group"
        )
    if bad:
        notes.append(f"{bad} rollouts have no number as score and were left out")
    sizes = {len(part) for part in parts}
    if len(sizes) > 1:
        notes.append(f"groups have {min(sizes)} to {max(sizes)} rollouts")
    found = Groups(
        step=np.array(steps, np.int64),
        problem=np.array(problems, np.int64),
        problems=tuple(names),
        rewards=np.array([score for part in parts for score in part], np.float64),
        offsets=np.append(0, np.cumsum([len(part) for part in parts])).astype(np.int64),
    )
    return from_groups(place, "verl", found, Files(where), notes, given)


class Files(Mapping[int, tuple[Rollout, ...]]):
    """Step -> rollouts, read from its file when asked for; tokens and log-probabilities are not recorded."""

    def __init__(self, paths: dict[int, Path]):
        self._paths = paths

    def __getitem__(self, step: int) -> tuple[Rollout, ...]:
        counts: dict[str, int] = {}
        found = []
        none = np.empty(0)
        for _, row in _rows(Source(self._paths[step])):
            at = row.get("step")
            if isinstance(at, int) and at != step:
                continue
            text, score = str(row.get("input", "")), row.get("score")
            count = counts[text] = counts.get(text, -1) + 1
            reward = float(score) if isinstance(score, int | float) else float("nan")
            found.append(Rollout(_label(text), text, count, str(row.get("output", "")), reward, False, (), none, none))
        return tuple(found)

    def __iter__(self) -> Iterator[int]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def _rows(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    bad: list[int] = []
    count = 0
    for first, piece in source.pieces():
        for k, part in enumerate(piece.split(b"\n")):
            row = loaded(part) if part.strip() else None
            if row is not None:
                count += 1
                yield first + k, row
            elif part.strip():
                bad.append(first + k)
    if bad and not count:
        raise UserError(
            f"{source.path}, line {bad[0]}: no JSON object; give the folder of rollouts, or its parent's log"
        )
    if bad:
        source.notes.append(
            f"{source.path.name}: {len(bad)} lines are no JSON objects and were left out, first {bad[0]}"
        )


def _first(path: Path) -> dict[str, Any]:
    for _, piece in Source(path).pieces():
        return loaded(piece.split(b"\n", 1)[0]) or {}
    return {}


def _label(text: str) -> str:
    """A prompt, shortened with a hash so that long ones stay apart without being held."""
    if len(text) <= 200:
        return text
    return f"{text[:180]}… {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"
