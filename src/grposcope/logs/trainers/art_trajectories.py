"""Groups of rollouts from ART's trajectories/train/NNNN.parquet, in the folder of a model, or NNNN.jsonl before 0.5.

A row of Parquet is a trajectory: `group_index`, `reward`, `metrics` (JSON) and `messages`, of which those that the
policy wrote are `trainable`. A line of JSON is a group, its `trajectories` with `messages_and_choices`; a choice, which
has a `finish_reason`, was written by the policy. The number in the name is the step of the weights that drew them.
The last history of a trajectory is the rollout, and those of `additional_histories` and before that it does not begin
with are its `continuations`.
Neither has token ids or log-probabilities. Trajectories that ended in an exception are not written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import json_lines
from grposcope.core.rollouts import Rollout
from grposcope.core.text import visible
from grposcope.core.trajectories import with_histories
from grposcope.logs.formats import parquet
from grposcope.logs.formats.kind import OBJECTS
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.rollout_columns import STOP_WORDS
from grposcope.logs.written_rollouts import WrittenFiles, kind, messages, number, numbers

_NAME = re.compile(r"(?P<step>\d{1,15})\.(?:parquet|jsonl)(?:\.gz)?")
_COLUMNS = frozenset(("group_index", "reward", "messages"))


def find(place: Path) -> WrittenFiles | None:
    """The trajectories at a place: a file, their folder, or that of the model, of which those of training count."""
    if place.is_file():
        return WrittenFiles("art", {_step_of(place): place}, rollouts) if _are_trajectories(place) else None
    for folder in (place / "trajectories" / "train", place / "train", place):
        if not folder.is_dir():
            continue
        named = {int(match["step"]): path for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))}
        paths = {step: named[step] for step in sorted(named)}
        if paths and _are_trajectories(next(iter(paths.values()))):
            return WrittenFiles("art", paths, rollouts)
    return None


def _are_trajectories(path: Path) -> bool:
    return TABLE.recognises(LogFile(path)) or LINES.recognises(LogFile(path))


def _with_messages(file: LogFile) -> bool:
    """Whether the first group of a file is empty, or begins with a trajectory that has messages."""
    first = (file.first_row or {})["trajectories"]
    return not first or (isinstance(first[0], dict) and "messages_and_choices" in first[0])


def rollouts(path: Path) -> Iterator[Rollout]:
    """The trajectories of a file, in its order. UserError, with the row or line, for what does not fit."""
    if LogFile(path).head.startswith(parquet.MAGIC):
        yield from _of_parquet(path)
    else:
        yield from _of_lines(path)


def _of_parquet(path: Path) -> Iterator[Rollout]:
    table = parquet.table(path)
    if lacking := sorted(_COLUMNS - set(table.column_names)):
        raise UserError(f"{path} lacks the column {lacking[0]!r}; give trajectories as ART writes them")
    step = _step_of(path)
    for count, row in enumerate(table.to_pylist(), 1):
        where = f"{path}, row {count}"
        said = messages(row["messages"], "messages", where)
        first = next((k for k, message in enumerate(said) if message.get("trainable")), len(said))
        texts = [{name: value for name, value in message.items() if name != "trainable"} for message in said]
        yield _rollout(where, step, row["group_index"], texts[:first], texts[first:], row, None)


def _of_lines(path: Path) -> Iterator[Rollout]:
    step = _step_of(path)
    for line, row in json_lines(path, growing=True):
        where = f"{path}, line {line}"
        members = row.get("trajectories")
        if not isinstance(members, list):
            raise UserError(f"{where}: trajectories is {visible(str(members), 40)}; give a list, a group a line")
        for count, member in enumerate(members, 1):
            each = f"{where}, trajectory {count}"
            if not isinstance(member, dict):
                raise UserError(f"{each}: {visible(str(member), 40)} is not an object; give it as ART writes it")
            prompt, completion, ends = _conversation(member.get("messages_and_choices"), each)
            further = member.get("additional_histories") or []
            if not isinstance(further, list) or not all(isinstance(history, dict) for history in further):
                raise UserError(f"{each}: additional_histories is {visible(str(further), 40)}; give a list of objects")
            pieces = 1 + len(further)
            others = []
            for history in further:
                before, after, reasons = _conversation(history.get("messages_and_choices"), each)
                if [*before, *after][: len(prompt) + len(completion)] != [*prompt, *completion]:
                    others.append((prompt, completion, ends))
                prompt, completion, ends = before, after, reasons
            final = ends[-1:]
            made = _rollout(each, step, line, prompt, completion, member, final == ["length"] if final else None)
            yield with_histories(
                replace(
                    made,
                    stop=STOP_WORDS.get(str(final[0]), str(final[0])) if final else "",
                    pieces=pieces,
                ),
                (Rollout(where=each, prompt=before, completion=after) for before, after, _ in others),
            )


def _conversation(value: Any, where: str) -> tuple[list[Any], list[Any], list[Any]]:
    """Messages before the first that the policy wrote, those from it on, and why each of its own ended."""
    said = messages(value, "messages_and_choices", where)
    first = next((index for index, choice in enumerate(said) if "finish_reason" in choice), len(said))
    texts = [choice["message"] if isinstance(choice.get("message"), dict) else choice for choice in said]
    ends = [choice["finish_reason"] for choice in said if "finish_reason" in choice]
    return texts[:first], texts[first:], ends


def _rollout(
    where: str, step: int, group: Any, prompt: Any, completion: Any, row: Mapping[str, Any], truncated: bool | None
) -> Rollout:
    beside = row.get("metrics")
    if isinstance(beside, str):
        try:
            beside = json.loads(beside)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: metrics is not valid JSON ({error}); give an object of numbers") from None
    return Rollout(
        where=where,
        step=step,
        group=str(group),
        named=True,
        prompt=prompt,
        completion=completion,
        reward=number(row.get("reward"), "reward", where),
        rewards=numbers(beside, "metrics", where),
        truncated=truncated,
    )


def _step_of(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match["step"]) if match else 0


TABLE = replace(kind(find), magic=parquet.MAGIC, columns=_COLUMNS, folder=None)
LINES = replace(kind(find), shapes=OBJECTS, rows=({"trajectories": list},), file=_with_messages)
"""A group a line."""
"""Trajectories without the history of their model."""
