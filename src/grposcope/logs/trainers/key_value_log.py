"""Console output of any trainer: lines of numbers with names, of which those with the reward are the rows.

The reward is the name whose words mean it (`generic.usual_metric`), if there is just one; the step is what
`formats.step_counter` finds. Otherwise the user is asked (`UndecidedError`), and nothing is guessed. Lines that begin
with eval, val or test are evaluations. Lines of other kinds that have the step add their numbers to its row. All else
is left out and counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Floats
from grposcope.core.text import listed, visible
from grposcope.logs import keys
from grposcope.logs.columns import RUNS, ColumnBuilder, LeftOut, RawLog
from grposcope.logs.formats import step_counter
from grposcope.logs.formats.key_values import Named, parse
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.formats.step_counter import Counter
from grposcope.logs.hints import Hints, UndecidedError
from grposcope.logs.trainers import line_records
from grposcope.logs.trainers.generic import usual_metric
from grposcope.logs.trainers.line_records import Row

ALONE = 5
"""Lines with nothing but the reward that are a log without steps."""

_DOINGS = re.compile(r"(?:complete|finish|sav|start|evaluat|load|runn?|writ)(?:e?d|ing)|done|took|batch of", re.I)
"""What a line of an evaluation says that was done, not measured."""

_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+")


def _recognises(file: LogFile) -> bool:
    """Whether the beginning of the file shows that it is such a log (`shown`)."""
    if file.shape == "json document" and file.first_row is None and shown(file.head):
        return not file.is_document
    return file.shape == "text" and shown(file.head)


def shown(part: bytes) -> bool:
    """Whether a part of a text has two lines of one kind with two named numbers or more, one of them maybe a reward.

    Lines with the reward alone are enough where others count the steps, or where there are ALONE of them.
    """
    seen: set[tuple[str, ...]] = set()
    lines = [parse(text) for text in part.decode("utf-8", "replace").replace("\r", "\n").split("\n")]
    for names in (line.names for line in lines):
        if sum(not name.startswith("#") for name in names) >= 2 and any(map(keys.SIGNAL.search, names)):
            if names in seen:
                return True
            seen.add(names)
    alone = sum(len(line.names) == 1 and usual_metric(line.names[0]) == "reward" for line in lines)
    return alone >= ALONE or line_records.may_be_spread(lines)


def read(file: LogFile, hints: Hints) -> RawLog:
    """The rows of the log; UndecidedError where the reward or the step would have to be guessed."""
    left_out = LeftOut()
    rows = _without_commas(_rows(file, left_out), file)
    reward = _reward(file, rows, hints)
    trained = [row for row in rows if not row.held_out and step_counter.named(row.numbers, reward)]
    if not trained:
        raise UserError(f"{file.path}: no training line has {visible(reward, 60)}; give the log of the training")
    rows, trained, counter = _counted(file, rows, trained, reward, hints)
    builder = ColumnBuilder()
    training = {id(row) for row in trained}
    heads = {step_counter.head(row.numbers, counter) for row in trained}
    last, count, of_before = math.nan, 0, 0
    for row in rows:
        is_row = id(row) in training
        count += is_row
        if counter is None:
            step = float(count) if is_row else math.nan
        else:
            step = counter.step(row.numbers) if step_counter.head(row.numbers, counter) in heads else math.nan
        if row.held_out and math.isnan(step) and not math.isnan(last):
            step, of_before = last, of_before + 1
        values = _values(row, counter, hints)
        if math.isnan(step) or not values:
            left_out.add(row.line, row.text)
            continue
        last = step if is_row else last
        builder.row(row.line, {**values, **row.labels, "step": step})
    if of_before:
        file.notes.append(f"{of_before} evaluations have no step; each is placed at the row before it")
    step_key = "" if counter is None else counter.shown
    return RawLog(file.path, builder, notes=file.notes, left_out=left_out, step_key=step_key)


def _counted(
    file: LogFile, rows: list[Row], trained: list[Row], reward: str, hints: Hints
) -> tuple[list[Row], list[Row], Counter | None]:
    """All rows, those of training, and what counts their steps: of the lines as they are, or else of records of several
    lines; None where nothing does."""
    counter = _counter(file, trained, hints)
    joinings = (
        (line_records.joined, "a step takes several lines of this log; they are read as one row"),
        (
            line_records.averaged,
            "lines with the reward alone are taken for single completions: each row is an update, a line with a loss, "
            "with the mean of those before it",
        ),
    )
    for join, note in joinings:
        if counter is None and (records := join(rows, reward)) is not None:
            rows = records
            trained = [row for row in rows if not row.held_out and step_counter.named(row.numbers, reward)]
            counter = _counter(file, trained, hints)
            file.notes.append(note)
    if counter is None:
        file.notes.append("no number counts steps, so rows are numbered from 1")
    return rows, trained, counter


def _rows(file: LogFile, left_out: LeftOut) -> list[Row]:
    """The lines with a named number; the last number of a line that is cut off is left out, as digits may follow."""
    rows = []
    for line, text, ended in file.lines():
        parsed = parse(text)
        numbers = parsed.numbers
        if not ended and numbers and text[-1:].isdigit():
            numbers = numbers[:-1]
            file.notes.append(f"line {line} is unfinished; its last number was left out, because digits may be missing")
        names = [number.name for number in numbers if not number.name.startswith("#")]
        if names:
            labels = {key: value for key, value in parsed.texts.items() if key in RUNS or key.lower() in keys.KINDS}
            marked = bool(parsed.tags & keys.WORDS)
            rows.append(Row(line, text[:200], numbers, labels, marked or all(map(_is_held_out, names)), marked))
        elif text.strip():
            left_out.add(line, text)
    return rows


def _reward(file: LogFile, rows: Sequence[Row], hints: Hints) -> str:
    """Name or place of the reward in a line; UndecidedError if none or several names may be it."""
    reward_key = hints.columns.get("reward")
    if reward_key is not None:
        if not any(step_counter.named(row.numbers, reward_key) for row in rows):
            raise UserError(
                f"{file.path}: no line has a number {visible(reward_key, 60)!r}; its names are {_names(rows)}"
            )
        return reward_key
    columns = _numbers(rows)
    names = list(columns)
    meant = [name for name in names if usual_metric(name) == "reward"]
    exact = [name for name in meant if name.lower() == "reward"]
    if len(meant) == 1 or len(exact) == 1:
        return (exact or meant)[0]
    if (reward_name := keys.reward_among(names)) is not None:
        file.notes.append(keys.taken_for_reward(reward_name, columns[reward_name]))
        return reward_name
    raise keys.which_is_the_reward(file.path, "number", keys.seen(columns, keys.reward_candidates(names)))


def _numbers(rows: Sequence[Row]) -> dict[str, Floats]:
    """Values by name of the lines of training, those of most lines first; numbers without a name are left out."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for number in row.numbers if not row.held_out else ():
            if not number.name.startswith("#") and not _is_held_out(number.name):
                values.setdefault(number.name, []).append(number.value)
    return {name: np.array(values[name]) for name in sorted(values, key=lambda name: -len(values[name]))}


