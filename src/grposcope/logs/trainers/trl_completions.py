"""Groups of rollouts from TRL's completions/completions_NNNNN.parquet (log_completions=True).

A row per completion, a column per reward function, and `advantage`; the completions of a prompt stand together. TRL
writes the file after it logged the step, with the last batch that was generated: with logging_steps > 1 earlier batches
are missing, and on evaluation steps the file holds the evaluation instead. The weights of the reward functions are not
stored. Where they are not known, the reward is the plain sum, which is checked against the order of the advantages.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import is_whole
from grposcope.core.rollouts import Floats, Rollout, Rollouts
from grposcope.core.run import Groups, RolloutFiles
from grposcope.logs.columns import RawLog, log_of_groups
from grposcope.logs.formats import parquet
from grposcope.logs.formats.kind import LogKind
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.hints import Hints
from grposcope.logs.logged_rollouts import agree


def _number_columns(rows: pa.Table, without: Sequence[str]) -> dict[str, Floats]:
    """Columns of numbers as float64, NaN for null; those named in `without` and all others are left out."""
    import pyarrow as pa

    return {
        name: np.asarray(rows[name].cast(pa.float64(), safe=False).to_numpy(), np.float64)
        for name in rows.column_names
        if name not in without and (pa.types.is_floating(rows[name].type) or pa.types.is_integer(rows[name].type))
    }


if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 60
"""Number of characters of a prompt, its last ones, that are kept behind its hash as the name of the problem."""

_NAME = re.compile(r"completions_(\d{1,15})\.parquet")
_NO_REWARDS = ("step", "prompt", "completion", "advantage")
_DECIMAL = ("float", "double", "halffloat")


def file_of(output: Path, step: int) -> Path:
    """Path to which TRL writes the completions that it logged at `step`."""
    return output / "completions" / f"completions_{step:05d}.parquet"


def files(folder: Path) -> list[Path]:
    """The parquet files of completions in a folder or in its completions/, in the order of their steps."""
    for folder_of_rows in (folder, folder / "completions"):
        steps = {
            int(match[1]): path for path in folder_of_rows.glob("*.parquet") if (match := _NAME.fullmatch(path.name))
        }
        if steps:
            return [steps[step] for step in sorted(steps)]
    return []


def by_step(output: Path, components: Collection[str] = ()) -> RolloutFiles:
    """Step -> rollouts that TRL wrote below an output folder, loaded when asked for; then UserError for a file that
    cannot be read. components: as in `groups`."""
    paths = {step_of(path): path for path in files(output)}
    return RolloutFiles(paths, lambda path, _: _rollouts(path, components))


def step_of(path: Path) -> int:
    """The step in the name of a file of completions; 0 for any other name."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def _read(file: LogFile, hints: Hints) -> RawLog:
    """A folder of completions, or one file of them, without metrics: the metrics are made of the groups."""
    path = file.path
    paths = files(path) if path.is_dir() else [path]
    all_groups, rollouts, notes = groups(paths, hints.settings)
    if not len(all_groups) and notes:
        raise UserError(notes[0])
    return log_of_groups(path, "trl", all_groups, rollouts, notes)


