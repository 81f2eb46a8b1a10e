"""rollouts/step-NNNNNN.parquet of a record: what was written at some steps, token by token.

pyarrow is imported when a file is read or written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Floats, Rollout
from grposcope.core.run import RolloutFiles
from grposcope.logs.formats import parquet

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "rollouts"

REMEDY = "restore it from a copy, or delete it (the step is then shown without rollouts)"

_MAY_LACK = (
    "reward", "logp", "entropy", "weight", "parent", "shared", "continuations", "trainer_logp", "version", "stop",
    "turns", "written", "turn_rewards", "states",
)  # fmt: skip
_NAME = re.compile(r"step-(\d{1,15})\.parquet")


def write(file: IO[bytes], step: int, sampled: Sequence[Rollout]) -> None:
    """Write the rollouts of a step."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"step": step, **_columns(rollout)} for rollout in sampled]
    schema = pa.schema([("step", pa.int32()), *_kinds().items()])
    pq.write_table(pa.Table.from_pylist(rows, schema), file, compression="zstd")


def of_run(run: Path) -> RolloutFiles:
    """The rollouts in the folder of a run by step, each read when it is asked for; then UserError as `read`."""
    return RolloutFiles(files(run), lambda path, _: read(path))


def files(run: Path) -> dict[int, Path]:
    """Step -> file of the rollouts in the folder of a run."""
    matches = ((_NAME.fullmatch(path.name), path) for path in sorted((run / FOLDER).glob("step-*.parquet")))
    return {int(match[1]): path for match, path in matches if match}


def read(path: Path) -> tuple[Rollout, ...]:
    """The rollouts in a file; UserError where it is damaged or its columns are not those that `write` makes."""
    table = parquet.table(path)  # says so where pyarrow is missing
    import pyarrow as pa

    columns = {}
    for name, kind in _kinds().items():
        if name not in table.column_names:
            if name in _MAY_LACK:
                continue
            raise UserError(f"{path} lacks the column {name!r}; {REMEDY}")
        try:
            column = table[name].cast(kind)
        except pa.ArrowException:
            raise UserError(f"{path}: its column {name!r} holds {table[name].type}, not {kind}; {REMEDY}") from None
        inner = column.combine_chunks().flatten() if name == "tokens" else column
        if name not in _MAY_LACK and column.null_count + inner.null_count:
            raise UserError(f"{path}: its column {name!r} has gaps; {REMEDY}")
        columns[name] = column
    match = _NAME.fullmatch(path.name)
    step = int(match[1]) if match else 0
    rows = pa.table(columns).to_pylist()
    groups = _groups(rows)
    return tuple(
        _rollout(row, step, group, f"{path}, row {number}")
        for number, (row, group) in enumerate(zip(rows, groups, strict=True), 1)
    )


def _groups(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The group of each row: its problem, with a number where a step drew it for several groups.

    Rows of a group follow each other, and their places in it rise.
    """
    groups: list[str] = []
    numbers: dict[str, int] = {}
    previous: Mapping[str, Any] | None = None
    for row in rows:
        problem = str(row["problem"])
        if previous is None or problem != previous["problem"] or row["rollout"] <= previous["rollout"]:
            numbers[problem] = numbers.get(problem, -1) + 1
        groups.append(f"{problem}\x1f{numbers[problem]}" if numbers[problem] else problem)
        previous = row
    return groups


def _kinds() -> dict[str, pa.DataType]:
    """Type of each column but for the step."""
    import pyarrow as pa

    floats = pa.list_(pa.float32())
    continued = pa.struct([
        ("place", pa.int32()), ("text", pa.string()), ("reward", pa.float64()), ("tokens", pa.int32())
    ])  # fmt: skip
    return {
        "problem": pa.string(), "prompt": pa.string(), "rollout": pa.int16(), "completion": pa.string(),
        "reward": pa.float64(), "truncated": pa.bool_(), "tokens": pa.list_(pa.string()), "logp": floats,
        "entropy": floats, "weight": floats, "parent": pa.int16(), "shared": pa.int32(),
        "continuations": pa.list_(continued), "trainer_logp": floats, "version": pa.int32(), "stop": pa.string(),
        "turns": pa.list_(pa.int16()), "written": pa.list_(pa.bool_()), "turn_rewards": pa.list_(pa.float64()),
        "states": pa.list_(pa.string()),
    }  # fmt: skip


def _columns(rollout: Rollout) -> dict[str, Any]:
    """A rollout in the columns of a file."""
    return {
        "problem": rollout.problem, "prompt": rollout.prompt, "rollout": rollout.index,
        "completion": rollout.completion, "reward": rollout.reward, "truncated": rollout.truncated,
        "tokens": rollout.tokens, "logp": rollout.sampler, "entropy": rollout.entropy, "weight": rollout.loss_weights,
        "parent": rollout.parent, "shared": rollout.shared, "trainer_logp": rollout.current,
        "version": None if math.isnan(rollout.version) else int(rollout.version),
        "stop": rollout.stop or None, "turns": rollout.turns, "written": rollout.written,
        "turn_rewards": rollout.turn_rewards, "states": rollout.anchors or None,
        "continuations": [
            {"place": own.shared, "text": own.completion, "reward": own.reward, "tokens": int(own.length)}
            for own in rollout.continuations
        ],
    }  # fmt: skip


def _rollout(row: Mapping[str, Any], step: int, group: str, where: str) -> Rollout:
    def numbers(name: str) -> Floats | None:
        return None if row.get(name) is None else np.asarray(row[name], np.float64)

    absent = np.full(len(row["tokens"]), np.nan)
    logp, entropy = numbers("logp"), numbers("entropy")
    return Rollout(
        where=where,
        step=step,
        group=group,
        named=True,
        problem=row["problem"],
        prompt=row["prompt"],
        index=row["rollout"],
        completion=row["completion"],
        reward=math.nan if row.get("reward") is None else row["reward"],
        truncated=row["truncated"],
        tokens=tuple(row["tokens"]),
        sampler=absent if logp is None else logp,
        entropy=absent if entropy is None else entropy,
        loss_weights=numbers("weight"),
        parent=row.get("parent"),
        shared=row.get("shared") or 0,
        continuations=tuple(map(_continuation, row.get("continuations") or ())),
        current=numbers("trainer_logp"),
        version=math.nan if row.get("version") is None else float(row["version"]),
        stop=row.get("stop") or "",
        turns=None if row.get("turns") is None else np.asarray(row["turns"], np.int64),
        written=None if row.get("written") is None else np.asarray(row["written"], bool),
        turn_rewards=numbers("turn_rewards"),
        anchors=tuple(row.get("states") or ()),
    )


def _continuation(row: Mapping[str, Any]) -> Rollout:
    """What was written from a place inside a rollout, and the reward of the whole."""
    return Rollout(shared=row["place"], completion=row["text"], reward=row["reward"], length=float(row["tokens"]))
