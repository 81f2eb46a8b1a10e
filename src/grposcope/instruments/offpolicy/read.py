"""Rollouts with both log-probabilities, the trainer's and the sampler's, of whatever `logs.read_rollouts` reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grposcope import logs
from grposcope.core.errors import UserError
from grposcope.core.rollouts import Bools, Rollout, Rollouts
from grposcope.core.run import Run
from grposcope.core.text import listed, visible
from grposcope.logs import read_rollouts
from grposcope.logs.rollout_columns import ENVIRONMENTS, NAMES
from grposcope.logs.trainers import trainer_named
from grposcope.maths.importance import Floats, Ratios

ROUNDING = 1e-3
"""What a log-probability may lie above 0 by rounding."""


NEEDED = (
    "give a JSONL file with the log-probabilities of trainer and sampler for each token of a rollout, or a record of "
    "grposcope train; for mismatch metrics in a trainer's log, use grposcope diagnose"
)
"""What can be read here."""


@dataclass(frozen=True)
class MismatchedRollouts:
    """Rollouts that a sampler drew, with both log-probabilities.

    log_ratios: log π(y_t) − log μ(y_t) of each rollout, 0 where one of the two is NaN. absent: tokens with a NaN.
    sampler: log μ(y_t). mismatch: log π_old(y_t) − log μ(y_t), π_old the trainer's policy when they were drawn; None
    where the file does not have it beside the current one. behind (B,): versions by which each rollout's weights were
    behind those that trained on it, where that is known by itself. cut: the tokens that the sampler is known to draw
    from, in words, where these are not all; its log-probabilities are then those after the cut.
    environments (B,): the name of each rollout's, where there are several.
    rewards (B,), versions (B,) of the sampler's weights, NaN where a row has none: None where no row has any.
    prompts (B,): the number of each rollout's prompt, a number of its own where the file does not say; grouped: whether
    it does.
    """

    log_ratios: Sequence[Floats]
    absent: int
    rewards: Floats | None
    versions: Floats | None
    prompts: NDArray[np.int64]
    grouped: bool
    sampler: Sequence[Floats] | None = None
    mismatch: Sequence[Floats] | None = None
    behind: Floats | None = None
    cut: str = ""
    environments: Sequence[str] | None = None

    @cached_property
    def ratios(self) -> Ratios:
        """The ratios, with the rewards less the mean of their prompt as advantages where both are known."""
        return Ratios.of(self.log_ratios, self.centred, self.sampler)

    @property
    def lags(self) -> Floats | None:
        """Versions by which each rollout's weights are behind, (B,), by default the newest of the file.

        None where any is not known.
        """
        if self.behind is not None:
            return self.behind
        versioned = self.versions is not None and not np.isnan(self.versions).any()
        return self.versions.max() - self.versions if versioned and self.versions is not None else None

    @cached_property
    def centred(self) -> Floats | None:
        """Rewards less the mean of their prompt, (B,)."""
        if self.rewards is None or not self.grouped or np.isnan(self.rewards).any():
            return None
        return self.rewards - (np.bincount(self.prompts, self.rewards) / np.bincount(self.prompts))[self.prompts]


def read(path: Path) -> MismatchedRollouts:
    """The rollouts of a file, of a trainer's files, or of the record of a run, in its folder.

    UserError, with the line, for rows that lack one of the two columns or do not fit, and for a place without both.
    """
    if not path.exists():
        raise UserError(f"{path}: there is no such file; give the path of a JSONL file")
    rows = read_rollouts.rollouts(path).rows
    if path.is_dir():
        rows = tuple(
            row for row in rows if row.sampler is not None and len(row.sampler) and _trainer_of(row) is not None
        )
    if path.is_file() and not rows:
        raise UserError(f"{_subject(path)} holds no rollouts; {NEEDED}")
    if not rows:
        raise UserError(
            f"{path} has no rollouts with the log-probabilities of the trainer beside those of the sampler; train with "
            "a correction or staleness, and keep rollouts (rollouts_every, rollouts_groups), or give a JSONL file"
        )
    written = [(row, _drawn(row)) for row in rows]
    return _of_rows([row for row, drawn in written if drawn is None or drawn.any() or not len(drawn)], str(path))


def _of_rows(rows: Sequence[Rollout], source: str = "rollouts") -> MismatchedRollouts:
    """What rollouts with both log-probabilities say; UserError, with the line, for one that does not fit."""
    if len(rows) < 2:
        raise UserError(
            f"{source} has {len(rows)} rollout{'s' * (len(rows) != 1)}; give at least 2, preferably hundreds"
        )
    log_ratios, samplers, mismatches, absent = zip(*map(_ratios, rows), strict=True)
    groups = Rollouts(tuple(rows)).groups
    grouped = sum(map(len, groups.values())) == len(rows)
    prompts = np.arange(len(rows))
    for number, members in enumerate(groups.values() if grouped else ()):
        prompts[list(members)] = number
    return MismatchedRollouts(
        log_ratios,
        sum(absent),
        _column([_finite(row.reward, "reward", row.where) for row in rows]),
        _column([_finite(row.version, "version", row.where) for row in rows]),
        prompts.astype(np.int64),
        grouped,
        samplers,
        _every(mismatches),
        environments=_environments(rows),
    )


def _trainer_of(row: Rollout) -> Floats | None:
    """The trainer's log-probabilities (T,): those that the loss was taken at, else those when it was drawn."""
    return row.current if row.current is not None else row.old