def _names(rows: Sequence[Row]) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        for number in row.numbers:
            counts[number.name] = counts.get(number.name, 0) + 1
    usual = sorted(counts, key=lambda name: -counts[name])[:12]
    return listed([visible(name, 40) for name in usual if not name.startswith("#")]) or "none"


def _counter(file: LogFile, trained: Sequence[Row], hints: Hints) -> Counter | None:
    step_key = hints.columns.get("step")
    if step_key is None:
        try:
            return step_counter.decide([row.numbers for row in trained])
        except UndecidedError as error:
            raise UndecidedError(f"{file.path}: {error}", error.field) from None
    if not any(step_counter.named(row.numbers, step_key) for row in trained):
        names = _names(trained)
        raise UserError(f"{file.path}: no line with the reward has a number {visible(step_key, 60)!r}; it has {names}")
    return Counter((step_key,))


def _values(row: Row, counter: Counter | None, hints: Hints) -> dict[str, float]:
    """The named numbers of a row but for its step, and those whose place the user named.

    Of a line that a word marks as an evaluation, those that it names as values are eval_… (“Saved 4 validation plots”
    names none); a name such as “valid acc” is valid_acc.
    """
    counted = () if counter is None else counter.keys
    values = {}
    for number in row.numbers:
        if number.name.startswith("#") or number.name in counted or number.comma:
            continue
        if row.marked and not _is_value(number.name, row.text):
            continue
        name = "_".join(number.name.split(" ", 1)) if _is_held_out(number.name) else number.name
        name = f"eval_{_without_word(name)}" if row.marked else name
        whole = number.total is None or "epoch" in name.lower()
        values[name] = number.value if whole else number.value / (number.total or math.nan)
    if not row.held_out:
        for key in hints.columns.values():
            found = step_counter.named(row.numbers, key)
            if key not in values and found is not None:
                values[key] = found.value
    return values


def _is_value(name: str, text: str) -> bool:
    """Whether a line of an evaluation says that a number is the value of this name: by a colon or an equals sign, or
    because the name is one of what is rewarded; not of what the evaluation did, such as “completed: 0.5 s”."""
    if _DOINGS.search(name):
        return False
    return bool(keys.SIGNAL.search(name)) or re.search(re.escape(name) + r"['\"`*]{0,2} ?[:=]", text) is not None


def _is_held_out(name: str) -> bool:
    return re.split(r"[\s_/.-]", name.lower(), maxsplit=1)[0] in keys.WORDS


def _without_word(name: str) -> str:
    """A name without the word in front that marks an evaluation."""
    return re.split(r"[\s_/.-]", name, maxsplit=1)[-1] if _is_held_out(name) else name


def _without_commas(rows: list[Row], file: LogFile) -> list[Row]:
    """Rows whose numbers with commas are read where all of a name are plainly of thousands, and noted where not."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        for number in row.numbers:
            if number.comma:
                texts.setdefault(number.name, []).append(number.comma)
    if not texts:
        return rows
    others: dict[str, list[float]] = {name: [] for name in texts}
    for row in rows:
        for number in row.numbers:
            if number.name in others and not number.comma:
                others[number.name].append(number.value)
    plain = {
        name for name, all_of in texts.items()  # a count that has grown from 999 to 1,000
        if others[name] and all(value % 1 == 0 and abs(value) < 1000 for value in others[name])
        and all(map(_THOUSANDS.fullmatch, all_of))
    }  # fmt: skip
    for name in texts.keys() - plain:
        file.notes.append(
            f"{visible(name, 40)} is left out where it has a comma ({texts[name][0]}), which may separate "
            "decimals or thousands; write a decimal point"
        )
    return [
        Row(row.line, row.text, tuple(
            Named(one.name, float(one.comma.replace(",", "")), one.total) if one.name in plain and one.comma else one
            for one in row.numbers
        ), row.labels, row.held_out, row.marked)
        for row in rows
    ]  # fmt: skip


KIND = LogKind(read, file=_recognises, generic=True)
