"""Rollouts as an engine wrote them one by one, and what is made of them: a log of groups, rows for a probe."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import json_number
from grposcope.core.not_finite import is_written_nan
from grposcope.core.rollouts import MESSAGES, Rollout, Rollouts, plain_text
from grposcope.core.run import Groups, RolloutFiles
from grposcope.core.text import listed, visible
from grposcope.logs.columns import RawLog, log_of_groups
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.kept_rows import GrowingHints

UNNAMED = (
    "rollouts have no id of their group, so they are grouped by their prompt; a prompt drawn twice in a step counts as "
    "one group"
)
"""Note on files without ids of groups."""


HELD = 2**26
"""Bytes of a file up to which its rollouts stay in memory."""

_KEPT = 200_000
"""Rollouts, without their texts, that are kept of files that grow."""


@dataclass(frozen=True)
class WrittenFiles:
    """The files of an engine's rollouts: the path of each step, and what reads one, a rollout at a time.

    paths: by step; or one path, of which the rows say their steps.
    sums: whether the reward is the plain sum of those of the functions where no rollout has one. notes: what `read` has
    left out so far. before: by path, what was read of files before this look at them; None where they do not grow.
    """

    engine: str
    paths: Mapping[int, Path] | Path
    read: Callable[[Path], Iterator[Rollout]]
    sums: bool = False
    notes: list[str] = field(default_factory=list)
    before: dict[Path, Any] | None = field(default=None, repr=False, compare=False)
    _held: dict[Path, list[Rollout]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def by_step(self) -> Mapping[int, Path]:
        """Step -> its path, in order of the steps."""
        if not isinstance(self.paths, Path):
            return self.paths
        return dict.fromkeys(sorted({row.step for row in self._rows(self.paths)}), self.paths)

    @property
    def is_large(self) -> bool:
        """Whether all files together are larger than what stays in memory."""
        return sum(map(_bytes_of, self._paths)) > HELD

    @property
    def _paths(self) -> tuple[Path, ...]:
        """All files, each once."""
        return (self.paths,) if isinstance(self.paths, Path) else tuple(dict.fromkeys(self.paths.values()))

    def rollouts(self) -> Iterator[Rollout]:
        """The rollouts of all files, in the order of the steps."""
        for path in self._paths:
            yield from self._rows(path)

    def of_step(self, path: Path, step: int) -> tuple[Rollout, ...]:
        """The rollouts of a step in a file."""
        return tuple(rollout for rollout in self._rows(path) if rollout.step == step)

    def _rows(self, path: Path) -> Iterable[Rollout]:
        """The rollouts of a file. Those of the last file stay in memory unless it is large, so that a file of many
        steps is read once and not at each."""
        if path in self._held:
            return self._held[path]
        if _bytes_of(path) > HELD:
            return self.read(path)
        rows = list(self.read(path))
        self._held.clear()
        self._held[path] = rows
        return rows

    def _paid(self, path: Path) -> tuple[Iterable[Rollout], Iterable[tuple[int, bool]]]:
        """What groups are made of: the rollouts of a file; and for each answer of a tool in them its step and whether
        it reads as an error. Where files grow, one that has not changed is not read again, and texts are not kept."""
        if self.before is None:
            return self._rows(path), _failed(self._rows(path))
        state = _state_of(path)
        if path not in self.before or self.before[path][0] != state:
            said = len(self.notes)
            rows = list(self._rows(path))
            kept = [_without_texts(row) for row in rows], list(_failed(rows)), self.notes[said:]
            self.before.pop(path, None)
            if len(kept[0]) + sum(len(read[1][0]) for read in self.before.values()) > _KEPT:
                return kept[0], kept[1]
            self.before[path] = state, kept
        else:
            self.notes.extend(self.before[path][1][2])
        rows, failed, _ = self.before[path][1]
        return rows, failed

    def log(self, path: Path, notes: Iterable[str] = (), hints: Hints | None = None) -> RawLog:
        """A log whose metrics are made of the groups; UserError, with the line, for what does not fit.

        hints: of files that grow, those that keep what was read of them at earlier looks.
        """
        files = replace(self, before=hints.kept.rollouts) if isinstance(hints, GrowingHints) else self
        groups, where, further = files.groups()
        paths = () if self.is_large else self._paths
        failures = _shares(reply for own in paths for reply in files._paid(own)[1])
        return log_of_groups(path, self.engine, groups, self.texts(where), [*notes, *further], failures)

    def groups(self) -> tuple[Groups, Mapping[int, Path], list[str]]:
        """The groups of rollouts that have a reward, the file of each step, and what is to be said of them."""
        members: dict[tuple[int, str], list[Rollout]] = {}
        where: dict[int, Path] = {}
        for path in self._paths:
            for row in self._paid(path)[0]:
                where.setdefault(row.step, path)
                if row.group is None:
                    raise UserError(f'{row.where} has no group; add a column "group"')
                members.setdefault((row.step, row.group), []).append(row)
        every = [row for group in members.values() for row in group]
        summed = self.sums and all(math.isnan(row.reward) for row in every) and any(row.rewards for row in every)
        if summed:
            members = {key: [_with_sum(row) for row in group] for key, group in members.items()}
        rewarded = {key: [row for row in group if _is_rewarded(row)] for key, group in members.items()}
        members = {key: group for key, group in rewarded.items() if group}
        groups = list(members.values())
        lost = len(every) - sum(map(len, groups))
        names = [dict.fromkeys(name for row in group for name in row.rewards) for group in groups]
        flags = [[bool(row.truncated) for row in group] for group in groups]
        lengths = [[row.size for row in group] for group in groups]
        found = Groups.of(
            [step for step, _ in members],
            [_label(plain_text(group[0].prompt or "") or group[0].problem or str(group[0].group)) for group in groups],
            [[row.reward for row in group] for group in groups],
            truncated=flags if all(row.truncated is not None for group in groups for row in group) else None,
            components=[
                {name: [row.rewards.get(name, math.nan) for row in group] for name in present}
                for group, present in zip(groups, names, strict=True)
            ],
            lengths=None if any(math.isnan(length) for own in lengths for length in own) else lengths,
        )
        found = replace(found, summed=summed)
        notes = list(dict.fromkeys(self.notes))
        if not all(row.named for row in every):
            notes.append(UNNAMED)
        notes += [f"{lost} rollouts have no reward and were left out"] if lost else []
        if summed and (several := listed(list(dict.fromkeys(name for own in names for name in own)))):
            notes.append(f"the reward of a rollout is taken to be the plain sum of {several}")
        sizes = {len(group) for group in groups}
        if len(sizes) > 1:
            notes.append(f"groups have {min(sizes)} to {max(sizes)} rollouts")
        return found, where, notes

    def logged(self, step: int) -> Rollouts:
        """The rollouts of a step for a probe; UserError, with the line, for what does not fit."""
        path = self.by_step[step]
        return Rollouts(self.of_step(path, step), self.engine, path)

    def texts(self, paths: Mapping[int, Path]) -> RolloutFiles:
        """The texts of the rollouts by step, read when they are asked for."""
        return RolloutFiles(paths, self._texts)

    def _texts(self, path: Path, step: int) -> tuple[Rollout, ...]:
        """The rollouts of a step, with their place in the group."""
        counts: dict[str | None, int] = {}
        made = []
        for row in self.of_step(path, step):
            text = plain_text(row.prompt or "")
            count = counts[row.group] = counts.get(row.group, -1) + 1
            name = _label(text or row.problem or str(row.group))
            answer = plain_text(row.completion or "")
            counts_of: dict[str, Any] = {
                "turns_taken": row.turn_count,
                "calls_made": row.calls,
            }  # which the text does not show
            if row.messages:
                counts_of["columns"] = {**row.columns, MESSAGES: row.messages}
            made.append(replace(row, problem=name, prompt=text, completion=answer, index=count, **counts_of))
        return tuple(made)


def _failed(rollouts: Iterable[Rollout]) -> Iterator[tuple[int, bool]]:
    """Of each answer of a tool its step, and whether it reads as an error."""
    return ((rollout.step, failed) for rollout in rollouts for failed in rollout.failed_replies)


def _shares(replies: Iterable[tuple[int, bool]]) -> dict[int, float]:
    """Step -> share of the tools' answers that read as errors, of the steps whose messages have any."""
    by_step: dict[int, list[bool]] = {}
    for step, failed in replies:
        by_step.setdefault(step, []).append(failed)
    return {step: sum(failed) / len(failed) for step, failed in by_step.items()}


