"""The folder that `grposcope credit` writes: the one module that knows its format, for reading and writing.

credit.json           what every source of credit does to the gradient: a `CreditRecord` (format 1)
credit-tokens.jsonl   a line per rollout of some prompts, with the credit of its tokens as `Rollout.measures`
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.files import atomic, dumps, json_lines, json_number, typed, versioned_json, write_json
from grposcope.core.rollouts import Rollout
from grposcope.core.run import Run, once
from grposcope.instruments.credit.error import Ranged, SourceError

FORMAT = 1
"""The newest version of credit.json that this module reads, and the one it writes."""

FOLDER = "credit"
"""Subfolder of a run with what was measured of its models."""

RECORD, TOKENS = "credit.json", "credit-tokens.jsonl"
REMEDY = "make it again with grposcope credit"

NOT_MEASURED = Ranged(flag="not measured")


@dataclass(frozen=True)
class SourceRecord:
    """One source of credit, compared with outcome credit on the same rollouts; see
    `instruments.credit.error.SourceError`.

    kind: class of the method, i to vi, or "control". needs: continuations per boundary, 0 for none. purchasable: False
    for exact credit and controls. wrong: share of the steps whose exact credit is surely not 0 that get the other sign.
    within, common: shares of the credit's sum of squares that differ inside rollouts, and that are the same all over a
    group, which centring the group would remove; the rest differs between rollouts, as all of outcome credit does.
    """

    name: str = "?"
    kind: str = ""
    purchasable: bool = True
    unbiased: bool = False
    tokens: Ranged = NOT_MEASURED
    mse: Ranged = NOT_MEASURED
    saving: Ranged = NOT_MEASURED
    scale: Ranged = NOT_MEASURED
    bias: Ranged = NOT_MEASURED
    wrong: Ranged = NOT_MEASURED
    within: Ranged = NOT_MEASURED
    common: Ranged = NOT_MEASURED
    log_error: float = math.nan
    effective: float = math.nan

    def error(self) -> SourceError:
        """The part that the statistics of `instruments.credit.error` take."""
        return SourceError(
            self.name, self.tokens, self.mse, self.saving, self.scale, self.bias, self.unbiased, self.log_error,
            self.effective,
        )  # fmt: skip


@dataclass(frozen=True)
class CreditRecord:
    """Content of credit.json; a quantity that the file lacks is NaN, None or empty.

    folder: where it was read from. step: the optimiser step of the model. solved: mean reward. tokens: of the rollouts
    by outcome credit, per prompt. boundaries: from which continuations were drawn, per rollout, and `at` what they
    lie. continuations: drawn from each; oracle: whether they are many enough to be taken for the truth. extra: their
    tokens per prompt. reference: further rollouts of each prompt, for the gradient. floor: share of the error of
    outcome credit that prompts make by themselves, which no credit removes. effective: number of equal prompts that
    would make as much of that error. recurrence: shares of the
    boundaries, by text and by step, that another rollout of the group passes as well. sources: the first is outcome
    credit. skipped: sources that the task or the model cannot feed, and why. seconds: by part of the work.
    """

    format: int = FORMAT
    model: str = ""
    task: str = ""
    step: int | None = None
    seed: int | None = None
    prompts: int = 0
    group: int = 0
    temperature: float = math.nan
    solved: float = math.nan
    tokens: float = math.nan
    at: str = ""
    boundaries: float = math.nan
    continuations: int = 0
    oracle: bool = False
    extra: float = math.nan
    reference: int = 0
    floor: Ranged = NOT_MEASURED
    effective: float = math.nan
    recurrence: Mapping[str, float] = field(default_factory=dict)
    sources: tuple[SourceRecord, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    folder: Path | None = None

    def source(self, name: str) -> SourceRecord | None:
        """The source of this name; None where it was not measured."""
        return next((source for source in self.sources if source.name == name), None)

    def summary(self) -> dict[str, Any]:
        """The content of credit.json: what the commands print as JSON."""
        absent = [name for name in ("step", "seed") if getattr(self, name) is None]
        return {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("folder", *absent)
        }

    def read_rollouts(self) -> tuple[Rollout, ...]:
        """The rollouts in the folder, with the credit of each token; none without a folder."""
        return () if self.folder is None else _read_rollouts(self.folder)


def recognises(folder: Path) -> bool:
    """Whether the folder holds what `grposcope credit` wrote."""
    return (folder / RECORD).is_file()


def _in_folder(run: Path) -> tuple[CreditRecord, ...]:
    """What was measured of the models in the folder of a run, by step."""
    records = [read(folder) for folder in sorted((run / FOLDER).glob("*")) if recognises(folder)]
    return tuple(sorted(records, key=lambda record: -1 if record.step is None else record.step))


@once
def of_run(run: Run) -> tuple[CreditRecord, ...]:
    """What was measured of the models of a run by step; of a folder with nothing else, its own record."""
    if run.folder is None:
        return ()
    return (read(run.folder),) if recognises(run.folder) else _in_folder(run.folder)


def read(folder: Path) -> CreditRecord:
    """The record in `folder`; UserError for a broken one and for one of a newer format."""
    content = versioned_json(folder / RECORD, FORMAT, "grposcope credit", REMEDY)
    record = replace(typed(CreditRecord, content), folder=folder)
    named = re.fullmatch(r"step-(\d+)", folder.name)
    return replace(record, step=int(named[1])) if record.step is None and named else record


def write(folder: Path, record: CreditRecord, rollouts: Sequence[Rollout]) -> dict[str, Path]:
    """Write both files into `folder`, the record last; returns their paths by kind. UserError where that fails."""
    paths = {"credit": folder / RECORD, "tokens": folder / TOKENS}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic(paths["tokens"]) as file:
            file.writelines(f"{dumps(_line(rollout))}\n".encode() for rollout in rollouts)
        write_json(paths["credit"], record.summary())
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}; make room, or choose another") from None
    return paths


def _read_rollouts(folder: Path) -> tuple[Rollout, ...]:
    """The rollouts in `folder`; none where it has no file of them. UserError for a broken file."""
    path = folder / TOKENS
    if not path.is_file():
        return ()
    try:
        return tuple(_rollout(row) for _, row in json_lines(path))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} was not written by grposcope credit, or was changed ({error}); {REMEDY}") from None


def _line(rollout: Rollout) -> dict[str, Any]:
    """A rollout as a line of the file."""
    return {
        "problem": rollout.problem, "prompt": rollout.prompt, "completion": rollout.completion,
        "reward": rollout.reward, "tokens": rollout.tokens,
        "credit": {name: values.tolist() for name, values in rollout.measures.items()},
    }  # fmt: skip


def _rollout(row: Mapping[str, Any]) -> Rollout:
    tokens = tuple(map(str, row["tokens"]))
    credit = {}
    for name, column in row["credit"].items():
        numbers = [json_number(value) for value in column]
        if None in numbers or len(numbers) != len(tokens):
            raise ValueError(f"{len(tokens)} tokens need as many numbers of credit {name}")
        credit[str(name)] = np.array(numbers, np.float64)
    reward = json_number(row["reward"])
    texts: dict[str, Any] = {name: str(row[name]) for name in ("problem", "prompt", "completion")}
    return Rollout(**texts, reward=math.nan if reward is None else reward, tokens=tokens, measures=credit)
