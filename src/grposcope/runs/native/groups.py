"""Reads groups.jsonl of our record: a line per group of rollouts, in bulk where our writer wrote them all alike.

    {"step": 1, "problem": "train-7", "rewards": [0.0, 1.0], "truncated": [false, true]}

The literals are proved as in `layout`. What follows the problem is the same text in many lines, as rewards are few
numbers in some order, so each such text is parsed once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from grposcope.runs.formats import json_templates
from grposcope.runs.native import lines
from grposcope.runs.native.lines import Lines
from grposcope.runs.run import Bools, Floats, Groups, Ints

_LITERALS = (b'{"step": ', b', "problem": "', b'", "rewards": ', b"}\n")


def read(found: Lines) -> Groups:
    """The groups; UserError for a line that is broken."""
    fast = alike(found.data)
    return by_row(found) if fast is None else fast


def alike(data: bytes) -> Groups | None:
    """Groups of lines as our writer writes them; None if there are others, such as ids with quotes in them."""
    if not data or b"\\" in data:
        return None
    seen = json_templates.marks(np.frombuffer(data, np.uint8))
    if not np.isin(seen.inside, (8, 10)).all():
        return None
    places = json_templates.edges(_LITERALS, (0, 0, 0), seen, np.arange(len(seen.ends)))
    if not json_templates.fit(data, places, _LITERALS).all():
        return None
    cut, first = json_templates.pieces(data, places), np.arange(0, places.size, places.shape[1])
    steps, ids, tails = (json_templates.taken(cut, first + k) for k in (1, 3, 5))
    try:
        step = steps.cast(pa.large_string()).cast(pa.int64()).to_numpy()
        names, patterns = ids.dictionary_encode(), tails.dictionary_encode()
        problems = tuple(name.decode() for name in names.dictionary.to_pylist())
        rows = [json.loads(b'{"rewards": ' + tail + b"}") for tail in patterns.dictionary.to_pylist()]
        kinds = _ragged([_rewards(row) for row in rows])
    except (ValueError, TypeError):  # pa.ArrowInvalid among them
        return None
    rewards, offsets, truncated = _repeated(*kinds, patterns.indices.to_numpy().astype(np.int64))
    return Groups(
        step=step,
        problem=names.indices.to_numpy().astype(np.int64),
        problems=problems,
        rewards=rewards,
        offsets=offsets,
        truncated=truncated,
    )


def _repeated(
    rewards: Floats, offsets: Ints, truncated: Bools | None, which: Ints
) -> tuple[Floats, Ints, Bools | None]:
    """The ragged rows `which`, in that order and as often as they occur in it."""
    sizes = np.diff(offsets)
    if (sizes == sizes[0]).all():  # much the fastest, and what a run has unless its settings changed
        table = rewards.reshape(len(sizes), -1)
        flags = None if truncated is None else truncated.reshape(len(sizes), -1)[which].ravel()
        return table[which].ravel(), sizes[0] * np.arange(len(which) + 1), flags
    ends = np.append(0, np.cumsum(sizes[which]))
    take = np.repeat(offsets[which] - ends[:-1], sizes[which]) + np.arange(ends[-1])
    return rewards[take], ends, None if truncated is None else truncated[take]


def by_row(found: Lines) -> Groups:
    """Any groups, line by line; UserError for a line that is broken."""
    steps, problems, ragged = [], [], []
    names: dict[str, int] = {}
    for number, row in lines.rows(found):
        if not isinstance(row.get("step"), int) or not isinstance(row.get("problem"), str):
            raise lines.broken(found, number, "no step number or no problem id")
        try:
            ragged.append(_rewards(row))
        except (TypeError, ValueError):
            raise lines.broken(found, number, "rewards or truncated are not lists of one length") from None
        steps.append(row["step"])
        problems.append(names.setdefault(row["problem"], len(names)))
    rewards, offsets, truncated = _ragged(ragged)
    return Groups(
        step=np.array(steps, np.int64),
        problem=np.array(problems, np.int64),
        problems=tuple(names),
        rewards=rewards,
        offsets=offsets,
        truncated=truncated,
    )


def _rewards(row: Mapping[str, Any]) -> tuple[list[float], list[bool] | None]:
    """Rewards and flags of one line; ValueError or TypeError if they are not as they should be."""
    rewards = [lines.number(value) for value in row["rewards"]] if "rewards" in row else [None]
    truncated = row.get("truncated")
    if None in rewards or (truncated is not None and len(truncated) != len(rewards)):
        raise ValueError
    return rewards, truncated  # type: ignore[return-value]


def _ragged(parts: list[tuple[list[float], list[bool] | None]]) -> tuple[Floats, Ints, Bools | None]:
    """Lists of lists as flat arrays: rewards, offsets, and truncated or None where a list lacks it."""
    offsets = np.append(0, np.cumsum([len(rewards) for rewards, _ in parts], dtype=np.int64)).astype(np.int64)
    rewards = np.array([value for part, _ in parts for value in part], np.float64)
    flags = [part for _, part in parts if part is not None]
    if len(flags) < len(parts) or not parts:
        return rewards, offsets, None
    return rewards, offsets, np.array([value for part in flags for value in part], bool)
