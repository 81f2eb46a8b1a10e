"""The run as a type, whoever recorded it: settings, a table of metrics, groups of rollouts and evaluations.

Readers make a Run (`logs.sources.read` finds the one for a path); diagnosis, facts and reports take it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from grposcope.core import display
from grposcope.core.not_finite import not_finite
from grposcope.core.rollouts import Bools as Bools
from grposcope.core.rollouts import Floats as Floats
from grposcope.core.rollouts import Ints as Ints
from grposcope.core.rollouts import Rollout
from grposcope.core.settings import SettingsAskedFor
from grposcope.core.text import listed, plain, visible

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


@dataclass(frozen=True)
class Meta:
    """Origin and status of a run.

    engine: the trainer, a name of `logs.trainers.TRAINERS`. status: finished, interrupted, failed, running (as the
    trainer last said), or unknown. notes: what the reader had to leave out, join or assume, a sentence each.
    """

    source: Path
    engine: str
    name: str
    status: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(map(plain, self.notes)))


@dataclass(frozen=True)
class Groups:
    """All groups of rollouts of a run as flat arrays; N groups, M rollouts.

    step (N,); problem (N,), an index into `problems`; offsets (N + 1,); rewards (M,): those of group i are
    rewards[offsets[i]:offsets[i + 1]]. truncated (M,) likewise, None if it was not recorded. components: the rewards of
    single functions by name, (M,) each, NaN where a function did not judge; empty where there is one or none is known.
    lengths (M,): of the completions, in tokens, or in characters where the log has texts only; None if not recorded.
    summed: whether `rewards` are plain sums of the components, because the log has no total.
    """

    step: Ints
    problem: Ints
    problems: tuple[str, ...]
    rewards: Floats
    offsets: Ints
    truncated: Bools | None = None
    components: Mapping[str, Floats] = field(default_factory=dict)
    lengths: Floats | None = None
    summed: bool = False

    @staticmethod
    def of(
        steps: Sequence[int],
        problems: Sequence[str],
        rewards: Sequence[Sequence[float] | Floats],
        truncated: Sequence[Sequence[bool]] | None = None,
        components: Sequence[Mapping[str, Sequence[float] | Floats]] | None = None,
        lengths: Sequence[Sequence[float] | Floats] | None = None,
    ) -> Groups:
        """Groups from the step, the id of the problem, the rewards, flags, component rewards and lengths of each."""
        numbers = {name: number for number, name in enumerate(dict.fromkeys(problems))}
        return Groups(
            step=np.array(steps, np.int64),
            problem=np.array([numbers[name] for name in problems], np.int64),
            problems=tuple(numbers),
            rewards=np.concatenate([np.empty(0), *rewards]),
            offsets=np.cumsum([0, *map(len, rewards)], dtype=np.int64),
            truncated=None
            if truncated is None
            else np.concatenate([np.empty(0, bool), *(np.asarray(flags, bool) for flags in truncated)]),
            components=_components(components or (), [len(group) for group in rewards]),
            lengths=np.concatenate([np.asarray(group, np.float64) for group in lengths]) if lengths else None,
        )

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        return plain(f"<Groups: {len(self):,} groups of {len(self.rewards):,} rollouts>")

    @property
    def sizes(self) -> Ints:
        """Rollouts in each group, (N,)."""
        return np.diff(self.offsets)


def _components(parts: Sequence[Mapping[str, Sequence[float] | Floats]], sizes: Sequence[int]) -> dict[str, Floats]:
    """Rewards of each function over all groups, NaN for groups that lack it; empty where fewer than two are known."""
    names = list(dict.fromkeys(name for row in parts for name in row))
    if len(names) < 2:
        return {}
    return {
        name: np.concatenate([
            np.asarray(row[name], np.float64) if name in row else np.full(size, np.nan)
            for row, size in zip(parts, sizes, strict=True)
        ])
        for name in names
    }  # fmt: skip


@dataclass(frozen=True)
class Evaluations:
    """Held-out evaluations, one entry per step and metric (pass@1, pass@2, …, reward, length); all fields (E,).

    se: standard error over n problems, NaN where it is not known. flag: empty, or the reason to doubt the value.
    """

    step: Ints
    metric: tuple[str, ...]
    value: Floats
    se: Floats
    n: Ints
    flag: tuple[str, ...]

    @staticmethod
    def of_rows(rows: Sequence[tuple[int, str, float, float, int, str]]) -> Evaluations:
        """Evaluations from rows (step, metric, value, se, n, flag)."""
        step, metric, value, se, n, flag = zip(*rows, strict=True) if rows else ((),) * 6
        return Evaluations(
            step=np.array(step, np.int64),
            metric=metric,
            value=np.array(value, np.float64),
            se=np.array(se, np.float64),
            n=np.array(n, np.int64),
            flag=flag,
        )

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        names = [visible(name, 60) for name in self.metrics[:3]]
        names += [f"{len(self.metrics) - 3:,} more"] if len(self.metrics) > 3 else []
        return plain(f"<Evaluations: {len(self):,} values of {listed(names) or 'no metric'}>")

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that were evaluated, in order of appearance."""
        return tuple(dict.fromkeys(self.metric))

    def of(self, metric: str) -> Evaluations:
        """The entries of one metric."""
        if self.metrics == (metric,):
            return self
        rows = zip(self.step.tolist(), self.metric, self.value.tolist(), self.se.tolist(), self.n.tolist(), self.flag,
                   strict=True)  # fmt: skip
        return Evaluations.of_rows([row for row in rows if row[1] == metric])


