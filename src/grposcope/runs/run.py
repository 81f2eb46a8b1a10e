"""A run as tables, whoever recorded it, and `read`, which finds the reader for a path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.errors import UserError
from grposcope.formatting import visible
from grposcope.runs.probe import ProbeRecord

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Meta:
    """Where a run comes from and how far it got.

    status: finished, interrupted, failed, running (as it last said), or unknown.
    notes: what the reader had to leave out or could not read, a sentence each.
    """

    source: Path
    engine: str
    name: str
    status: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Groups:
    """All groups of rollouts, a ragged table in flat arrays; N groups, M rollouts.

    step (N,), problem (N,) as indices into `problems`; the rewards of group i are
    rewards[offsets[i]:offsets[i + 1]], and likewise truncated, which is None if it was not recorded.
    """

    step: Ints
    problem: Ints
    problems: tuple[str, ...]
    rewards: Floats
    offsets: Ints
    truncated: Bools | None = None

    def __len__(self) -> int:
        return len(self.step)

    @property
    def sizes(self) -> Ints:
        """Rollouts in each group, (N,)."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Evaluations:
    """Held-out evaluations, a row per step and metric (pass@1, pass@2, …, reward, length), all (E,).

    se is the standard error over n problems; NaN where there is none.
    """

    step: Ints
    metric: tuple[str, ...]
    value: Floats
    se: Floats
    n: Ints
    flag: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.step)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names that occur, in order of appearance."""
        return tuple(dict.fromkeys(self.metric))

    def of(self, metric: str) -> Evaluations:
        """The rows of one metric."""
        if self.metrics == (metric,):
            return self
        rows = [i for i, name in enumerate(self.metric) if name == metric]
        return Evaluations(
            self.step[rows],
            tuple(self.metric[i] for i in rows),
            self.value[rows],
            self.se[rows],
            self.n[rows],
            tuple(self.flag[i] for i in rows),
        )


@dataclass(frozen=True)
class Rollout:
    """One completion with what the policy thought of each of its tokens.

    rollout: index in its group. tokens (T,) as text; logp and entropy (T,) in nats when it was
    sampled; weight (T,) = ∂L/∂log π, None if it was not recorded.
    """

    problem: str
    prompt: str
    rollout: int
    completion: str
    reward: float
    truncated: bool
    tokens: tuple[str, ...]
    logp: Floats
    entropy: Floats
    weight: Floats | None = None


@dataclass(frozen=True)
class Segment:
    """The rows that one start of the trainer wrote, before the next restart.

    table as in Run, with every row of the segment. place: where in the source it begins, such as "line 8".
    """

    table: Mapping[str, Floats]
    place: str

    def __len__(self) -> int:
        return len(self.table["step"])


@dataclass(frozen=True)
class Texts:
    """Values of a key that are no numbers: how many, the line of the first, and the first few verbatim."""

    count: int
    line: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Sparse:
    """Values of a key that occurs too seldom to have a column of its own, (K,), and the rows they are of, (K,)."""

    row: Ints
    value: Floats


@dataclass(frozen=True)
class Run:
    """A run, read once; a run in progress is as it was at that moment.

    table:    metric name -> float64 column, all of one length and aligned on table["step"];
              NaN where a value is absent or was recorded as NaN.
    rollouts: step -> the rollouts sampled then, loaded when asked for.
    phase, summary: what the trainer last said it was doing, and its outcome; None if absent.
    keys:     column -> the key it has in the log, where that differs; all other columns keep theirs.
    segments: one per start of the trainer if it was restarted into the same log, else empty. `table` then
              holds the last attempt of every step, and the segments hold all rows.
    unknown:  key -> what could not become a column: text, or values too sparse for one.
    window:   optimiser steps that each row is the mean over; spikes and variances are damped accordingly.
    probes:   what `grposcope probe` measured of the run's models.
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
    probes: tuple[ProbeRecord, ...] = ()

    @property
    def steps(self) -> int:
        """Optimiser steps recorded."""
        return len(self.table["step"])

    @property
    def nonfinite(self) -> dict[str, int]:
        """Metrics with values that are not finite, and how many there are."""
        counts = {name: int((~np.isfinite(column)).sum()) for name, column in self.table.items()}
        return {name: count for name, count in counts.items() if count}

    def setting(self, name: str) -> Any:
        """A setting as it was given to the trainer; None if it is not recorded."""
        return self.config.get("settings", {}).get(name)


def labels(runs: Sequence[Run]) -> list[str]:
    """A short name for each run, all different: the folder's, with its parent or a number where need be."""
    names = [visible(run.meta.name, 60) for run in runs]
    if len(set(names)) < len(names):
        names = [visible(f"{run.meta.source.resolve().parent.name}/{run.meta.name}", 80) for run in runs]
    return [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names, 1)]


def read(path: str | Path, settings: Mapping[str, Any] | None = None) -> Run:
    """The run recorded at `path`, finished or in progress: our own record or a log that docs/readers.md lists.

    settings: what the user knows and the log does not say (group, kl, trl_version, …); a record of
    ours has its own and ignores them. Raises UserError where there is no run, where its record is of
    a newer version, where a line of it is broken, or where the file is none that can be read.
    """
    from grposcope.runs.detect import read as sniffed  # brings pyarrow, which `import grposcope.runs` should not

    place = Path(path)
    try:
        if not place.exists():
            raise UserError(f"there is no {place}; give the folder of a run, which --out of grposcope train names")
        return sniffed(place, settings or {})
    except PermissionError as error:
        raise UserError(f"cannot read {error.filename or place}: {error.strerror}; change its permissions") from None
