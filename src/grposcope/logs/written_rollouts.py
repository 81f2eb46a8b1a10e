"""Rollouts as an engine wrote them one by one, and what is made of them: a log of groups, rows for a probe."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import json_number
from grposcope.core.run import Bools, Floats, Groups, Ints, Rollout, RolloutFiles
from grposcope.core.text import visible
from grposcope.logs.columns import RawLog, log_of_groups
from grposcope.logs.formats.log_file import LogFile, LogKind
from grposcope.logs.hints import Hints
from grposcope.logs.logged_rollouts import LoggedRows, Text


@dataclass(frozen=True)
class WrittenRollout:
    """One rollout; None or NaN for what the engine did not write.

    where: file and line, for messages. group: what tells its siblings of the step apart from others. reward: the one
    that was trained on. components: its parts, or what was measured beside it. advantages: (T,), or (1,) where all
    tokens have one. prompt_ids (S,), completion_ids (T,). trained (T,): tokens that the policy wrote. sampler,
    trainer (T,): log-probabilities when it was drawn, NaN where a token was not drawn. version: of the sampler's
    weights. failed: what went wrong, empty for nothing.
    """

    where: str
    step: int
    group: str
    prompt: Text
    completion: Text
    reward: float = math.nan
    components: Mapping[str, float] = field(default_factory=dict)
    advantages: Floats | None = None
    prompt_ids: Ints | None = None
    completion_ids: Ints | None = None
    trained: Bools | None = None
    sampler: Floats | None = None
    trainer: Floats | None = None
    truncated: bool | None = None
    version: float = math.nan
    environment: str = ""
    failed: str = ""

    @property
    def length(self) -> float:
        """Tokens that the policy wrote; characters of the completion where there are no tokens."""
        if self.trained is not None:
            return float(self.trained.sum())
        return float(len(plain(self.completion)))


@dataclass(frozen=True)
class WrittenFiles:
    """The files of an engine's rollouts: the path of each step, and what reads one, a rollout at a time."""

    engine: str
    paths: Mapping[int, Path]
    read: Callable[[Path], Iterator[WrittenRollout]]

    def rollouts(self) -> Iterator[WrittenRollout]:
        """The rollouts of all files, in the order of the steps."""
        for path in dict.fromkeys(self.paths.values()):
            yield from self.read(path)

    def of_step(self, path: Path, step: int) -> tuple[WrittenRollout, ...]:
        """The rollouts of a step in a file."""
        return tuple(one for one in self.read(path) if one.step == step)

    def log(self, place: Path, notes: Iterable[str] = ()) -> RawLog:
        """A log whose metrics are made of the groups; UserError, with the line, for what does not fit."""
        found, where, further = self.groups()
        return log_of_groups(place, self.engine, found, self.texts(where), [*notes, *further])

    def groups(self) -> tuple[Groups, Mapping[int, Path], list[str]]:
        """The groups of rollouts that have a reward, the file of each step, and what is to be said of them."""
        members: dict[tuple[int, str], list[WrittenRollout]] = {}
        where: dict[int, Path] = {}
        lost = 0
        for path in dict.fromkeys(self.paths.values()):
            for one in self.read(path):
                where.setdefault(one.step, path)
                if math.isnan(one.reward):
                    lost += 1
                else:
                    members.setdefault((one.step, one.group), []).append(one)
        groups = list(members.values())
        names = [dict.fromkeys(name for one in group for name in one.components) for group in groups]
        flags = [[bool(one.truncated) for one in group] for group in groups]
        found = Groups.of(
            [step for step, _ in members],
            [label(plain(group[0].prompt) or group[0].group) for group in groups],
            [[one.reward for one in group] for group in groups],
            truncated=flags if all(one.truncated is not None for group in groups for one in group) else None,
            components=[
                {name: [one.components.get(name, math.nan) for one in group] for name in present}
                for group, present in zip(groups, names, strict=True)
            ],
            lengths=[[one.length for one in group] for group in groups],
        )
        notes = [f"{lost} rollouts have no reward and were left out"] if lost else []
        sizes = {len(group) for group in groups}
        if len(sizes) > 1:
            notes.append(f"groups have {min(sizes)} to {max(sizes)} rollouts")
        return found, where, notes

    def logged(self, step: int) -> LoggedRows:
        """The rollouts of a step for a probe, with one reward; UserError, with the line, for what does not fit."""
        path = self.paths[step]
        rows = self.of_step(path, step)
        each = [None if one.advantages is None or not len(one.advantages) else one.advantages for one in rows]
        alike = [float(one[0]) for one in each if one is not None and len(set(one[one != 0].tolist())) <= 1]
        return LoggedRows(
            engine=self.engine,
            path=path,
            step=step,
            keys=tuple(one.group for one in rows),
            prompts=tuple(one.prompt for one in rows),
            completions=tuple(one.completion for one in rows),
            rewards={"reward": np.array([one.reward for one in rows], np.float64)},
            advantages=np.array(alike) if rows and len(alike) == len(rows) else None,
        )

    def texts(self, paths: Mapping[int, Path]) -> RolloutFiles:
        """The texts of the rollouts by step, read when they are asked for."""
        return RolloutFiles(paths, self._texts)

    def _texts(self, path: Path, step: int) -> tuple[Rollout, ...]:
        """The rollouts of a step, texts only, without tokens."""
        counts: dict[str, int] = {}
        none = np.empty(0)
        made = []
        for one in self.of_step(path, step):
            text = plain(one.prompt)
            count = counts[one.group] = counts.get(one.group, -1) + 1
            made.append(
                Rollout(
                    label(text or one.group), text, count, plain(one.completion), one.reward, bool(one.truncated), (),
                    none, none, components=one.components,
                )
            )  # fmt: skip
        return tuple(made)


