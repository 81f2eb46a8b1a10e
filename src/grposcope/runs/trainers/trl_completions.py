"""Groups of rollouts from TRL's completions/completions_NNNNN.parquet (log_completions=True).

A row per completion, a column per reward function, `advantage`; the completions of a prompt stand
together. The weights of the reward functions are not stored: the reward is their plain sum, which is
checked against the signs of the advantages. With logging_steps > 1 only the last generation batch before a
log is there, and on evaluation steps the file holds the evaluation instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from grposcope.errors import UserError
from grposcope.runs.columns import Frame
from grposcope.runs.normalize import Log, assemble
from grposcope.runs.run import Floats, Groups, Rollout, Run
from grposcope.ustat import dead_groups

_NAME = re.compile(r"completions_(\d{1,15})\.parquet")
_OTHER = ("step", "prompt", "completion", "advantage")


def files(folder: Path) -> list[Path]:
    """The parquet files of completions in a folder or in its completions/, in order of steps."""
    for place in (folder, folder / "completions"):
        found = {int(match[1]): path for path in place.glob("*.parquet") if (match := _NAME.fullmatch(path.name))}
        if found:
            return [found[step] for step in sorted(found)]
    return []


def recognises(path: Path) -> bool:
    """Whether a parquet file has the columns of TRL's completions."""
    try:
        names = set(pyarrow.parquet.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return False
    return {"prompt", "completion", "advantage"} <= names


def read(
    folder: Path, given: Mapping[str, Any], components: Collection[str] = ()
) -> tuple[Groups, Mapping[int, tuple[Rollout, ...]], list[str]]:
    """Groups, the rollouts by step (loaded when asked for), and notes.

    components: the reward functions, where they are known; else every column of numbers is taken as one.
    """
    return _read(files(folder), given, components)


def read_alone(place: Path, given: Mapping[str, Any]) -> Run:
    """A folder of completions, or one file of them, without the metrics: a row per step made from the groups."""
    found = files(place) if place.is_dir() else [place]
    groups, rollouts, notes = _read(found, given, ())
    return from_groups(place, "trl", groups, rollouts, notes, given)


def from_groups(
    place: Path,
    engine: str,
    groups: Groups,
    rollouts: Mapping[int, tuple[Rollout, ...]],
    notes: list[str],
    given: Mapping[str, Any],
) -> Run:
    """A run whose table is made of its groups: reward, reward_std within groups (ddof 1), dead_fraction."""
    if not len(groups):
        raise UserError(f"{place}: no groups of rollouts in it; give the folder that the trainer writes them to")
    frame, sizes = Frame(), groups.sizes
    starts = groups.offsets[:-1]
    mean = np.add.reduceat(groups.rewards, starts) / sizes
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(np.add.reduceat((groups.rewards - np.repeat(mean, sizes)) ** 2, starts) / (sizes - 1))
    dead = dead_groups.is_dead_ragged(groups.rewards, groups.offsets)
    for step in np.unique(groups.step):
        here = groups.step == step
        frame.row(
            int(step),
            {
                "step": int(step),
                "reward": float(np.average(mean[here], weights=sizes[here])),
                "reward_std": float(np.mean(spread[here][sizes[here] > 1])) if (sizes[here] > 1).any() else np.nan,
                "dead_fraction": float(dead[here].mean()),
                "rollouts_trained": int(sizes[here].sum()),
            },
        )
    notes = [*notes, "the metrics are made of the rollouts, since no others are here"]
    log = Log(place, frame, "grposcope", notes=notes, given=given, groups=groups, rollouts=rollouts, place="step")
    run = assemble(log)
    same = set(sizes.tolist())
    settings = {**({"group": same.pop()} if len(same) == 1 else {}), **run.config["settings"]}
    return replace(run, meta=replace(run.meta, engine=engine), config={"engine": engine, "settings": settings})


class Files(Mapping[int, tuple[Rollout, ...]]):
    """Step -> rollouts, read from its file when asked for; tokens and log-probabilities are not recorded."""

    def __init__(self, paths: dict[int, Path], components: Collection[str] = ()):
        self._paths, self._components = paths, components

    def __getitem__(self, step: int) -> tuple[Rollout, ...]:
        table = _table(self._paths[step])
        rewards = _rewards(table, self._components)[0]
        prompts, answers = table["prompt"].to_pylist(), table["completion"].to_pylist()
        found, count, before = [], 0, None
        for prompt, answer, reward in zip(prompts, answers, rewards, strict=True):
            count = count + 1 if prompt == before else 0
            before = prompt
            text = _text(prompt)
            none = np.empty(0)
            found.append(Rollout(text, text, count, _text(answer), float(reward), False, (), none, none))
        return tuple(found)

    def __iter__(self) -> Iterator[int]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def _read(
    paths: list[Path], given: Mapping[str, Any], components: Collection[str]
) -> tuple[Groups, Mapping[int, tuple[Rollout, ...]], list[str]]:
    names: dict[str, int] = {}
    steps: list[int] = []
    problems: list[int] = []
    sizes: list[int] = []
    rewards: list[Floats] = []
    notes: list[str] = []
    size = given.get("group")
    where: dict[int, Path] = {}
    used: dict[str, None] = {}
    doubtful = 0
    for path in paths:
        try:
            table = _table(path)
        except UserError as error:
            if len(paths) == 1:
                raise
            notes.append(str(error))
            continue
        values, parts = _rewards(table, components)
        used.update(dict.fromkeys(parts))
        advantage = np.array(table["advantage"].to_pylist(), np.float64) if "advantage" in table.column_names else None
        at = int(table["step"][0].as_py()) if "step" in table.column_names and table.num_rows else _step(path)
        where[at] = path
        texts = [_text(prompt) for prompt in table["prompt"].to_pylist()]
        begin = 0
        for text, run in groupby(texts):
            whole = len(list(run))
            each = size if isinstance(size, int) and size > 0 and whole % size == 0 else whole
            for start in range(begin, begin + whole, each):
                part = values[start : start + each]
                steps.append(at)
                problems.append(names.setdefault(text, len(names)))
                sizes.append(len(part))
                rewards.append(part)
                if advantage is not None and not _agree(part, advantage[start : start + each]):
                    doubtful += 1
            begin += whole
    if len(used) > 1:
        notes.append(f"the reward of a rollout is the plain sum of {', '.join(used)}")
    if len(used) > 1 and doubtful:
        notes.append(
            f"in {doubtful} of {len(sizes)} groups the plain sum of the reward functions does not order the rollouts "
            "as their advantages do, so they are weighted; the weights are not stored"
        )
    if len(set(sizes)) > 1:
        notes.append(
            f"groups, taken as neighbours with one prompt, have {min(sizes)} to {max(sizes)} rollouts; give the group "
            "size if prompts repeat"
        )
    groups = Groups(
        step=np.array(steps, np.int64),
        problem=np.array(problems, np.int64),
        problems=tuple(names),
        rewards=np.concatenate(rewards) if rewards else np.empty(0),
        offsets=np.append(0, np.cumsum(sizes)).astype(np.int64),
    )
    return groups, Files(where, components), notes


def _agree(rewards: Floats, advantages: Floats) -> bool:
    """Whether a group's advantages order it as its rewards do."""
    order = np.argsort(rewards, kind="stable")
    ranked = advantages[order][np.isfinite(rewards[order])]
    rises = np.diff(rewards[order][np.isfinite(rewards[order])]) > 1e-9
    return bool((np.diff(ranked)[rises] > -1e-6).all())


def _table(path: Path) -> pa.Table:
    try:
        with pyarrow.parquet.ParquetFile(path) as file:  # one small file: threads would only cost
            return file.read(use_threads=False)
    except (OSError, pa.ArrowException) as error:
        first = (str(error).splitlines() or ["unknown"])[0]
        raise UserError(f"{path}: cannot be read ({first}); delete it or copy it again") from None


def _rewards(table: pa.Table, components: Collection[str]) -> tuple[Floats, list[str]]:
    """Sum of the reward columns, NaN where all are absent, and their names."""
    names = [
        name
        for name in table.column_names
        if name not in _OTHER
        and (not components or name in components)
        and (pa.types.is_floating(table[name].type) or pa.types.is_integer(table[name].type))
    ]
    if not names:
        return np.full(table.num_rows, np.nan), []
    stacked = np.array([table[name].cast(pa.float64(), safe=False).to_numpy() for name in names], np.float64)
    return np.where(np.isnan(stacked).all(0), np.nan, np.nansum(stacked, 0)), names


def _text(prompt: Any) -> str:
    """A prompt as text, also where it is a conversation."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list):
        return "\n".join(str(part.get("content", part)) if isinstance(part, dict) else str(part) for part in prompt)
    return str(prompt)


def _step(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else 0
