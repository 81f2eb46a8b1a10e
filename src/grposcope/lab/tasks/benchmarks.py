r"""Maths benchmarks in files of JSON lines or data sets of the Hugging Face hub, whose field names differ.

The format is recognised by the fields of the first line: SVAMP, ASDiv, MAWPS,
OlympiadBench (answers without proofs), Minerva, AMC, AIME, College Math, MATH and MATH-500 are known. Rows that cannot
be graded are left out and counted in `Benchmark.left_out`, by reason.

A benchmark is there to evaluate: the whole file is held out and there is no training split.
`benchmarks:PATH,train=true` splits it by a hash instead, 90 % for training, the rest held out. What is no file but has
the form OWNER/NAME is a data set of the hub, `benchmarks:OWNER/NAME,config=main,split=test`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grposcope.core.errors import UserError
from grposcope.lab.tasks import grading, hub
from grposcope.lab.tasks.base import Problem, Split, Task, as_text, needed, read_rows, split_by_hash

_UNIT = re.compile(r"\s+\([^()]*\)$")
_WORD = re.compile(r"[A-Za-z]{3,}")
_MOST_WORDS = 5
_OF_HUB = re.compile(r"[\w-][\w.-]*/[\w.-]+(?<!\.jsonl)(?<!\.json)(?<!\.gz)")


@dataclass(frozen=True)
class _RowFormat:
    """Which fields of a row make the prompt (joined, as far as they are there), and how the answer is read.

    needed:  fields by which the format is recognised.
    prompt:  fields of the prompt, in order.
    answer:  field of the answer.
    read:    from that field's text to the answer; "" if it holds none.
    """

    needed: tuple[str, ...]
    prompt: tuple[str, ...]
    answer: str
    read: Callable[[str], str] = str


def _without_unit(answer: str) -> str:
    """The answer without a unit in brackets, as ASDiv has: `9 (apples)` gives 9; `-(1/3)` stays."""
    return _UNIT.sub("", answer)


def _after_mark(answer: str) -> str:
    """The part after `####` of a worked solution, as in GSM8K, or all of it."""
    return answer.rpartition("####")[2].strip()


def _boxed(solution: str) -> str:
    r"""Content of the last \boxed{} of a solution, as in Minerva and MATH, with `-1./3` and NumPy's names mended."""
    _, mark, rest = solution.rpartition("\\boxed{")
    answer = grading.closed(rest) if mark else ""
    return re.sub(r"(\d)\.(?=/)", r"\1", answer).replace("np.", "\\")


ROW_FORMATS = {
    "svamp": _RowFormat(("Body", "Question", "Answer"), ("Body", "Question"), "Answer"),
    "asdiv": _RowFormat(("body", "question", "answer"), ("body", "question"), "answer", _without_unit),
    "mawps": _RowFormat(("input", "target"), ("input",), "target"),
    "olympiadbench": _RowFormat(("question", "final_answer"), ("context", "question"), "final_answer"),
    "amc, aime, math-500": _RowFormat(("problem", "answer"), ("problem",), "answer"),
    "minerva, math": _RowFormat(("problem", "solution"), ("problem",), "solution", _boxed),
    "college math": _RowFormat(("question", "answer"), ("question",), "answer", _after_mark),
}
"""Benchmarks -> format of their rows; the first whose fields are all there is taken."""