def _without_texts(row: Rollout) -> Rollout:
    """What groups are made of: a rollout with its prompt shortened, and the length of its completion for the text."""
    prompt = _label(plain_text(row.prompt or ""))
    return Rollout(
        where=row.where, step=row.step, group=row.group, named=row.named, prompt=prompt, problem=row.problem,
        reward=row.reward, rewards=row.rewards, truncated=row.truncated, length=row.size,
    )  # fmt: skip


def _state_of(path: Path) -> list[tuple[str, int, int, int]]:
    """What changes where a file, or one of a folder, is written: names, inodes, sizes and times."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [(str(file), about.st_ino, about.st_size, about.st_mtime_ns) for file in files for about in [file.stat()]]


def _bytes_of(path: Path) -> int:
    """The size of a file, or of all files of a folder."""
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())


def _is_rewarded(row: Rollout) -> bool:
    """Whether a rollout has a reward; one that was written as NaN is a reward that was lost."""
    return not math.isnan(row.reward) or bool(is_written_nan(np.array([row.reward]))[0])


def _with_sum(row: Rollout) -> Rollout:
    """The rollout with the sum of its rewards; those of functions that did not judge it count nothing."""
    values = [value for value in row.rewards.values() if not math.isnan(value)]
    return replace(row, reward=sum(values) if values else math.nan)


def kind(find: Callable[[Path], WrittenFiles | None]) -> LogKind:
    """The kind of log that files of rollouts at a place are; what a file by itself looks like is still to be said."""

    def read(file: LogFile, hints: Hints) -> RawLog:
        files = find(file.path)
        if files is None:
            raise UserError(f"{file.path}: no rollouts in it; give the file or folder that the engine writes")
        return files.log(file.path, hints=hints)

    return LogKind(read, folder=lambda folder: find(folder) is not None)


def _label(text: str) -> str:
    """A prompt, shortened with a hash so that long prompts stay distinct without being held in memory."""
    if len(text) <= 200:
        return text
    return f"{text[:180]}… {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def number(value: Any, what: str, where: str) -> float:
    """A number of a file, NaN for null; UserError that names the line for anything else."""
    read = json_number(value)
    if read is None:
        raise UserError(f"{where}: {what} is {visible(str(value), 40)}; give a number, or null where there is none")
    return read


def numbers(value: Any, what: str, where: str) -> dict[str, float]:
    """The numbers of an object by name, without those that are null; UserError that names the line if it is none."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{where}: {what} is {visible(str(value), 40)}; give an object of numbers by name")
    made = {str(name): number(element, f"{what}/{visible(str(name), 40)}", where) for name, element in value.items()}
    return {name: element for name, element in made.items() if not math.isnan(element)}


def messages(value: Any, what: str, where: str) -> list[dict[str, Any]]:
    """A conversation, without the fields that are null; UserError that names the line if it is none."""
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str)
        or not all(isinstance(element, dict) for element in value)
    ):
        raise UserError(f"{where}: {what} is {visible(str(value), 40)}; give a list of messages")
    return [
        {name: value_of_key for name, value_of_key in element.items() if value_of_key is not None} for element in value
    ]