def _logged(path: Path) -> Run | None:
    """The run of which this is a log; None where it is none."""
    try:
        run = logs.read(path)
    except UserError:
        return None
    return run if run.steps else None


def _subject(path: Path) -> str:
    """The file as the subject of a sentence, with what a log says of the mismatch."""
    run = _logged(path)
    if run is None:
        return str(path)
    measured = [visible(run.keys.get(name, name), 60) for name in run.table if name.startswith("mismatch/")]
    title = trainer_named(run.meta.engine).title
    has = f", with {listed(measured)}, which grposcope diagnose judges" if measured else ""
    return f"{path} is a log ({title}, {run.steps} steps{has}) and"


def _ratios(row: Rollout) -> tuple[Floats, Floats, Floats | None, int]:
    """log π/μ, log μ and log π_old/μ of the tokens that the policy wrote, and how many of them lack one."""
    trainer = log_probabilities(row, "trainer")
    sampler = log_probabilities(row, "sampler")
    if not len(sampler):
        raise UserError(f"{row.where} has no tokens; leave empty completions out")
    old = row.old if row.current is not None else None
    drawn = _drawn(row)
    if drawn is not None and len(drawn) == len(sampler):
        trainer, sampler, old = trainer[drawn], sampler[drawn], None if old is None else old[drawn]
    difference = trainer - sampler
    absent = np.isnan(difference) | (np.isnan(old) if old is not None else False)
    mismatch = None if old is None else np.where(absent, 0.0, old - sampler)
    return np.where(absent, 0.0, difference), np.nan_to_num(sampler), mismatch, int(absent.sum())


def _drawn(row: Rollout) -> Bools | None:
    """The tokens (T,) that the policy wrote, where others stand among them; by the mask where nothing else tells."""
    return row.written if row.written is not None else row.mask


def _environments(rows: Sequence[Rollout]) -> list[str] | None:
    """The environment of each rollout; None where there are not several, or too many."""
    names = [row.environment for row in rows]
    return names if all(names) and 2 <= len(set(names)) <= ENVIRONMENTS else None


def _every(rows: Sequence[Floats | None]) -> list[Floats] | None:
    """The rows, None unless all are there."""
    logged = [row for row in rows if row is not None]
    return logged if len(logged) == len(rows) else None


def log_probabilities(row: Rollout, whose: str) -> Floats:
    """The log-probabilities (T,) of the "trainer" or the "sampler"; UserError where a rollout lacks them, or they are
    none of a token that was drawn. NaN passes."""
    values = row.sampler if whose == "sampler" else _trainer_of(row)
    if values is None:
        names = NAMES["sampler"] if whose == "sampler" else (*NAMES["current"], *NAMES["old"])
        raise UserError(f"{row.where}: no log-probabilities of the {whose}; name the column one of {', '.join(names)}")
    if np.isinf(values).any():
        index = int(np.flatnonzero(np.isinf(values))[0])
        raise UserError(
            f"{row.where}: the {whose}'s log-probability of token {index} is {'-' if values[index] < 0 else ''}"
            "inf, which no token that was drawn can have; log the values before top-k, top-p and other processing, and "
            "mask padding"
        )
    if (values > ROUNDING).any():
        index = int(np.flatnonzero(values > ROUNDING)[0])
        raise UserError(
            f"{row.where}: the {whose}'s log-probability of token {index} is {values[index]:g}; a "
            "log-probability is at most 0"
        )
    return values


def _finite(value: float, name: str, where: str) -> float:
    if math.isinf(value):
        raise UserError(f"{where}: {name} is {value:g}; give a finite number, or leave it out")
    return value


def _column(values: Sequence[float]) -> Floats | None:
    """Values (B,), None where all of them are NaN."""
    column = np.array(values)
    return None if np.isnan(column).all() else column
