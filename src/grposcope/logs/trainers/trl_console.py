"""What transformers and TRL print on a console: a dict per logged row, among progress bars and anything else.

The dicts hold no step. It is that of the progress bar last drawn before, where each dict has one of its own; else rows
are counted. Bars that are drawn anew between the rows, or stand still, are of something else: an evaluation, the
loading of weights.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

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

_ROUNDED = 0.006
"""How far an epoch may be from what it is: it is printed with two decimals, or four digits."""

_IN_PROPORTION = 0.8
"""Share of the rows in which the step of a progress bar has to be in proportion to the epoch."""

_BAR = re.compile(r"\b(?P<step>\d{1,9})/(?P<of>\d{1,9}) \[")


_Bar = tuple[int, int]
"""A progress bar: the step that it is at, and the one that it ends at."""


@dataclass
class _Printed:
    """A printed row: its line, its values, how many progress bars were drawn before it; whether it is cut off.

    bar: the step of the last of these that is of the training, None without one; next_bar: of the first one behind it.
    """

    line: int
    values: dict[str, float | str]
    drawn: int
    cut: bool
    bar: int | None = None
    next_bar: int | None = None

    @property
    def is_training(self) -> bool:
        """Whether it is a row of training, not of an evaluation or of the run as a whole."""
        return "loss" in self.values or "reward" in self.values


def read(file: LogFile, hints: Hints) -> RawLog:
    """The dicts in a printed text as rows; lines of other kinds are counted and left out."""
    rows: list[_Printed] = []
    left_out, drawn = LeftOut(), list[_Bar]()
    for line, text in _whole_dicts(file):
        here = len(rows)
        text = "{" + text if _FRAGMENT.match(text) and text.count(":") >= FEWEST_PAIRS else text
        for match in _BAR.finditer(text):
            _draw(drawn, (int(match["step"]), int(match["of"])), rows[-1].drawn if rows else 0)
        for match in _DICT.finditer(text):
            values = printed_pairs(match["rest"] + "}")
            if values.keys() & {"loss", "reward", "train_runtime"} or any(key.startswith("eval_") for key in values):
                rows.append(_Printed(line, _of_evaluation(values), len(drawn), not match["end"]))
        if len(rows) == here and text.strip():
            left_out.add(line, text)
    steps = _steps(rows, _of_training(rows, drawn), hints.settings, file.notes)
    builder = ColumnBuilder()
    for row, step in zip(rows, steps, strict=True):
        builder.row(row.line, {**row.values, **({} if step is None or "step" in row.values else {"step": float(step)})})
    if cut := [row.line for row in rows if row.cut]:
        file.notes.append(f"{len(cut)} rows are cut off, the first in line {cut[0]}; what follows in them is missing")
    return RawLog(file.path, builder, notes=file.notes, left_out=left_out)


def _draw(drawn: list[_Bar], bar: _Bar, before: int) -> None:
    """Append a progress bar to those drawn; of bars alike since the last row, before which were `before`, the last."""
    if len(drawn) > before and drawn[-1][1] == bar[1]:
        drawn[-1] = bar
    else:
        drawn.append(bar)


def _of_training(rows: Sequence[_Printed], drawn: Sequence[_Bar]) -> int | None:
    """Give each row the steps of the progress bars of the training around it; the last step of all, where a bar has
    reached its end after the last row of training.

    Of bars that end at different steps, those are of the training that move from row to row; where none moves, all.
    """
    training = [row.drawn for row in rows if row.is_training]
    moved: dict[int, set[int]] = {}
    for begin, end in itertools.pairwise([0, *training]):
        for of, step in {of: step for step, of in drawn[begin:end]}.items():
            moved.setdefault(of, set()).add(step)
    moving = {of for of, steps in moved.items() if len(steps) > 1} or {of for _, of in drawn}
    bars = [(k, step) for k, (step, of) in enumerate(drawn) if of in moving]
    for row in rows:
        behind = bisect_left(bars, (row.drawn, 0))
        row.bar = bars[behind - 1][1] if behind else None
        row.next_bar = bars[behind][1] if behind < len(bars) else None
    after = [bar for bar in drawn[max(training, default=0) :] if bar[1] in moving]
    longest = max((of for _, of in after), default=0)
    return longest if [step for step, of in after if of == longest][-1:] == [longest] else None


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


def _steps(rows: Sequence[_Printed], done: int | None, settings: Settings, notes: list[str]) -> list[int | None]:
    """The step of each row: that of the progress bars if they rise with the training rows, else by counting these.

    Bars and epochs may fall to where they began, as where a program was started again. done: the last step, where a bar
    has reached it after the last row; without logging_steps, it says how many steps each row stands for.
    """
    train = [row for row in rows if row.is_training]
    rewards = any("reward" in row.values for row in train)
    if _bars_rise(train, rewards):
        return [row.bar for row in rows]
    every, note = _steps_per_row(train, done, settings)
    by_epochs = _of_epochs(rows) if every == 1 else None
    notes.append("rows without a progress bar of their own have the step that their epoch says" if by_epochs else note)
    return by_epochs or _counted(rows, rewards, every)


def _of_epochs(rows: Sequence[_Printed]) -> list[int | None] | None:
    """The step of each row: that of the progress bar drawn just before or just behind it, whichever is in proportion to
    its epoch; else what the epoch says. None where neither is in proportion in most rows.
    """
    train = [row for row in rows if row.is_training]
    epochs = [_epoch(row) for row in train]
    if not all(a < b for a, b in itertools.pairwise([0.0, *epochs])):
        return None
    around = ([row.bar for row in train], [row.next_bar for row in train])
    bars = min(around, key=lambda bars: _off(bars, epochs)[0])
    _, per_epoch = _off(bars, epochs)
    fits = [bar is not None and abs(bar - per_epoch * epoch) <= max(1.0, _ROUNDED * per_epoch)
            for bar, epoch in zip(bars, epochs, strict=True)]  # fmt: skip
    if sum(fits) < max(3, _IN_PROPORTION * len(train)):
        return None
    said = iter([bar if fit else round(per_epoch * epoch)
                 for bar, epoch, fit in zip(bars, epochs, fits, strict=True)])  # fmt: skip
    return _filled([next(said) if row.is_training else None for row in rows])


def _off(bars: Sequence[int | None], epochs: Sequence[float]) -> tuple[float, float]:
    """How far bars are from proportion to their epochs, as the median of the differences, and the steps of an epoch."""
    pairs = [(bar, epoch) for bar, epoch in zip(bars, epochs, strict=True) if bar]
    if not pairs:
        return math.inf, math.nan
    per_epoch = median(bar / epoch for bar, epoch in pairs)
    return median(abs(bar - per_epoch * epoch) for bar, epoch in pairs), per_epoch


def _filled(steps: Sequence[int | None]) -> list[int | None]:
    """The steps, each None being that of the row before it."""
    filled: list[int | None] = []
    for step in steps:
        filled.append(filled[-1] if step is None and filled else step)
    return filled


def _epoch(row: _Printed) -> float:
    """The epoch of a row; NaN without one."""
    epoch = row.values.get("epoch")
    return epoch if isinstance(epoch, float) else math.nan


def _bars_rise(train: Sequence[_Printed], rewards: bool) -> bool:
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


def _is_of_policy(row: _Printed, rewards: bool) -> bool:
    """Whether a row of training is of no supervised phase, whose rows lack the reward that others have (`rewards`)."""
    return not rewards or "reward" in row.values


def _steps_per_row(train: Sequence[_Printed], done: int | None, settings: Settings) -> tuple[int, str]:
    """How many steps each row of training stands for, and a note that says so. done: as in `_steps`."""
    rows = len(train)
    every = settings.get("logging_steps", 0)
    if isinstance(every, int) and every > 0:
        return every, f"printed rows have no step, so row k counts as step k × {every} (logging_steps)"
    ask = "(give logging_steps if it was another)"
    begins = rows == 0 or not _epoch(train[0]) * rows > 2 * _epoch(train[-1])
    if done is not None and rows and done % rows == 0 and done > rows and begins:
        every = done // rows
        bar = f"a progress bar ends at {done}, so row k counts as step k × {every}"
        return every, f"printed rows have no step; {bar} {ask}"
    return 1, f"printed rows have no step, so row k counts as step k × 1 (logging_steps) {ask}"


def _counted(rows: Sequence[_Printed], rewards: bool, every: int) -> list[int | None]:
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