class RolloutFiles(Mapping[int, tuple[Rollout, ...]]):
    """Step -> rollouts, read from the file of the step when they are asked for."""

    def __init__(self, paths: Mapping[int, Path], load: Callable[[Path, int], tuple[Rollout, ...]]):
        """load: the rollouts of a step, given its file."""
        self._paths, self._load = dict(paths), load

    def __getitem__(self, step: int) -> tuple[Rollout, ...]:
        return self._load(self._paths[step], step)

    def __iter__(self) -> Iterator[int]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


@dataclass(frozen=True)
class Segment:
    """The rows that one start of the trainer wrote, up to the next restart.

    table: as in Run, with every row of the segment. place: where in the log it begins, such as "line 8".
    """

    table: Mapping[str, Floats]
    place: str

    def __len__(self) -> int:
        return len(self.table["step"])


@dataclass(frozen=True)
class Reading:
    """How a log was understood, which a dry run shows.

    step: what was taken as the step, where that is no key of its own. rows: how many were used, evaluations too.
    left_out: lines of a text that are no rows, and examples of the first. defects: names of the metrics that this
    version of the engine logs wrongly (`logs.trainers`).
    """

    step: str = ""
    rows: int = 0
    left_out: int = 0
    examples: tuple[str, ...] = ()
    defects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Texts:
    """Values of a key that are not numbers: how many, the line of the first, and the first few verbatim."""

    count: int
    line: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Sparse:
    """Values (K,) of a key that occurs too seldom to have a column of its own, and the row (K,) of each."""

    row: Ints
    value: Floats


