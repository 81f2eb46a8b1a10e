"""Trajectories from rows of training: several rows of one trajectory, one for each turn or branch, as one rollout.

Trainers write a trajectory as one row, or as one a call of the policy, whose prompt is all that came before it. Both
are the same rollout here: a row whose prompt begins with the sequence before it goes on with that sequence, and what
stands between is what a tool or environment wrote. Rows whose prompt is another, after a compaction, a branch or a
template that rewrites the past, begin a history of their own: the last history is the rollout, and the others are its
`continuations`, from the token at which they leave it.

A reward that all rows share is that of the trajectory. Rewards that differ are those of the turns, and their sum is
that of the trajectory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from grposcope.core.rollouts import Bools, Floats, Ints, Rollout, Text, turns_of
from grposcope.core.text import visible

_NUMBERS = ("sampler", "old", "current", "reference", "last")
"""Columns that have no value on tokens that the policy did not write."""

_OF_TOKENS = ("mask", "attended", "written", "turns", "loss_weights", "last_weights")
"""The other columns with a value for each token."""


def joined(rows: Iterable[Rollout], same_prompt: bool = False) -> tuple[list[Rollout], list[str]]:
    """A rollout for each trajectory, at the place of its first row, and what did not fit, a sentence each.

    Rows of a step, of a group that the pipeline names, and of a `trajectory` are one, in order of `turn` where they say
    it; a group that is made of the prompt is another one in every turn. Rows that cannot be told
    apart as turns, because two are the same turn or begin with the same prompt, stay rollouts of their own where this
    is so of most trajectories; else their groups are left out.

    same_prompt: rows of a trajectory that begin with the same prompt are histories of it, and no two trajectories.
    """
    rows = list(rows)
    members: dict[tuple[int, str | None, str], list[Rollout]] = {}
    alone: dict[tuple[int, str | None, str], Rollout] = {}
    for index, row in enumerate(rows):
        if row.trajectory:
            members.setdefault((row.step, row.group if row.named else None, row.trajectory), []).append(row)
        else:
            alone[index, None, ""] = row
            members[index, None, "\x1f"] = []
    made: list[Rollout] = []
    notes: list[str] = []
    parted: list[str] = []
    unclear: list[tuple[int, str | None]] = []
    several, headless = 0, []
    least = min((row.turn for row in rows if row.turn is not None), default=0)
    for key, own in members.items():
        if not own:
            made.append(alone[key[0], None, ""])
        elif len(own) == 1:
            made += own
            if own[0].turn is not None and own[0].turn > least:
                headless.append(f"{own[0].where}: the turns before turn {own[0].turn} of trajectory "
                                f"{visible(own[0].trajectory, 40)} are missing")  # fmt: skip
        else:
            whole = _of_trajectory(own, notes, parted, same_prompt)
            several += 1
            made += whole
            if len(whole) > 1:
                unclear.append((key[0], own[0].group))
    if unclear and 2 * len(unclear) < several and all(group is not None for _, group in unclear):
        made = [row for row in made if (row.step, row.group) not in unclear]
        notes.append(f"groups with such trajectories are left out: {len(set(unclear)):,}")
    if headless:
        notes.append(headless[0] + (f"; so it is with {len(headless) - 1:,} more" if headless[1:] else ""))
    if parted:
        notes.append(parted[0] + (f"; so do {len(parted) - 1:,} more" if parted[1:] else ""))
    return made, notes


def with_histories(main: Rollout, others: Iterable[Rollout]) -> Rollout:
    """A rollout with other histories of its trajectory, each as what follows the tokens that it shares with `main`."""
    return replace(main, continuations=(*main.continuations, *(_cut(other, main) for other in others)))


def answers_without_calls(rows: Iterable[Rollout]) -> str:
    """That messages of tools answer no call of the policy, a sentence; empty where all do."""
    stray, first = 0, ""
    for row in rows:
        asked = False
        for message in row.messages:
            if message.get("role") == "assistant":
                asked = bool(message.get("tool_calls"))
            elif message.get("role") == "tool" and not asked:
                stray, first = stray + 1, first or row.where
    return f"messages of tools that answer no recorded call: {stray:,}; the first is in {first}" if stray else ""


def _of_trajectory(rows: Sequence[Rollout], notes: list[str], parted: list[str], same_prompt: bool) -> list[Rollout]:
    """The rollout of the rows of one trajectory; the rows themselves where they are not of one.

    parted: takes what began a history of its own, a sentence each. same_prompt: as in `joined`.
    """
    name, where = visible(rows[0].trajectory, 40), rows[0].where
    ordered = list(rows)
    told = [row.turn for row in rows if row.turn is not None]
    if len(told) == len(rows):
        if len(set(told)) < len(told):
            twice = next(turn for turn in told if told.count(turn) > 1)
            notes.append(f"{where}: two rows are turn {twice} of trajectory {name}, so that two trajectories have one "
                         "id, and its rows are not put together")  # fmt: skip
            return ordered
        ordered.sort(key=lambda row: row.turn or 0)
        if told != sorted(told):
            notes.append(f"{where}: turns of trajectory {name} are not in order; they were put in order")
        first, last = min(told), max(told)
        if last - first + 1 > len(told):
            lost = sorted({*range(first, last + 1)} - {*told})
            notes.append(f"{where}: turn {lost[0]} of trajectory {name} is missing; what it wrote counts as text of "
                         "the environment")  # fmt: skip
    elif not same_prompt and _same_prompt(rows[0], rows[1]):
        notes.append(f"{where}: rows of trajectory {name} begin with the same prompt, so that two trajectories have "
                     "one id, and its rows are not put together")  # fmt: skip
        return ordered
    full = [row for row in ordered if _has_content(row)]
    if len(full) < len(ordered):
        notes.append(f"{where}: {len(ordered) - len(full)} of {len(ordered)} turns of trajectory {name} have no tokens")
    if not full:
        return ordered[:1]
    histories: list[_History] = []
    for row in full:
        if not histories or not histories[-1].extended(row):
            if histories and not (same_prompt and _same_prompt(histories[-1].rows[0], row)):
                parted.append(
                    f"{row.where}: the prompt of this turn of trajectory {name} does not begin with the turns before "
                    f"it{histories[-1].difference(row)}; it begins a history of its own"
                )
            histories.append(_History(row))
    return [_rollout(histories, ordered)]


def _has_content(row: Rollout) -> bool:
    return bool(row.completion if row.completion_ids is None else len(row.completion_ids))


def _same_prompt(rollout: Rollout, other: Rollout) -> bool:
    if rollout.prompt_ids is not None and other.prompt_ids is not None:
        return np.array_equal(rollout.prompt_ids, other.prompt_ids)
    return rollout.prompt is not None and rollout.prompt == other.prompt


class _History:
    """Rows that go on with one another: the rows, and what stood between each and the next, as ids and as text."""

    def __init__(self, first: Rollout):
        self.rows = [first]
        self.between: list[Ints] = []
        self.ids = None if first.completion_ids is None else _sequence(first)
        self.text = _whole_text(first.prompt, first.completion)
        self.said: Text | None = first.completion

    def extended(self, row: Rollout) -> bool:
        """Take a row that goes on with this history; False, and nothing changed, for one that does not."""
        if self.ids is not None and row.completion_ids is not None and row.prompt_ids is not None:
            before = len(self.ids)
            if len(row.prompt_ids) < before or not np.array_equal(row.prompt_ids[:before], self.ids):
                return False
            self.between.append(row.prompt_ids[before:])
            self.ids = _sequence(row)
        elif self.ids is not None or row.completion_ids is not None or not _begins(row.prompt, self.text):
            return False
        self.said = _and_then(self.said, _rest(row.prompt, self.text), row.completion)
        self.text = _whole_text(row.prompt, row.completion)
        self.rows.append(row)
        return True

    def difference(self, row: Rollout) -> str:
        """At which token the prompt of a row leaves the ids of this history, as a clause; empty without ids."""
        if self.ids is None or row.prompt_ids is None:
            return ""
        return f" (first difference at token {_common(self.ids, row.prompt_ids):,})"


def _sequence(row: Rollout) -> Ints:
    assert row.completion_ids is not None
    return row.completion_ids if row.prompt_ids is None else np.concatenate([row.prompt_ids, row.completion_ids])


def _common(ids: Ints, other: Ints) -> int:
    """How many first tokens two sequences share."""
    width = min(len(ids), len(other))
    differs = np.flatnonzero(ids[:width] != other[:width])
    return int(differs[0]) if len(differs) else width


def _begins(prompt: Text | None, text: Text | None) -> bool:
    if isinstance(prompt, str) and isinstance(text, str):
        return prompt.startswith(text)
    return isinstance(prompt, list) and isinstance(text, list) and prompt[: len(text)] == text


def _rest(prompt: Text | None, text: Text | None) -> Text | None:
    if isinstance(prompt, str) and isinstance(text, str):
        return prompt[len(text) :]
    return prompt[len(text) :] if isinstance(prompt, list) and isinstance(text, list) else None


def _whole_text(prompt: Text | None, completion: Text | None) -> Text | None:
    if isinstance(prompt, list):
        return [*prompt, *_messages(completion)]
    return prompt + completion if isinstance(prompt, str) and isinstance(completion, str) else None


def _messages(completion: Text | None) -> list[dict[str, object]]:
    if isinstance(completion, str):
        return [{"role": "assistant", "content": completion}]
    return list(completion or [])


def _and_then(said: Text | None, between: Text | None, completion: Text | None) -> Text | None:
    """What was said so far, what stood between, and what came then: a text of texts, else messages."""
    if said is None or completion is None or between is None:
        return None
    if isinstance(said, str) and isinstance(between, str) and isinstance(completion, str):
        return said + between + completion
    return [*_messages(said), *_messages(between), *_messages(completion)]


def _rollout(histories: Sequence[_History], rows: Sequence[Rollout]) -> Rollout:
    """The rollout of a trajectory: its last history, with the others from where they leave it."""
    main = histories[-1]
    whole = _of_history(main)
    first, last = rows[0], rows[-1]
    values = np.array([row.reward for row in rows])
    told = values[np.isfinite(values)]
    shared = len(told) == len(values) and bool((told == told[0]).all())
    names = dict.fromkeys(name for row in rows for name in row.rewards)
    parts = {name: [row.rewards[name] for row in rows if name in row.rewards] for name in names}
    versions = np.array([row.version for row in rows])
    lengths = [row.length for row in rows]
    return replace(
        whole,
        where=first.where,
        reward=math.nan if not len(told) else float(told[0]) if shared else float(told.sum()),
        turn_rewards=whole.turn_rewards if shared or not len(told) else values,
        rewards={name: own[0] if len(own) == len(rows) and len({*own}) == 1 else math.fsum(own)
                 for name, own in parts.items()},
        truncated=last.truncated,
        stop=last.stop,
        failed=next((row.failed for row in rows if row.failed), ""),
        dropped=first.dropped if all(row.dropped for row in rows) else "",
        version=first.version,
        version_by_turn=None if np.isnan(versions).all() else versions,
        anchors=tuple(anchor for row in rows for anchor in row.anchors),
        length=math.fsum(lengths),
        turn=None,
        pieces=len(rows),
        continuations=(*whole.continuations, *(_cut(_of_history(each), whole) for each in histories[:-1])),
    )  # fmt: skip


def _of_history(history: _History) -> Rollout:
    """The rows of one history as one rollout, by their tokens and texts."""
    rows = history.rows
    first = replace(rows[0], completion=history.said)
    if first.completion_ids is None:
        return first
    counts = [0 if row.completion_ids is None else len(row.completion_ids) for row in rows]
    gaps = [len(ids) for ids in history.between]
    pieces = [ids for row, gap in zip(rows, [*history.between, None], strict=True)
              for ids in (row.completion_ids, gap) if ids is not None]  # fmt: skip
    columns: dict[str, Any] = {
        name: _flags(rows, gaps, name, after) for name, after in (("mask", False), ("attended", True))
    }
    columns |= {name: _numbers(rows, counts, gaps, name) for name in _NUMBERS}
    written = _spread([np.ones(count, bool) if row.written is None else row.written
                       for row, count in zip(rows, counts, strict=True)], gaps, False)  # fmt: skip
    return replace(
        first,
        completion_ids=np.concatenate(pieces),
        written=written,
        turns=_turns(rows, counts, gaps),
        advantages=_advantages(rows, counts, gaps),
        loss_weights=None
        if any(row.loss_weights is None for row in rows)
        else _spread([row.loss_weights for row in rows if row.loss_weights is not None], gaps, 0.0),
        last_weights=None
        if any(row.last_weights is None for row in rows)
        else _spread([row.last_weights for row in rows if row.last_weights is not None], gaps, 0.0),
        **columns,
    )


def _spread(columns: Sequence[np.ndarray], gaps: Sequence[int], blank: float) -> np.ndarray:
    """Columns of the rows one behind the other, with `blank` on what stood between them."""
    pieces = [columns[0]]
    for gap, column in zip(gaps, columns[1:], strict=True):
        pieces += [np.full(gap, blank, columns[0].dtype), column]
    return np.concatenate(pieces)


def _flags(rows: Sequence[Rollout], gaps: Sequence[int], name: str, blank: bool) -> Bools | None:
    columns = [getattr(row, name) for row in rows]
    return None if any(column is None for column in columns) else _spread(columns, gaps, blank)


def _numbers(rows: Sequence[Rollout], counts: Sequence[int], gaps: Sequence[int], name: str) -> Floats | None:
    columns = [getattr(row, name) for row in rows]
    if all(column is None for column in columns):
        return None
    filled = [np.full(count, np.nan) if own is None else own for own, count in zip(columns, counts, strict=True)]
    return _spread(filled, gaps, np.nan)


def _turns(rows: Sequence[Rollout], counts: Sequence[int], gaps: Sequence[int]) -> Ints:
    """The turn of each token: of each row its own, one behind the other; what answers a row is of its last turn."""
    made: list[Ints] = []
    before = 0
    for row, count, gap in zip(rows, counts, [*gaps, 0], strict=True):
        own = row.turns
        if own is None:
            own = np.zeros(count, np.int64) if row.written is None else turns_of(row.written)
        last = before + (int(own.max()) if len(own) else 0)
        made += [np.where(own < 0, -1, own + before), np.full(gap, last)]
        before = last + 1
    return np.concatenate(made)


def _advantages(rows: Sequence[Rollout], counts: Sequence[int], gaps: Sequence[int]) -> Floats | None:
    columns = [row.advantages for row in rows if row.advantages is not None]
    if len(columns) < len(rows):
        return None
    if all(len(own) == 1 and own[0] == columns[0][0] for own in columns):
        return columns[0]
    whole = [np.full(count, own[0]) if len(own) == 1 else own for own, count in zip(columns, counts, strict=True)]
    return _spread(whole, gaps, 0.0)


def _cut(own: Rollout, whole: Rollout) -> Rollout:
    """Another history of a trajectory as what follows the tokens that it shares with the rollout `whole`."""
    if own.completion_ids is None or whole.completion_ids is None:
        return own
    start = 0 if whole.prompt_ids is None else len(whole.prompt_ids)
    common = _common(_sequence(own), _sequence(whole))
    if common < start or own.prompt_ids is None or len(own.prompt_ids) != start:
        return own
    shared = common - start
    of_tokens = {
        name: getattr(own, name) for name in ("mask", "attended", "written", "turns", "loss_weights", *_NUMBERS)
    }
    cut: dict[str, Any] = {name: column[shared:] for name, column in of_tokens.items() if column is not None}
    if own.advantages is not None and len(own.advantages) > 1:
        cut["advantages"] = own.advantages[shared:]
    return replace(own, completion_ids=own.completion_ids[shared:], shared=shared, **cut)
