"""Rollouts with both log-probabilities, the trainer's and the sampler's: JSONL with a row per rollout, prime-rl's
token_exports, or our own record."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope import logs
from grposcope.core.errors import UserError
from grposcope.core.files import json_lines, json_number
from grposcope.core.run import Run
from grposcope.core.text import listed, visible
from grposcope.logs.native import rollouts as recorded
from grposcope.logs.trainers import prime_rl, trainer_named
from grposcope.maths.importance import Floats, Ratios

CURRENT = ("logprobs", "trainer_logprobs", "log_probs", "per_token_logps")
OLD = ("old_logprobs", "old_log_probs", "old_per_token_logps")
TRAINER = (*CURRENT, *OLD)
SAMPLER = (
    "rollout_logprobs", "sampling_logprobs", "inference_logprobs", "rollout_log_probs", "sampling_per_token_logps",
)  # fmt: skip
GROUP = ("group", "group_id", "prompt_id", "problem", "prompt")
VERSION = ("version", "weight_version", "policy_version")
"""Names that a column may have, of which the first one that is there is taken."""

ENVIRONMENT = (
    "env", "environment", "env_name", "env_id", "data_source", "domain", "task_name", "dataset", "agent", "agent_name",
    "task", "scope",
)  # fmt: skip
"""Columns whose text says which environment a rollout is of; the first one with 2 to MOST different texts is taken."""

MOST = 50
"""Environments of a file; a column with more texts is something else."""

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
        known = self.versions is not None and not np.isnan(self.versions).any()
        return self.versions.max() - self.versions if known and self.versions is not None else None

    @cached_property
    def centred(self) -> Floats | None:
        """Rewards less the mean of their prompt, (B,)."""
        if self.rewards is None or not self.grouped or np.isnan(self.rewards).any():
            return None
        return self.rewards - (np.bincount(self.prompts, self.rewards) / np.bincount(self.prompts))[self.prompts]


@dataclass(frozen=True)
class _Row:
    log_ratio: Floats
    sampler: Floats
    mismatch: Floats | None
    absent: int
    reward: float
    version: float
    prompt: str | None
    texts: Mapping[str, str] = field(default_factory=dict)


def read(path: Path) -> MismatchedRollouts:
    """The rollouts of a file, of token exports, or of the record of a run, in its folder.

    UserError, with the line, for rows that lack one of the two columns or do not fit, and for a record without both.
    """
    exports = prime_rl.export_files(path) if path.is_dir() else {}
    if path.is_file() and not _is_json_lines(path):
        raise UserError(f"{_subject(path)} holds no rollouts; {NEEDED}")
    rows = list(_exported(exports) if exports else _recorded(path) if path.is_dir() else _rows(path))
    if len(rows) < 2:
        raise UserError(f"{path} has {len(rows)} rollout{'s' * (len(rows) != 1)}; give at least 2, preferably hundreds")
    named = [row.prompt for row in rows]
    grouped = None not in named
    _, prompts = np.unique(np.array(named), return_inverse=True) if grouped else (None, np.arange(len(rows)))
    return MismatchedRollouts(
        [row.log_ratio for row in rows],
        sum(row.absent for row in rows),
        _column([row.reward for row in rows]),
        _column([row.version for row in rows]),
        prompts.astype(np.int64),
        grouped,
        [row.sampler for row in rows],
        _every([row.mismatch for row in rows]),
        environments=_environments([row.texts for row in rows]),
    )


def _is_json_lines(path: Path) -> bool:
    """Whether the first line that is not blank is an object with what only rollouts have, or of no log."""
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"{}")
    text = first.decode(errors="replace").lstrip("\ufeff").strip()
    if not text.startswith("{"):
        return False
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = {}
    return bool(row.keys() & {*TRAINER, *SAMPLER}) or _logged(path) is None


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


def _recorded(run: Path) -> Iterator[_Row]:
    """The rollouts of a record that has both log-probabilities; those of one draw of a problem are a prompt's."""
    known = False
    for step, sampled in recorded.of_run(run).items():
        for one in sampled:
            if one.trainer_logp is None:
                continue
            known = True
            if len(one.logp):
                version = math.nan if one.version is None else float(one.version)
                row = _Row(one.trainer_logp - one.logp, one.logp, None, 0, one.reward, version, f"{step} {one.problem}")
                yield row
    if not known:
        raise UserError(
            f"{run} has no rollouts with the log-probabilities of the trainer beside those of the sampler; train with "
            "a correction or staleness, and keep rollouts (rollouts_every, rollouts_groups), or give a JSONL file"
        )


