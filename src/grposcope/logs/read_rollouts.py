"""The one reader of rollouts: those at a place, whichever trainer wrote them.

- TRL's completions/completions_NNNNN.parquet: texts, rewards by function, advantages; no ids, no log-probabilities.
- rollouts/step-NNNNNN.parquet of our own record: a part of the groups of a step, with log-probabilities.
- prime-rl's token_exports: whole sequences, of which the prompt is what stands before the first trained token.
- What `rollout_files` finds: verl's rollout_data_dir, ART's trajectories/, ms-swift's completions.jsonl, the traces of
  prime-rl and verifiers, and JSONL with a rollout a line under any of the names of `rollout_columns.NAMES`.
- Parquet with a rollout a row under any of these names.
- Plain tables with prompt, completion and reward in any spelling (`plain_rollouts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from grposcope.core.rollouts import Rollout, Rollouts
from grposcope.core.trajectories import answers_without_calls
from grposcope.logs import plain_rollouts
from grposcope.logs.formats import parquet
from grposcope.logs.native import rollouts as recorded
from grposcope.logs.rollout_rows import rows_of
from grposcope.logs.trainers import prime_rl_exports, rollout_files, trl_completions, trl_output


def rollouts(place: Path, functions: Sequence[str] = ()) -> Rollouts:
    """The rollouts at a place, a file or folder; none where there are none.

    functions: names of the reward functions where they are known; else every column of numbers in TRL's completions is
    one. UserError, with file and line, for what does not fit.
    """
    notes = list[str]()
    engine, found = _found(place, functions, notes)
    rows = _without_a_second_copy(tuple(found), notes)
    stray = answers_without_calls(rows)
    return Rollouts(rows, engine, place, notes=tuple(dict.fromkeys([*notes, stray] if stray else notes)))


COPIED = 16
"""Rollouts of one copy, at least, from which a file that holds the same twice was written twice."""


def _without_a_second_copy(rows: tuple[Rollout, ...], notes: list[str]) -> tuple[Rollout, ...]:
    """The rows, or their first half where the second is the same rollouts in the same order. notes: takes that it is.

    A file that was appended to twice says nothing of the sampler, and its copies are no further rollouts. It goes
    through several steps, and then through the same steps again; two copies within one step are kept, since two
    processes that drew the same write just this.
    """
    half, odd = divmod(len(rows), 2)
    if odd or half < COPIED:
        return rows
    if any(_said(first) != _said(second) for first, second in zip(rows[:half], rows[half:], strict=True)):
        return rows
    if len({row.step for row in rows[:half]}) < 2 or len({str(row.completion) for row in rows[:half]}) < 2:
        return rows
    notes.append(f"The {half:,} rollouts stand there twice, one copy behind the other; the second is left out.")
    return rows[:half]


def _said(row: Rollout) -> tuple[object, ...]:
    """What a copy of a rollout has in common with it, whatever its number in the file is."""
    return row.step, row.prompt, row.completion, row.reward


def _found(place: Path, functions: Sequence[str], notes: list[str]) -> tuple[str, Iterable[Rollout]]:
    """The trainer, empty where it is not known, and the rollouts at a place. notes: takes what did not fit."""
    if place.is_dir():
        output, _ = trl_output.find(place) or (None, place)
        output = output or place
        if files := trl_completions.files(place) or trl_completions.files(output):
            return "trl", chain.from_iterable(trl_completions.rollouts(path, functions) for path in files)
        if recorded.files(place):
            return "grposcope", chain.from_iterable(recorded.of_run(place).values())
    if exports := prime_rl_exports.files(place):
        every = (prime_rl_exports.rollouts(path, step) for step, paths in exports.items() for path in paths)
        return "prime-rl", chain.from_iterable(every)
    if (written := rollout_files.find(place)) is not None:
        rows = tuple(written.rollouts())
        notes += written.notes
        if written.engine == "generic" and place.is_file() and not any(map(_has_completion, rows)):
            rows = tuple(plain_rollouts.rollouts(place)) or rows
        return written.engine, rows
    if place.is_file() and parquet.column_names(place):
        return "", _parquet(place, functions, notes)
    if place.is_file():
        return "", plain_rollouts.rollouts(place)
    return "", ()


def _has_completion(row: Rollout) -> bool:
    return row.completion is not None or row.completion_ids is not None


def _parquet(path: Path, functions: Sequence[str], notes: list[str]) -> Iterator[Rollout]:
    names = set(parquet.column_names(path))
    if {"tokens", "logp", "completion"} <= names:
        yield from recorded.read(path)
    elif {"prompt", "completion", "advantage"} <= names:
        yield from trl_completions.rollouts(path, functions)
    else:
        rows = enumerate(parquet.table(path).to_pylist(), 1)
        yield from rows_of(((f"{path}, row {place}", row) for place, row in rows), notes)
