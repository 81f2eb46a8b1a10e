"""Console logs that spread a step over several lines, as hand-written loops print them: each record becomes one row.

    === Step 12/500 ===                      Average Reward: 0.71
    reward: 0.71                             KL: 0.02
    KL: 0.02                                 Step 12/500, loss: 0.01

The line that counts the steps opens a record where such a line comes first, and closes it where the reward does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from grposcope.logs import keys
from grposcope.logs.formats import step_counter
from grposcope.logs.formats.key_values import Line, Named
from grposcope.logs.hints import UndecidedError

ONE = 0.9
"""Share of the records that must have one reward: fewer, and the lines are no records of a step."""


@dataclass(frozen=True)
class Row:
    """A line with named numbers: where it stands and how it begins.

    held_out: whether it is no line of training. marked: whether a word of the line, not just its names, says so.
    """

    line: int
    text: str
    numbers: tuple[Named, ...]
    labels: Mapping[str, str]
    held_out: bool
    marked: bool = False


def may_be_spread(lines: Sequence[Line]) -> bool:
    """Whether of some lines two have the reward alone, and two others of one kind what is called the step."""
    alone = [line for line in lines if len(line.names) == 1 and keys.reward_among(line.names) is not None]
    counting = [line.names for line in lines if line not in alone and any(map(step_counter.is_step, line.names))]
    return len(alone) > 1 and len(set(counting)) < len(counting)


def joined(rows: Sequence[Row], reward: str) -> list[Row] | None:
    """The rows with the lines of each record in one, which has the counting line's numbers first; held-out lines stay.

    reward: name of the reward, whose lines do not count the steps. None where no other lines do, or where most records
    would not have one reward.
    """
    counting = _counting(rows, reward)
    if not counting:
        return None
    with_reward = [row for row in rows if _has(row, reward)]
    opens = min(counting) < with_reward[0].line
    records: list[list[Row]] = [[]]
    result: list[Row] = []
    for row in rows:
        if row.held_out:
            result.append(row)
            continue
        if opens and row.line in counting:
            records.append([])
        records[-1].append(row)
        if not opens and row.line in counting:
            records.append([])
    whole = [record for record in records if any(row.line in counting for row in record)]
    single = [record for record in whole if sum(_has(row, reward) for row in record) == 1]
    if len(single) < ONE * max(len(whole), 1):
        return None
    result += [_record(record, counting) for record in single]
    return sorted(result, key=lambda row: row.line)


def _counting(rows: Sequence[Row], reward: str) -> set[int]:
    """Numbers of the lines that count the steps, of the commonest kind without the reward that does; or none."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        names = tuple(number.name for number in row.numbers)
        if not row.held_out and not _has(row, reward) and any(map(step_counter.is_step, names)):
            kinds.setdefault(names, []).append(row)
    for lines in sorted(kinds.values(), key=len, reverse=True):
        try:
            counter = step_counter.decide([row.numbers for row in lines])
        except UndecidedError:
            continue
        if len(lines) > 1 and counter is not None:
            return {row.line for row in lines}
    return set()


def _has(row: Row, reward: str) -> bool:
    return step_counter.named(row.numbers, reward) is not None


def _record(lines: Sequence[Row], counting: set[int]) -> Row:
    """One row of the lines of a record; of a number that occurs again, the first is taken."""
    ordered = sorted(lines, key=lambda row: row.line not in counting)
    numbers: dict[str, Named] = {}
    for row in ordered:
        for number in row.numbers:
            if row is ordered[0] or not number.name.startswith("#"):
                numbers.setdefault(number.name, number)
    labels = {key: text for row in ordered for key, text in row.labels.items()}
    return replace(ordered[0], numbers=tuple(numbers.values()), labels=labels)