def groups(
    paths: Sequence[Path], settings: Mapping[str, Any], components: Collection[str] = ()
) -> tuple[Groups, Mapping[int, tuple[Rollout, ...]], list[str]]:
    """The groups of the files, the rollouts by step (loaded when asked for), and notes.

    components: names of the reward functions, where they are known; else every column of decimal numbers is taken as
    one. A file that cannot be read is left out with a note.
    """
    steps: list[int] = []
    problems: list[str] = []
    rewards: list[Floats] = []
    of_functions: list[dict[str, Floats]] = []
    notes: list[str] = []
    size = settings.get("group")
    where: dict[int, Path] = {}
    used: dict[str, None] = {}
    doubtful = 0
    for path in paths:
        try:
            table = _table(path)
        except UserError as error:
            notes.append(str(error))
            continue
        values, parts = _rewards(table, components)
        used.update(dict.fromkeys(parts))
        advantage = _number_columns(table, without=()).get("advantage")
        functions = _number_columns(table, without=_NO_REWARDS)
        at = _step_of(table, path)
        where[at] = path
        texts = [_text(prompt) for prompt in table["prompt"].to_pylist()]
        begin = 0
        for text, same in groupby(texts):
            whole = len(list(same))
            each = size if isinstance(size, int) and size > 0 and whole % size == 0 else whole
            for start in range(begin, begin + whole, each):
                chunk = values[start : start + each]
                steps.append(at)
                problems.append(sys.intern(text))
                rewards.append(chunk)
                of_functions.append({name: functions[name][start : start + each] for name in parts})
                if advantage is not None and not agree(chunk, advantage[start : start + each]):
                    doubtful += 1
            begin += whole
    if len(used) > 1:
        notes.append(f"the reward of a rollout is taken to be the plain sum of {', '.join(used)}")
    if len(used) > 1 and doubtful:
        notes.append(
            f"in {doubtful} of {len(rewards)} groups the plain sum of the reward functions does not order the rollouts "
            "as their advantages do: they are weighted, or the advantages are others; the files have no weights"
        )
    sizes = {len(group) for group in rewards}
    if len(sizes) > 1:
        notes.append(
            f"groups (neighbouring rows with the same prompt) have {min(sizes)} to {max(sizes)} rollouts; give the "
            "group "
            "size if prompts repeat"
        )
    groups_of_file = replace(Groups.of(steps, problems, rewards, components=of_functions), summed=len(used) > 1)
    return groups_of_file, RolloutFiles(where, lambda path, _: _rollouts(path, components)), notes


def logged(path: Path, components: Collection[str] = ()) -> Rollouts:
    """The rollouts in a file as they were logged. components: as in `groups`. UserError where it cannot be read."""
    return Rollouts(tuple(rollouts(path, components)), "trl", path)


def rollouts(path: Path, components: Collection[str] = ()) -> Iterator[Rollout]:
    """The rollouts in a file, in its order; components: as in `groups`. UserError where it cannot be read."""
    table = _table(path)
    step = _step_of(table, path)
    functions = _functions(table, components)
    advantages = _number_columns(table, without=()).get("advantage")
    texts = zip(table["prompt"].to_pylist(), table["completion"].to_pylist(), strict=True)
    for index, (prompt, completion) in enumerate(texts):
        said = _message_list(prompt)
        yield Rollout(
            where=f"{path}, row {index + 1}",
            step=step,
            group=_text(said),
            prompt=said,
            completion=_message_list(completion),
            rewards={name: float(column[index]) for name, column in functions.items()},
            advantages=None if advantages is None else advantages[index : index + 1],
        )


def _message_list(value: Any) -> Any:
    """A conversation without the fields that Parquet fills with null because another message has them."""
    if isinstance(value, list) and all(isinstance(piece, dict) for piece in value):
        return [{k: v for k, v in piece.items() if v is not None} for piece in value]
    return _text(value)


def group_rows(
    path: Path, step: int, functions: Sequence[str], weights: Sequence[float] | None, size: int
) -> list[dict[str, Any]]:
    """Rows for groups.jsonl of our record. weights: of the reward `functions`, None for ones; size: rollouts per group.

    A rollout's reward is the weighted sum of its rewards, absent ones left out as in TRL; NaN where all are absent.
    Of several functions, their own rewards are in the rows too.
    UserError where the file cannot be read, lacks a reward function, or does not hold whole groups of `size`.
    """
    if not functions:
        raise UserError(f"{path} holds no reward")
    table = parquet.table(path, ["prompt", *functions])
    parts = np.array([table[name].to_numpy() for name in functions], np.float64)
    scale = np.ones(len(functions)) if weights is None else np.asarray(weights, np.float64)
    rewards = _weighted_sum(parts, scale)
    prompts = [problem_name(prompt) for prompt in table["prompt"].to_pylist()]
    if size < 1 or len(prompts) % size:
        raise UserError(f"{path} has {len(prompts)} rollouts, which do not divide into groups of {size}")
    rows: list[dict[str, Any]] = []
    for begin in range(0, len(prompts), size):
        if len(set(prompts[begin : begin + size])) > 1:
            raise UserError(f"{path} mixes prompts within groups of {size}")
        row = {"step": step, "problem": prompts[begin], "rewards": rewards[begin : begin + size].tolist()}
        if len(functions) > 1:
            own = parts[:, begin : begin + size].tolist()
            row["components"] = dict(zip(functions, own, strict=True))
        rows.append(row)
    return rows


