"""The folder that `grposcope evaluate` writes: the one module that knows its format, for reading and writing.

    evaluation.json   what is evaluated and how: an `EvaluationPlan`, with the tasks and models as found (format 1)
    problems.jsonl    a line per model and problem with its completions: an `EvaluatedProblem` each

Lines are only ever added. A process that is killed leaves whole lines and perhaps the beginning of one, which is
dropped by the next reader and cut off by the next writer; what is missing is drawn when the same command is given
again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from grposcope.core.errors import UserError
from grposcope.core.files import (
    alone,
    append,
    dumps,
    json_lines,
    json_object,
    read_whole,
    typed,
    unreadable,
    write_json,
)

FORMAT = 1
"""The newest version of evaluation.json that this module reads, and the one it writes."""

PLAN, ROWS = "evaluation.json", "problems.jsonl"

SPLITS, BATCH = ("heldout", "train", "all"), 256
"""Which problems there are to choose from, and completions that are drawn at a time where nothing else is asked for."""

Verdict = Literal["right", "wrong", "unread", "failed"]
"""right: reward 1 or more. wrong: less. unread: less, and no answer that the grader can read. failed: the grader raised
or took too long."""


@dataclass(frozen=True)
class EvaluationPlan:
    """What the completions depend on. max_tokens: None for what suits each task. split: heldout, train or all.

    limit: the first problems of each task only; None for all of them. reward: reward function of the user's own.
    """

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    samples: int
    temperature: float = 1.0
    max_tokens: int | None = None
    limit: int | None = None
    split: str = "heldout"
    seed: int = 0
    dtype: str = "float32"
    reward: str | None = None


@dataclass(frozen=True)
class EvaluationView:
    """How an evaluation is shown, which may change. ks: of pass@k; empty for the usual ones. arms: name -> its models;
    empty where each model is one.
    """

    ks: tuple[int, ...] = ()
    arms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluatedTask:
    """A task as it was found. digest: of its problems. left_out: rows of its file that could not be used, by reason.

    max_tokens: longest completion. of: problems in the split, of which `problems` are evaluated.
    """

    name: str
    problems: int
    of: int
    max_tokens: int
    digest: str
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Completion:
    """One completion. tokens: its length. answer: what the grader took for its answer; None where nobody knows."""

    text: str
    verdict: Verdict
    reward: float
    tokens: int
    truncated: bool
    answer: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class EvaluatedProblem:
    """All completions of a problem by one model. index: place of the problem in its task, from 0."""

    model: str
    task: str
    index: int
    id: str
    prompt: str
    answer: str
    completions: tuple[Completion, ...]

    @property
    def right(self) -> int:
        """How many completions are right."""
        return sum(completion.verdict == "right" for completion in self.completions)


@dataclass(frozen=True)
class EvaluationRecord:
    """A folder as it was read. models: name -> digest of the weights, of those that were begun.

    rows: by model and task, in the order of the problems. environment: of the last process that drew.
    """

    folder: Path
    plan: EvaluationPlan
    tasks: Mapping[str, EvaluatedTask]
    models: Mapping[str, str]
    rows: Mapping[tuple[str, str], tuple[EvaluatedProblem, ...]]
    view: EvaluationView = EvaluationView()
    environment: Mapping[str, Any] = field(default_factory=dict)
    started: str = ""

    @property
    def missing(self) -> int:
        """Problems that are not evaluated yet, over all models."""
        wanted = sum(self.tasks[task].problems for task in self.plan.tasks if task in self.tasks)
        return len(self.plan.models) * wanted - sum(map(len, self.rows.values()))


@dataclass(frozen=True)
class _PlanFile:
    """Content of evaluation.json."""

    format: int
    plan: EvaluationPlan
    tasks: Mapping[str, EvaluatedTask] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    view: EvaluationView = EvaluationView()
    environment: Any = None
    started: str = ""


def recognises(folder: Path) -> bool:
    """Whether the folder is that of an evaluation."""
    return (folder / PLAN).is_file()


def read(folder: Path) -> EvaluationRecord:
    """What is in the folder so far; UserError where its files are damaged."""
    content = _plan_file(folder)
    rows: dict[tuple[str, str], dict[int, EvaluatedProblem]] = {}
    path = folder / ROWS
    if path.exists():
        for number, row in json_lines(path, growing=True):
            try:
                problem = typed(EvaluatedProblem, row)
            except TypeError:
                raise UserError(f"{path}, line {number} is not an evaluated problem; delete that line") from None
            rows.setdefault((problem.model, problem.task), {})[problem.index] = problem
    ordered = {key: tuple(problem_rows[index] for index in sorted(problem_rows)) for key, problem_rows in rows.items()}
    about = content.environment if isinstance(content.environment, Mapping) else {}
    return EvaluationRecord(
        folder, content.plan, content.tasks, content.models, ordered, content.view, about, content.started
    )


class _EvaluationWriter:
    """Adds what is missing to a folder; made by `opened`."""

    def __init__(self, folder: Path, content: _PlanFile, rows: int):
        self.folder, self._content, self._file = folder, content, rows

    def check_model(self, model: str, digest: str) -> None:
        """Note the weights of a model; UserError where rows of the folder were drawn with others of the same name."""
        models = dict(self._content.models)
        if models.setdefault(model, digest) != digest:
            raise UserError(
                f"{self.folder} holds an evaluation of other weights of {model}; choose another folder, or delete that "
                "one"
            )
        if dict(self._content.models) != models:
            self._content = _PlanFile(**{**vars(self._content), "models": models})
            write_json(self.folder / PLAN, self._content)

    def add(self, problems: Sequence[EvaluatedProblem]) -> None:
        """Append a line per problem; on the disk when this returns. UserError where there is no room."""
        data = b"".join(dumps(_line(problem)).encode() + b"\n" for problem in problems)
        try:
            append(self._file, data)
            os.fsync(self._file)
        except OSError as error:
            raise UserError(
                f"cannot write {self.folder / ROWS}: {error.strerror}; make room, and run the command again"
            ) from None


@contextmanager
def opened(
    folder: Path,
    plan: EvaluationPlan,
    tasks: Mapping[str, EvaluatedTask],
    view: EvaluationView,
    environment: Mapping[str, Any],
    now: str,
) -> Iterator[_EvaluationWriter]:
    """The folder to be filled by this process alone, made where it is not there.

    UserError where it holds another evaluation, other files, or is being filled by another process.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is not a folder; choose another for the evaluation")
    if folder.is_dir() and not recognises(folder) and any(not child.name.startswith(".") for child in folder.iterdir()):
        raise UserError(f"{folder} holds other files; choose a new folder, or that of an evaluation to continue")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder, "evaluation"):
            content = _PlanFile(FORMAT, plan, tasks, {}, view, environment, now)
            if recognises(folder):
                before = _plan_file(folder)
                _check_same(folder, before, content)
                content = _PlanFile(FORMAT, plan, tasks, before.models, view, environment, before.started)
            write_json(folder / PLAN, content)
            rows = os.open(folder / ROWS, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                _cut_torn_line(rows)
                yield _EvaluationWriter(folder, content, rows)
            finally:
                os.close(rows)
    except OSError as error:
        raise unreadable(folder, error) from None


def _plan_file(folder: Path) -> _PlanFile:
    path = folder / PLAN
    try:
        row = json_object(read_whole(path), str(path), "delete the folder, or restore the file")
    except OSError as error:
        raise unreadable(path, error) from None
    format_ = row.get("format")
    if not isinstance(format_, int) or format_ > FORMAT:
        raise UserError(f"{path} has format {format_}, and this version reads format {FORMAT}; update grposcope")
    try:
        return typed(_PlanFile, row)
    except TypeError:
        raise UserError(
            f"{path} does not say what is evaluated; restore it from a copy, or delete the folder"
        ) from None


def _check_same(folder: Path, before: _PlanFile, now: _PlanFile) -> None:
    """UserError, in one line, where a folder holds an evaluation of anything else."""
    different = [
        f"{each.name.replace('_', ' ')} {_short(getattr(before.plan, each.name))} there, "
        f"{_short(getattr(now.plan, each.name))} here"
        for each in fields(EvaluationPlan)
        if getattr(before.plan, each.name) != getattr(now.plan, each.name)
    ]
    different += [
        f"the problems of {name} have changed since then"
        for name, task in now.tasks.items()
        if name in before.tasks and before.tasks[name] != task
    ]
    if different:
        raise UserError(
            f"{folder} holds another evaluation ({'; '.join(different[:3])}); choose another folder, or delete that one"
        )


def _short(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _line(problem: EvaluatedProblem) -> dict[str, Any]:
    """A row as JSON, without what is not known."""
    completions = [{k: v for k, v in vars(completion).items() if v is not None and (k, v) != ("reason", "")}
                   for completion in problem.completions]  # fmt: skip
    return {**vars(problem), "completions": completions}


def _cut_torn_line(file: int) -> None:
    """Cut off what follows the last newline of an open file."""
    end = os.fstat(file).st_size
    place, size = end, 1 << 16
    while place > 0:
        start = max(0, place - size)
        newline = os.pread(file, place - start, start).rfind(b"\n")
        if newline >= 0:
            place = start + newline + 1
            break
        place = start
    if place < end:
        os.ftruncate(file, place)