class Benchmark(Task):
    """One benchmark file. Reward 1 for a completion whose answer equals the reference answer, else 0.

    train:    split the file by a hash, so that it can be trained on.
    left_out: how many rows could not be used, by reason.
    """

    instruction = grading.INSTRUCTION
    max_tokens = 512
    form = "benchmarks:PATH"

    @classmethod
    def parse(cls, argument: str, reward: str | None = None) -> Benchmark:
        """The benchmark of a file or of the hub, with `,train=true` and, on the hub, `,config=…,split=…` behind it."""
        path, settings = needed(argument, cls.form), {}
        while match := re.fullmatch(r"(.*),(train=true|config=[^,=]+|split=[^,=]+)", path):
            path, (key, _, value) = match[1], match[2].partition("=")
            settings[key] = value
        return cls(path, "train" in settings, settings.get("config"), settings.get("split"))

    def __init__(self, path: str, train: bool = False, config: str | None = None, split: str | None = None):
        grading.engine()
        self.path, self.train = Path(path).expanduser(), train
        self.name = f"benchmarks:{self.path.name.split('.')[0]}"
        if self.path.exists() or not _OF_HUB.fullmatch(path):
            self._problems, self.left_out = _read(self.path)
        else:
            remedy = "or read a file of JSON lines: benchmarks:PATH"
            rows = hub.rows(f"benchmarks:{path}", path, config, split, remedy)
            self._problems, self.left_out = _of_rows(list(enumerate(rows, 1)), path)

    def problems(self, split: Split) -> Sequence[Problem]:
        """All problems as held-out ones; with `train`, their part of the split by a hash."""
        if self.train:
            return split_by_hash(self._problems, split)
        if split == "train":
            raise UserError(
                f"{self.name} is for evaluation; to train on 90% of it, use benchmarks:{self.path},train=true"
            )
        return self._problems

    def reward(self, problem: Problem, completion: str) -> float:
        """1 if math-verify finds the answers equal, else 0."""
        return float(grading.equal(problem.answer, completion))

    def answer_in(self, problem: Problem, completion: str) -> str:
        """What math-verify reads as the answer."""
        return grading.answer_in(problem.answer, completion)


def _read(path: Path) -> tuple[tuple[Problem, ...], Counter[str]]:
    """The problems of a file, in its order, and the rows left out by reason."""
    _, head = next(iter(read_rows(path)))
    return _of_rows(read_rows(path, required=_recognise(head, str(path)).needed), str(path))


def _of_rows(rows: Iterable[tuple[int, Mapping[str, Any]]], source: str) -> tuple[tuple[Problem, ...], Counter[str]]:
    """The problems of numbered rows, in their order, and the rows left out by reason. source: where they are from."""
    problems, left_out = [], Counter[str]()
    row_format = None
    for number, row in rows:
        row_format = row_format or _recognise(row, source)
        prompt = _joined([as_text(row.get(field)) for field in row_format.prompt])
        answer = row_format.read(as_text(row[row_format.answer])).strip()
        reason = _unusable(prompt, answer)
        if reason:
            left_out[reason] += 1
        else:
            problems.append(Problem(f"{Path(source).name.split('.')[0]}-{number}", prompt, answer, row))
    if not problems:
        raise UserError(f"{source}: none of its {left_out.total()} rows can be graded ({', '.join(left_out)})")
    return tuple(problems), left_out


def _recognise(row: Mapping[str, Any], source: str) -> _RowFormat:
    for row_format in ROW_FORMATS.values():
        if all(field in row for field in row_format.needed):
            return row_format
    raise UserError(
        f"{source}: the fields {', '.join(row)} fit no benchmark known here; rename them to prompt and answer, "
        f"then use jsonl:{source}"
    )


def _joined(parts: Sequence[str]) -> str:
    """The parts as one text, with a comma where a part stops in mid-sentence, as those of SVAMP do."""
    text = ""
    for pair in filter(None, parts):
        text = f"{text}{',' if text[-1:].isalnum() else ''} {pair}" if text else pair
    return text


def _unusable(prompt: str, answer: str) -> str:
    """Why a row cannot be graded, or ""."""
    if not prompt:
        return "no question"
    if not answer:
        return "no answer"
    words = _WORD.findall(re.sub(r"\\[A-Za-z]+(?:\{[A-Za-z~ .,]*\})*", " ", answer))
    return "the answer is an explanation or a proof" if len(words) > _MOST_WORDS else ""