def problem_name(prompt: Any) -> str:
    """A short name of a prompt, text or conversation, that no other prompt is likely to have: its hash and its end."""
    text = _text(prompt)
    end = " ".join(text[-2 * SHOWN :].split())[-SHOWN:]
    return f"{hashlib.sha256(text.encode()).hexdigest()[:8]} {end}"


def _table(path: Path) -> pa.Table:
    """The content of a file; UserError where it cannot be read, lacks the texts, or its steps are no numbers."""
    table = parquet.table(path)
    for name in ("prompt", "completion"):
        if name not in table.column_names:
            raise UserError(f"{path} lacks the column {name!r}; it was left out")
    _step_of(table, path)
    return table


def _step_of(table: pa.Table, path: Path) -> int:
    """The step in the column of that name, text in TRL up to 0.26, else that in the file's name."""
    if "step" not in table.column_names or not table.num_rows:
        return step_of(path)
    step = table["step"][0].as_py()
    if isinstance(step, str) and re.fullmatch(r"\d{1,15}", step):
        return int(step)
    if not is_whole(step):
        raise UserError(f"{path}: its step is not a whole number; the file was left out")
    return int(step)


def _rollouts(path: Path, components: Collection[str]) -> tuple[Rollout, ...]:
    """The rollouts in a file, texts only, without tokens."""
    table = _table(path)
    rewards, names = _rewards(table, components)
    columns = _number_columns(table, without=_NO_REWARDS)
    advantages = _number_columns(table, without=()).get("advantage")
    made, count, before = [], 0, None
    for i, (prompt, answer) in enumerate(
        zip(table["prompt"].to_pylist(), table["completion"].to_pylist(), strict=True)
    ):
        count = count + 1 if prompt == before else 0
        before = prompt
        text = _text(prompt)
        parts = {name: float(columns[name][i]) for name in names} if len(names) > 1 else {}
        said = Rollout(completion=_message_list(answer))
        made.append(
            Rollout(
                turns_taken=said.turn_count, calls_made=said.calls,
                where=f"{path}, row {i + 1}", problem=text, group=text, prompt=text, index=count,
                completion=_text(answer), reward=float(rewards[i]), rewards=parts,
                advantages=None if advantages is None else advantages[i : i + 1],
            )
        )  # fmt: skip
    return tuple(made)


def _rewards(table: pa.Table, components: Collection[str]) -> tuple[Floats, list[str]]:
    """Sum of the columns of rewards, NaN where all are absent, and the names of these columns."""
    parts = _functions(table, components)
    if not parts:
        return np.full(table.num_rows, np.nan), []
    stacked = np.array(list(parts.values()), np.float64)
    return _weighted_sum(stacked, np.ones(len(parts))), list(parts)


def _functions(table: pa.Table, components: Collection[str]) -> dict[str, Floats]:
    """Columns of the reward functions: those of `components`, else those of decimal numbers, as TRL writes rewards;
    whole numbers, such as an answer that a function logs (`log_extra`), are some only where there are no others."""
    columns = _number_columns(table, without=_NO_REWARDS)
    if components:
        return {name: column for name, column in columns.items() if name in components}
    decimal = {name: column for name, column in columns.items() if str(table[name].type) in _DECIMAL}
    return decimal or columns


def _weighted_sum(parts: Floats, weights: Floats) -> Floats:
    """Σ weights (K,) × parts (K, N) over the parts that are present; NaN where all are absent."""
    total: Floats = np.where(np.isnan(parts).all(0), np.nan, np.nansum(parts * weights[:, None], 0))
    return total


def _text(prompt: Any) -> str:
    """A prompt as text, also where it is a conversation."""
    if isinstance(prompt, list):
        return "\n".join(
            str(piece.get("content", piece)) if isinstance(piece, dict) else str(piece) for piece in prompt
        )
    return str(prompt)


KIND = LogKind(
    _read,
    magic=parquet.MAGIC,
    columns=frozenset(("prompt", "completion", "advantage")),
    folder=lambda folder: bool(files(folder)),
)
