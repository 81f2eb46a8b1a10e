"""GSM8K: 8,792 grade-school word problems whose answers are integers (arXiv 2110.14168).

Read from a folder with train.jsonl and test.jsonl (`gsm8k:FOLDER`), from one JSONL file, of which
10 % are held out (`gsm8k:FILE`), or from the Hugging Face hub (`gsm8k`). A line has a `question`
and an `answer`, a worked solution that ends with `#### 72`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.lab.tasks import grading, hub
from grposcope.lab.tasks.base import Problem, Split, Task, read_rows, split_by_hash

_HUB = ("openai/gsm8k", "main")
_FILES: dict[Split, str] = {"train": "train", "heldout": "test"}


class GSM8K(Task):
    """Reward 1 for a completion whose answer equals the reference answer, else 0."""

    name = "gsm8k"
    instruction = (
        "Solve the problem. Reason briefly, one short step a line, and end with a line that holds only "
        "#### <number>: the result, without its unit."
    )
    max_tokens = 256
    form = "gsm8k[:PATH]"

    @classmethod
    def parse(cls, argument: str, reward: str | None = None) -> GSM8K:
        """The problems of the folder or file `argument`, or of the hub."""
        return cls(argument or None)

    def __init__(self, path: str | None = None):
        grading.engine()
        self.path = None if path is None else Path(path).expanduser()
        if self.path is not None and not self.path.exists():
            raise UserError(f"gsm8k:{path}: there is no such folder or file; it should hold train.jsonl and test.jsonl")

    @cache  # noqa: B019 - a task lives as long as the process
    def problems(self, split: Split) -> Sequence[Problem]:
        """The official training and test problems, or a hash split of a single file."""
        if self.path is None:
            return _problems(((str(n), row) for n, row in enumerate(_from_hub(_FILES[split]))), _FILES[split])
        if self.path.is_dir():
            return _from_file(self.path / f"{_FILES[split]}.jsonl")
        return split_by_hash(_from_file(self.path), split)

    def reward(self, problem: Problem, completion: str) -> float:
        """1 if math-verify finds the answers equal, else 0."""
        return float(grading.equal(problem.answer, completion))

    def answer_in(self, problem: Problem, completion: str) -> str:
        """What math-verify reads as the answer."""
        return grading.answer_in(problem.answer, completion)


def _from_file(path: Path) -> tuple[Problem, ...]:
    rows = read_rows(path, required=("question", "answer"))
    return _problems(((f"line {number}", row) for number, row in rows), str(path))


def _problems(rows: Iterable[tuple[str, Mapping[str, Any]]], source: str) -> tuple[Problem, ...]:
    """Problems of (place, row) pairs; `source` is the file or split that they are from."""
    problems = []
    for index, (where, row) in enumerate(rows):
        solution, mark, answer = str(row["answer"]).rpartition("####")
        answer = answer.replace(",", "").strip()
        if not mark or not answer:
            raise UserError(
                f"{source}, {where}: its 'answer' should end with '#### ' and a number; correct or remove the line"
            )
        identity = f"{Path(source).stem}-{index}"
        problems.append(Problem(identity, str(row["question"]).strip(), answer, {"solution": solution.strip()}))
    return tuple(problems)


def _from_hub(split: str) -> Iterable[Mapping[str, Any]]:
    """The rows of a split of the hub's GSM8K."""
    return hub.rows("gsm8k", *_HUB, split, "or read a folder with train.jsonl and test.jsonl: gsm8k:PATH")
