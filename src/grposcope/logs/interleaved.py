"""Rows of one run that several programs wrote into one log, each at its own step: brought into the order of the steps.

An asynchronous trainer and what draws its rollouts log side by side, and one is ahead of the other, so the step
falls all the time although nobody restarted. Programs are told apart by their keys: rows that have a metric in
common are of one program. A step that falls within the rows of one program is a restart, and the rows after it are
another attempt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from grposcope.core.run import Bools, Floats, Ints


def order(table: Mapping[str, Floats], clocks: Collection[str]) -> Ints | None:
    """The order (N,) of the rows by attempt, then by step; None where one program wrote all, or the step never falls.

    clocks: columns that several programs may have, such as times.
    """
    step = table["step"]
    if not (np.diff(step) < 0).any():
        return None
    programs = _programs({key: column for key, column in table.items() if key not in clocks}, len(step))
    if len(np.unique(programs[programs >= 0])) < 2:
        return None
    found: Ints = np.lexsort((np.arange(len(step)), step, _attempts(programs, step)))
    return found


def last_attempts(table: Mapping[str, Floats], clocks: Collection[str]) -> Bools:
    """Rows (N,) of the last attempt of every step: those before the first step of every later attempt."""
    step = table["step"]
    programs = _programs({key: column for key, column in table.items() if key not in clocks}, len(step))
    attempt = _attempts(programs, step)
    first = np.full(int(attempt.max(initial=0)) + 2, np.inf)
    np.minimum.at(first, attempt, step)
    limit = np.minimum.accumulate(first[::-1])[::-1]
    found: Bools = step < limit[attempt + 1]
    return found


def _programs(columns: Mapping[str, Floats], count: int) -> Ints:
    """The program of each row (N,), by the metrics that rows have in common; −1 for rows of clocks only."""
    keys = list(columns)
    weights = np.random.default_rng(0).integers(1, 1 << 62, len(keys), dtype=np.int64)
    mark = np.zeros(count, np.int64)
    for key, weight in zip(keys, weights, strict=True):
        mark += np.where(np.isnan(columns[key]), 0, weight)  # a sum that tells sets of keys apart
    kinds, first, kind = np.unique(mark, return_index=True, return_inverse=True)
    program_of_key: dict[str, int] = {}
    merged = list(range(len(kinds)))
    for number, row in enumerate(first.tolist()):
        for key in (key for key in keys if not np.isnan(columns[key][row])):
            _merge(merged, number, program_of_key.setdefault(key, number))
    roots = np.array([_root(merged, number) for number in range(len(kinds))])
    found: Ints = np.where(mark == 0, -1, roots[kind])
    return found


def _root(merged: list[int], number: int) -> int:
    while merged[number] != number:
        number = merged[number]
    return number


def _merge(merged: list[int], one: int, other: int) -> None:
    merged[_root(merged, one)] = _root(merged, other)


def _attempts(programs: Ints, step: Floats) -> Ints:
    """The attempt of each row (N,): a new one begins where the step of a program falls, for all programs."""
    attempts = np.empty(len(step), np.int64)
    now, last = 0, dict[int, float]()
    for row, (program, at) in enumerate(zip(programs.tolist(), step.tolist(), strict=True)):
        if program >= 0:
            if at < last.get(program, at):
                now, last = now + 1, {}
            last[program] = at
        attempts[row] = now
    return attempts