def _exported(files: Mapping[int, Sequence[Path]]) -> Iterator[_Row]:
    """The trained tokens of token exports; what stands before the first of them is the prompt."""
    for step, paths in files.items():
        for path in paths:
            for line, row in json_lines(path, growing=True):
                where = f"{path}, line {line}"
                mask, ids = row.get("loss_mask"), row.get("token_ids")
                if not isinstance(mask, list) or not isinstance(ids, list) or len(mask) != len(ids):
                    raise UserError(
                        f"{where}: loss_mask lacks a flag for each of token_ids; give the exports unchanged"
                    )
                if not any(mask):
                    continue
                names = ("trainer_logprobs", "inference_logprobs")
                if lacking := next((n for n in names if len(row.get(n) or ()) != len(mask)), None):
                    raise UserError(f"{where}: {lacking} has no value for each of {len(mask):,} tokens")
                cut = {n: [one for one, kept in zip(row[n], mask, strict=True) if kept] for n in names}
                env = row.get("env_name")
                yield _row(
                    {**cut, "prompt": f"{step} {ids[: mask.index(True)]}", **({"env": env} if env else {})}, where
                )


def _rows(path: Path) -> Iterator[_Row]:
    for line, row in json_lines(path):
        yield _row(row, f"{path}, line {line}")


def _row(row: Mapping[str, Any], where: str) -> _Row:
    trainer, sampler = (log_probabilities(row, names, where) for names in (TRAINER, SAMPLER))
    if len(trainer) != len(sampler):
        raise UserError(
            f"{where}: {len(trainer):,} log-probabilities of the trainer and {len(sampler):,} of the sampler; give "
            "both for the same tokens, those of the completion without prompt and padding"
        )
    if not len(trainer):
        raise UserError(f"{where} has no tokens; leave empty completions out")
    difference = trainer - sampler
    old = log_probabilities(row, OLD, where) if _present(row, CURRENT) and _present(row, OLD) else None
    if old is not None and len(old) != len(sampler):
        raise UserError(f"{where}: {len(old):,} log-probabilities of the old policy and {len(sampler):,} others")
    absent = np.isnan(difference) | (np.isnan(old) if old is not None else False)
    prompt = next((str(row[name]) for name in GROUP if row.get(name) is not None), None)
    return _Row(
        np.where(absent, 0.0, difference), np.nan_to_num(sampler),
        None if old is None else np.where(absent, 0.0, old - sampler), int(absent.sum()),
        number_in(row, ("reward",), where),
        number_in(row, VERSION, where), prompt, _texts(row),
    )  # fmt: skip


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    """The texts of a row under the names of an environment; of a list, as one per token, the one that all are."""
    found = {}
    for name in ENVIRONMENT:
        value = row.get(name)
        if isinstance(value, list) and value and all(one == value[0] for one in value):
            value = value[0]
        if isinstance(value, str) and value:
            found[name] = visible(value, 40)
    return found


def _environments(rows: Sequence[Mapping[str, str]]) -> list[str] | None:
    """The environment of each rollout by the first column that tells 2 to MOST apart; None where there is none."""
    for name in ENVIRONMENT:
        if all(name in row for row in rows) and 2 <= len({row[name] for row in rows}) <= MOST:
            return [row[name] for row in rows]
    return None


def _present(row: Mapping[str, Any], names: Sequence[str]) -> bool:
    return any(row.get(name) is not None for name in names)


def _every(rows: Sequence[Floats | None]) -> list[Floats] | None:
    """The rows, None unless all are there."""
    known = [row for row in rows if row is not None]
    return known if len(known) == len(rows) else None


def log_probabilities(row: Mapping[str, Any], names: Sequence[str], where: str) -> Floats:
    """The column of log-probabilities (T,) that a row has under one of the names."""
    name = next((name for name in names if row.get(name) is not None), None)
    if name is None:
        has = visible(", ".join(row)) or "nothing"
        whose = "trainer" if names is TRAINER else "sampler"
        raise UserError(
            f"{where}: no log-probabilities of the {whose}; name the column one of {', '.join(names)} (the row has "
            f"{has})"
        )
    try:
        values = np.array(row[name], np.float64)
    except (ValueError, TypeError):
        values = np.empty((0, 0))
    if values.ndim != 1:
        raise UserError(f"{where}: {name} is not a list of numbers; give a log-probability per token")
    _check(values, name, where)
    return values


def _check(values: Floats, name: str, where: str) -> None:
    """UserError for what is no logarithm of a probability of a token that was drawn; NaN passes."""
    if np.isinf(values).any():
        place = int(np.flatnonzero(np.isinf(values))[0])
        raise UserError(
            f"{where}: {name} of token {place} is {'-' if values[place] < 0 else ''}inf, which no token that was drawn "
            "can have; log the values before top-k, top-p and other processing, and mask padding"
        )
    if (values > ROUNDING).any():
        place = int(np.flatnonzero(values > ROUNDING)[0])
        raise UserError(f"{where}: {name} of token {place} is {values[place]:g}; a log-probability is at most 0")


def number_in(row: Mapping[str, Any], names: Sequence[str], where: str) -> float:
    """A number that a row has under one of the names; NaN where it has none."""
    name = next((name for name in names if row.get(name) is not None), None)
    if name is None:
        return math.nan
    value = json_number(row[name])
    if value is None or math.isinf(value):
        raise UserError(f"{where}: {name} is {visible(str(row[name]), 40)}; give a finite number, or leave it out")
    return value


def _column(values: Sequence[float]) -> Floats | None:
    """Values (B,), None where all of them are NaN."""
    column = np.array(values)
    return None if np.isnan(column).all() else column
