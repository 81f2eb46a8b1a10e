"""Console logs that spread a step over several lines, as hand-written loops print them: each record becomes one row.

    === Step 12/500 ===                      Average Reward: 0.71
    reward: 0.71                             KL: 0.02
    KL: 0.02                                 Step 12/500, loss: 0.01

The line that counts the steps opens a record where such a line comes first, and closes it where the reward does. Where
no line counts them and the reward of each completion has a line, a line with the loss closes the record of an update,
whose reward is their mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from grposcope.logs import keys
from grposcope.logs.formats import step_counter
from grposcope.logs.formats.key_values import Line, Named
from grposcope.logs.hints import UndecidedError

_FEWEST = 3
"""Lines with a loss from which on they are those of updates."""

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


def averaged(rows: Sequence[Row], reward: str) -> list[Row] | None:
    """A row for each line with a loss, with the mean of the rewards in lines of their own since the one before, and
    with the number of the update; held-out lines stay. None where these are no several rewards for each.
    """
    kinds = Counter(names for row in rows if not row.held_out and _is_loss(names := _names(row), reward))
    if not kinds:
        return None
    (closing, count), *_ = kinds.most_common(1)
    result, rewards, updates, several = list[Row](), list[float](), 0, 0
    for row in rows:
        if row.held_out:
            result.append(row)
        elif (value := step_counter.named(row.numbers, reward)) is not None:
            rewards += [value.value] if len(row.numbers) == 1 else []
        elif _names(row) == closing:
            updates += 1
            mean = [Named(reward, math.fsum(rewards) / len(rewards))] if rewards else []
            result.append(replace(row, numbers=(Named("update", updates), *row.numbers, *mean)))
            several += len(rewards) > 1
            rewards = []
    with_reward = sum(_has(row, reward) for row in result)
    return result if count >= _FEWEST and several >= ONE * max(with_reward, 1) else None


def _names(row: Row) -> tuple[str, ...]:
    return tuple(number.name for number in row.numbers)


def _is_loss(names: Sequence[str], reward: str) -> bool:
    """Whether names of a line have a loss and neither the reward nor a step."""
    return (
        reward not in names
        and not any(map(step_counter.is_step, names))
        and any("loss" in keys.words_of(name).split() for name in names)
    )


def _counting(rows: Sequence[Row], reward: str) -> set[int]:
    """Numbers of the lines that count the steps, of the commonest kind without the reward that does; or none."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        names = _names(row)
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