def kind(find: Callable[[Path], WrittenFiles | None], recognises: Callable[[LogFile], bool]) -> LogKind:
    """The kind of log that files of rollouts are, for those at a place, and for a file by itself."""

    def read(file: LogFile, hints: Hints) -> RawLog:
        found = find(file.path)
        if found is None:
            raise UserError(f"{file.path}: no rollouts in it; give the file or folder that the engine writes")
        return found.log(file.path)

    return LogKind(read, file=recognises, folder=lambda folder: find(folder) is not None)


def label(text: str) -> str:
    """A prompt, shortened with a hash so that long prompts stay distinct without being held in memory."""
    if len(text) <= 200:
        return text
    return f"{text[:180]}… {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def plain(text: Text) -> str:
    """A text, or the contents of a conversation, a line each."""
    if isinstance(text, str):
        return text
    return "\n".join(content for one in text if (content := _content(one.get("content"))))


def _content(value: Any) -> str:
    if isinstance(value, list):  # parts, of which those of text count
        return "".join(str(one.get("text", "")) for one in value if isinstance(one, dict))
    return "" if value is None else str(value)


def number(value: Any, what: str, where: str) -> float:
    """A number of a file, NaN for null; UserError that names the line for anything else."""
    found = json_number(value)
    if found is None:
        raise UserError(f"{where}: {what} is {visible(str(value), 40)}; give a number, or null where there is none")
    return found


def numbers(value: Any, what: str, where: str) -> dict[str, float]:
    """The numbers of an object by name, without those that are null; UserError that names the line if it is none."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{where}: {what} is {visible(str(value), 40)}; give an object of numbers by name")
    made = {str(name): number(one, f"{what}/{visible(str(name), 40)}", where) for name, one in value.items()}
    return {name: one for name, one in made.items() if not math.isnan(one)}


def messages(value: Any, what: str, where: str) -> list[dict[str, Any]]:
    """A conversation, without the fields that are null; UserError that names the line if it is none."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(one, dict) for one in value):
        raise UserError(f"{where}: {what} is {visible(str(value), 40)}; give a list of messages")
    return [{name: part for name, part in one.items() if part is not None} for one in value]
