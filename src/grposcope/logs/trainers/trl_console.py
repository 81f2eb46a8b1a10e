"""What transformers and TRL print on a console: a dict per logged row, among progress bars and anything else.

The dicts hold no step. It is that of the progress bar last drawn before, where each dict has one of its own; else rows
are counted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grposcope.logs.columns import ColumnBuilder, LeftOut, RawLog
from grposcope.logs.formats.console import clean, printed_pairs
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.trainers.trainer import Settings

_FRAGMENT = re.compile(r"\s*['\"](?:loss|reward|num_tokens|completion_length|grad_norm)['\"]\s*:")
"""How a line begins that is a row without its first brace, as where part of a line was copied."""

_DICT = re.compile(r"\{(?=['\"][\w/ .-]+['\"]\s*:)(?P<rest>[^{}]*)(?P<end>\}?)")
FEWEST_PAIRS = 4
"""Pairs of a line without its first brace that is a row: a dict may be printed with a pair in each line."""

WRAPPED = 40
"""Lines of a terminal that a dict may take."""

FEW = 0.1
"""Share of the rows of training at which a program may have been started again."""

_BAR = re.compile(r"\b(?P<step>\d{1,9})/(?P<of>\d{1,9}) \[")


@dataclass
class Printed:
    """A printed row: its line, its values, the step of the progress bar drawn last before it; whether it is cut off."""

    line: int
    values: dict[str, float | str]
    bar: int | None
    cut: bool

    @property
    def is_training(self) -> bool:
        """Whether it is a row of training, not of an evaluation or of the run as a whole."""
        return "loss" in self.values or "reward" in self.values


def read(file: LogFile, hints: Hints) -> RawLog:
    """The dicts in a printed text as rows; lines of other kinds are counted and left out."""
    rows: list[Printed] = []
    left_out, bar, done = LeftOut(), None, None
    for line, text in _whole_dicts(file):
        here = len(rows)
        text = "{" + text if _FRAGMENT.match(text) and text.count(":") >= FEWEST_PAIRS else text
        bars = list(_BAR.finditer(text))
        bar = int(bars[-1]["step"]) if bars else bar
        for match in _DICT.finditer(text):
            values = printed_pairs(match["rest"] + "}")
            if values.keys() & {"loss", "reward", "train_runtime"} or any(key.startswith("eval_") for key in values):
                rows.append(Printed(line, _of_evaluation(values), bar, not match["end"]))
        if len(rows) == here and text.strip():
            left_out.add(line, text)
        if bars:  # the end of all steps, where no row of training is printed after it
            done = bar if bars[-1]["step"] == bars[-1]["of"] else None
        elif any(row.is_training for row in rows[here:]):
            done = None
    steps = _steps(rows, done, hints.settings, file.notes)
    builder = ColumnBuilder()
    for row, step in zip(rows, steps, strict=True):
        builder.row(row.line, {**row.values, **({} if step is None or "step" in row.values else {"step": float(step)})})
    if cut := [row.line for row in rows if row.cut]:
        file.notes.append(f"{len(cut)} rows are cut off, the first in line {cut[0]}; what follows in them is missing")
    return RawLog(file.path, builder, notes=file.notes, left_out=left_out)


def _of_evaluation(values: dict[str, float | str]) -> dict[str, float | str]:
    """The values of a row of an evaluation with all of its keys marked so: Unsloth marks its times and loss alone."""
    if "eval_loss" not in values or values.keys() & {"loss", "reward"}:
        return values
    own = ("eval_", "epoch", "step")
    return {key if key.startswith(own) else f"eval_{key}": value for key, value in values.items()}


def _whole_dicts(file: LogFile) -> Iterator[tuple[int, str]]:
    """(line number, text) of every line without terminal escapes; a dict that a terminal has wrapped is one line.

    A dict that is not closed within WRAPPED lines, or before another one begins, is cut off.
    """
    begun: list[tuple[int, str]] = []
    for line, text, _ in file.lines():
        cleaned = clean(text)
        if begun and "{" not in cleaned and len(begun) < WRAPPED:
            begun.append((line, cleaned))
            if "}" in cleaned:
                yield begun[0][0], "".join(text for _, text in begun)
                begun = []
            continue
        yield from begun
        *_, last = (None, *_DICT.finditer(cleaned))
        begun = [(line, cleaned)] if last is not None and not last["end"] else []
        if not begun:
            yield line, cleaned
    yield from begun


def _steps(rows: Sequence[Printed], done: int | None, settings: Settings, notes: list[str]) -> list[int | None]:
    """The step of each row: that of the progress bars if they rise with the training rows, else by counting these.

    Bars and epochs may fall to where they began, as where a program was started again. done: the last step, where a bar
    has reached it after the last row; without logging_steps, it says how many steps each row stands for.
    """
    train = [row for row in rows if row.is_training]
    rewards = any("reward" in row.values for row in train)
    if _bars_rise(train, rewards):
        return [row.bar for row in rows]
    every, note = _steps_per_row(len(train), done, settings)
    notes.append(note)
    return _counted(rows, rewards, every)


def _bars_rise(train: Sequence[Printed], rewards: bool) -> bool:
    """Whether each row of training has a progress bar, and these rise but for a few starts."""
    bars = [row.bar for row in train if row.bar is not None]
    if len(bars) < len(train):
        return False
    starts = [
        k for k in range(1, len(bars))
        if bars[k] <= bars[0] and bars[k] < bars[k - 1] and _is_of_policy(train[k - 1], rewards)
    ]  # fmt: skip
    rising = all(b > a or k in starts for k, (a, b) in enumerate(itertools.pairwise(bars), 1))
    return rising and len(starts) <= FEW * len(bars)


def _is_of_policy(row: Printed, rewards: bool) -> bool:
    """Whether a row of training is of no supervised phase, whose rows lack the reward that others have (`rewards`)."""
    return not rewards or "reward" in row.values


def _steps_per_row(rows: int, done: int | None, settings: Settings) -> tuple[int, str]:
    """How many steps each of so many rows of training stands for, and a note that says so. done: as in `_steps`."""
    every = settings.get("logging_steps", 0)
    if isinstance(every, int) and every > 0:
        return every, f"printed rows have no step, so row k counts as step k × {every} (logging_steps)"
    ask = "(give logging_steps if it was another)"
    if done is not None and rows and done % rows == 0 and done > rows:
        every = done // rows
        bar = f"a progress bar ends at {done}, so row k counts as step k × {every}"
        return every, f"printed rows have no step; {bar} {ask}"
    return 1, f"printed rows have no step, so row k counts as step k × 1 (logging_steps) {ask}"


def _counted(rows: Sequence[Printed], rewards: bool, every: int) -> list[int | None]:
    """The step of each row by the rows of training up to it; None before the first, and anew where epochs begin anew.

    every: steps that a row of training stands for.
    """
    steps: list[int | None] = []
    count, epochs = 0, list[float]()
    for row in rows:
        epoch = row.values.get("epoch")
        if row.is_training and isinstance(epoch, float):
            if epochs and epoch <= epochs[0] and epoch < epochs[-1]:
                count, epochs = 0, []
            if _is_of_policy(row, rewards):
                epochs.append(epoch)
        count += row.is_training
        steps.append(count * every if count else None)
    return steps