@dataclass(frozen=True)
class Run:
    """A run as it was when it was read, also while it is in progress.

    config:   engine, settings (under our names) and logged (the configuration as the trainer logged it); for a record
              of our own, the content of its config.json.
    table:    metric name -> float64 column, all of one length and aligned on table["step"];
              NaN where a value is absent; where it was recorded as NaN or null, WRITTEN_NAN or WRITTEN_NULL of
              `core.files` (`core.not_finite`).
    rollouts: step -> the rollouts sampled then, loaded when asked for.
    phase:    what the trainer last said it was doing; summary: the outcome. None if absent.
    keys:     metric name -> its key in the log, where the two differ.
    segments: one per start of the trainer if it was restarted into the same log, else empty. `table` then
              holds the last attempt of every step, and the segments hold all rows.
    unknown:  key -> what could not become a column: text, or values too sparse for one.
    window:   number of optimiser steps that each row is the mean over; spikes and variances are damped by it.
    folder:   where instruments keep what they measured of the models of the run; None for the logs of others.
    reading:  how the log was understood; None for a record of our own.
    scopes:   environment, domain or agent -> the run of it alone, where a log has several apart; else empty.
    asked:    what a file beside the run says that its settings are; None where none was given.
    memory:   what was worked out of the run before (`once`).
    """

    meta: Meta
    config: Mapping[str, Any]
    table: Mapping[str, Floats]
    groups: Groups
    evaluations: Evaluations
    rollouts: Mapping[int, tuple[Rollout, ...]] = field(default_factory=dict)
    phase: Mapping[str, Any] | None = None
    summary: Mapping[str, Any] | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    segments: tuple[Segment, ...] = ()
    unknown: Mapping[str, Texts | Sparse] = field(default_factory=dict)
    window: int = 1
    folder: Path | None = None
    reading: Reading | None = None
    scopes: Mapping[str, Run] = field(default_factory=dict)
    asked: SettingsAskedFor | None = None
    memory: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __repr__(self) -> str:
        """A line: name, trainer, rows, steps, metrics and how many groups and evaluations there are."""
        rows, step = self.steps, self.table["step"]
        between = f", steps {step[0]:.0f} to {step[-1]:.0f}" if rows else ""
        parts = [f"{visible(self.meta.engine, 40)}, {rows:,} rows{between}, {len(self.table):,} metrics"]
        counts = {"groups": len(self.groups), "evaluations": len(np.unique(self.evaluations.step))}
        parts += [f"{count:,} {name}" for name, count in counts.items() if count]
        return f"<{type(self).__name__} {visible(self.meta.name, 80)!r}: {plain(', '.join(parts))}>"

    def _repr_html_(self) -> str | None:
        """The run as a notebook shows it: its verdict, a few numbers and the curve of its reward."""
        html: str | None = display.drawn("Run", self)
        return html

    def to_pandas(self) -> pd.DataFrame:
        """The metrics as a table of pandas: a row per logged row and a column per metric, `step` as the index.

        UserError where pandas is not installed.
        """
        return display.frame(self.table).set_index("step")

    @property
    def in_turn(self) -> bool:
        """Whether each row is of one of several tasks, the `scopes`, so that the rows have no course together."""
        return len(self.scopes) > 1 and sum(len(run.table["step"]) for run in self.scopes.values()) == self.steps

    @property
    def steps(self) -> int:
        """Number of optimiser steps recorded."""
        return len(self.table["step"])

    @property
    def nonfinite(self) -> dict[str, int]:
        """Number of values that are not finite where one is due, for each metric that has any (`core.not_finite`)."""
        return {name: int(rows.sum()) for name, rows in not_finite(self.table).items()}

    @property
    def resamples_dead(self) -> bool:
        """Whether dead groups were replaced by further prompts."""
        objective = self.config.get("objective")
        return isinstance(objective, Mapping) and bool(objective.get("resample_dead"))

    @property
    def refresh_interval(self) -> int:
        """Optimizer steps on each batch of rollouts, 1 where the record does not say."""
        interval = self.setting("interval")
        return int(interval) if isinstance(interval, int | float) and interval >= 1 else 1

    def setting(self, name: str) -> Any:
        """A setting of the trainer under our name (group, kl, lr, …); None if it is not recorded."""
        return self.config.get("settings", {}).get(name)


def once(make: Callable[[Run], T]) -> Callable[[Run], T]:
    """The function `make` of a run, whose result is kept with the run, so that it is worked out once."""
    name = f"{make.__module__}.{make.__qualname__}"

    @wraps(make)
    def made(run: Run) -> T:
        if name not in run.memory:
            run.memory[name] = make(run)
        value: T = run.memory[name]
        return value

    return made


def no_groups() -> Groups:
    """Groups of a run that recorded none."""
    return Groups.of((), (), ())


def no_evaluations() -> Evaluations:
    """Evaluations of a run that recorded none."""
    return Evaluations.of_rows(())


def labels(runs: Sequence[Run]) -> list[str]:
    """A short name for each run, all different: the folder's, with its parent or a number where need be."""
    names = [visible(run.meta.name, 60) for run in runs]
    if len(set(names)) < len(names):
        names = [visible(f"{run.meta.source.resolve().parent.name}/{run.meta.name}", 80) for run in runs]
    return [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names, 1)]
