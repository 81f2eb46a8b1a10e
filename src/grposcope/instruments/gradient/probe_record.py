"""The folder that `grposcope probe` writes: the one module that knows its format, for reading and writing.

    probe.json     what was measured: a `ProbeRecord` (format 1)
    gram.npz       inner products of the rollouts' scores: a `ProbeGram`
    tokens.jsonl   a line per rollout, prompt after prompt: a `Rollout` each, with MEASURES

Arrays of gram.npz, with B = P·G rows, prompt-major:

    gram         (B, B) float64   K_ij = ⟨s_i, s_j⟩, s_i = ∇ log π(y_i|x)
    rewards      (P, G) float64   NaN where a group has no such rollout (its row of `gram` is then not read)
    truncated    (P, G) bool      the completion was cut before its end token
    layers       (L, B, B) float64 and layer_names (L,) text, optional: the Gram matrix of each layer alone

The scores are those of whole completions at the sampling distribution, not weighted by any advantage. A probe that
was interrupted has the Gram matrix of the layers that are done in the subfolder `partial`. Probes in RUN/probes/
belong to the run.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.core.array_files import read_arrays
from grposcope.core.errors import UserError
from grposcope.core.estimate import NOT_MEASURED, Estimate
from grposcope.core.files import atomic, dumps, json_key, json_lines, json_number, typed, versioned_json, write_json
from grposcope.core.rollouts import Floats, Rollout
from grposcope.core.run import Run, once
from grposcope.instruments.gradient.baseline import BestBaseline
from grposcope.instruments.gradient.class_means import ClassMeanShares
from grposcope.instruments.gradient.group_rank import GroupRank
from grposcope.instruments.gradient.rollout_source import RolloutSource
from grposcope.maths.turn_moments import TurnSavings

FORMAT = 1
"""The newest version of probe.json that this module reads, and the one it writes."""

FOLDER = "probes"
"""Subfolder of a run with its probes."""

GRAM, RECORD, TOKENS = "gram.npz", "probe.json", "tokens.jsonl"
REMEDY = "make it again with grposcope probe"
LARGEST = 1e60
"""Size of a number in gram.npz beyond which it is damaged; moments take fourth powers."""


class Measures(dict[str, float]):
    """Numbers without a standard error, by name; NaN for a name that was not measured."""

    def __missing__(self, name: str) -> float:
        return math.nan


class Estimates(dict[str, Estimate]):
    """Estimates by name; NaN with the flag "not measured" for any other name."""

    def __missing__(self, name: str) -> Estimate:
        return NOT_MEASURED


# probe.json


@dataclass(frozen=True)
class WeightingRanks:
    """Ranks, by definition, of the gradient that one weighting of the rollouts gives.

    layer: mean over the weight matrices. rollout: of the matrix with a row u_i s_i per rollout. token: of the matrix
    with a row w (e_y − π) per token; None where it was not measured.
    """

    layer: Estimates = field(default_factory=Estimates)
    rollout: Measures = field(default_factory=Measures)
    token: Measures | None = None


@dataclass(frozen=True)
class DeadGroupShares:
    """Share of groups whose rewards are all equal.

    dead: observed. dead_if_alike: p^G + (1−p)^G at the mean success rate p, NaN for rewards other than 0 and 1.
    dead_at: smaller group size -> expected share there.
    """

    dead: Estimate = NOT_MEASURED
    dead_if_alike: float = math.nan
    dead_at: Mapping[int, Estimate] = field(default_factory=dict)


@dataclass(frozen=True)
class CreditShares:
    """Shares of the credit Σ|w|·‖e_y − π‖: on text that rollouts of a group share, and what cancels there.

    shared: on tokens that at least two rollouts of the group share; common: that the whole group shares;
    cancelled: what successes and failures undo in each other.
    """

    cancelled: float = math.nan
    shared: float = math.nan
    common: float = math.nan


@dataclass(frozen=True)
class SpectrumRecord:
    """Singular values of one gradient matrix: the largest ones, and every rank by definition.

    size: the number of singular values of the matrix. left_out: share of the squared Frobenius norm outside the
    values that were computed. bounds: lowest and highest value of each rank; None where all values were computed.
    """

    values: tuple[float, ...] = ()
    size: int = 0
    frobenius: float = math.nan
    left_out: float = math.nan
    ranks: Measures = field(default_factory=Measures)
    bounds: Mapping[str, tuple[float, float]] | None = None


@dataclass(frozen=True)
class LayerRecord:
    """One weight matrix. depth: the number of its block, None outside of blocks. spectra: by weighting.

    group_rank: of its rows A_i ψ_i, mean over live groups (`group_rank.LayerRanks.of_layer`).
    """

    name: str = "?"
    role: str = "?"
    depth: int | None = None
    shape: tuple[int, ...] = ()
    score_norm: float = math.nan
    spectra: Mapping[str, SpectrumRecord] = field(default_factory=dict)
    group_rank: Measures = field(default_factory=Measures)


@dataclass(frozen=True)
class ProbeRecord:
    """Content of probe.json, what one probe measured; a quantity that the file lacks is NaN, None or empty.

    folder: where it was read from. step: the optimiser step of the model. recipe: the weighting that sparsity, credit
    and class means are those of. comparison: how its advantages compare the rollouts of a group, `Comparison`, empty in
    probes of earlier versions. complete: False where the backward pass was interrupted. truncated: share of
    completions cut before their end token; solved: mean reward. self_check: relative error against autograd.
    left_out: parameters not measured, and their share. skipped: weightings that are zero everywhere, and why.
    token_sparsity: of ‖e_y − π‖; parameter_sparsity: of the gradient's entries. layers: weight matrices, in the
    order of the backward pass. baselines: of each prompt. statistics: further ones, by name
    (`instruments.gradient.statistics`). source: of rollouts that were not drawn for the probe. turns: what credit for
    turns saves, of rollouts with several.
    """

    format: int = FORMAT
    model: str = ""
    task: str = ""
    seed: int | None = None
    recipe: str = ""
    comparison: str = ""
    tier: str = ""
    complete: bool = True
    prompts: int | None = None
    group: int | None = None
    rollouts: int | None = None
    tokens: int | None = None
    truncated: float = math.nan
    solved: float = math.nan
    self_check: float = math.nan
    left_out: tuple[str, ...] = ()
    share_left_out: float = math.nan
    step: int | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)
    weightings: Mapping[str, WeightingRanks] = field(default_factory=dict, metadata={"key": "settings"})
    groups: DeadGroupShares = DeadGroupShares()
    class_means: ClassMeanShares = field(default=ClassMeanShares(), metadata={"key": "two_classes"})
    group_rank: GroupRank = field(default_factory=GroupRank)
    baseline: BestBaseline = field(default_factory=BestBaseline)
    credit: CreditShares = CreditShares()
    token_sparsity: Measures = field(default_factory=Measures)
    parameter_sparsity: Estimates = field(default_factory=Estimates)
    statistics: Mapping[str, Estimates] = field(default_factory=dict)
    layers: tuple[LayerRecord, ...] = ()
    baselines: tuple[BestBaseline, ...] = ()
    source: RolloutSource | None = field(default=None, metadata={"key": "rollouts_from"})
    turns: TurnSavings | None = None
    folder: Path | None = None

    def rank(self, definition: str, weighting: str = "") -> Estimate:
        """A rank of the layers' gradients, mean over layers; of the probe's recipe unless a weighting is named."""
        ranks = self.weightings.get(weighting or self.recipe)
        return NOT_MEASURED if ranks is None else ranks.layer[definition]

    def scalars(self) -> dict[str, str | int | float]:
        """The entries that are single values and known."""
        return {
            name: value for name, value in vars(self).items()
            if isinstance(value, str | int | float) and value != "" and value == value
        }  # fmt: skip

    def read_gram(self, layers: bool = False) -> ProbeGram:
        """The Gram matrix in the probe's folder, those of single layers if asked for; UserError as `read_gram`."""
        return read_gram(self._place(), layers)

    def gram_bytes(self) -> int:
        """Size of gram.npz; 0 where there is none."""
        path = self._place() / GRAM
        return path.stat().st_size if path.is_file() else 0

    def read_rollouts(self) -> tuple[Rollout, ...]:
        """The rollouts in the probe's folder, with what each token carries; UserError as `_read_rollouts`."""
        return _read_rollouts(self._place())

    def _place(self) -> Path:
        if self.folder is None:
            raise UserError(f"this probe was not written to a folder, so it has no {GRAM} and no {TOKENS}")
        return self.folder

    def summary(self) -> dict[str, Any]:
        """The content of probe.json without single layers and prompts: what the commands print as JSON."""
        absent = [name for name in ("step", "source", "turns") if getattr(self, name) is None]
        separate = {"layers", "baselines", "folder", *absent}
        return {json_key(field): getattr(self, field.name) for field in fields(self) if field.name not in separate}


def recognises(folder: Path) -> bool:
    """Whether this is the folder of a probe."""
    return (folder / RECORD).is_file()


def in_folder(run: Path) -> tuple[ProbeRecord, ...]:
    """The probes in the folder of a run by step, those without a step first."""
    records = [read(folder) for folder in sorted((run / FOLDER).glob("*")) if recognises(folder)]
    return tuple(sorted(records, key=lambda record: -1 if record.step is None else record.step))


@once
def of_run(run: Run) -> tuple[ProbeRecord, ...]:
    """The probes of a run by step; of a folder with nothing else, its own."""
    if run.folder is None:
        return ()
    return (read(run.folder),) if recognises(run.folder) else in_folder(run.folder)


def read(folder: Path) -> ProbeRecord:
    """The record in `folder`; UserError for a broken one and for one of a newer format."""
    content = versioned_json(folder / RECORD, FORMAT, "grposcope probe", REMEDY)
    record = replace(typed(ProbeRecord, content), folder=folder)
    named = re.fullmatch(r"step-(\d+)", folder.name)
    return replace(record, step=int(named[1])) if record.step is None and named else record


def write(folder: Path, record: ProbeRecord, gram: ProbeGram, rollouts: Sequence[Rollout]) -> dict[str, Path]:
    """Write a probe into `folder`; returns the path of each file by its kind. UserError where that fails."""
    paths = {"gram": folder / GRAM, "probe": folder / RECORD, "tokens": folder / TOKENS}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic(paths["tokens"]) as file:
            file.writelines(f"{dumps(_line(rollout))}\n".encode() for rollout in rollouts)
        where = folder if record.complete else folder / "partial"
        paths["gram"] = write_gram(where, gram)
        baselines = [{"prompt": number, **vars(baseline)} for number, baseline in enumerate(record.baselines)]
        # probe.json comes last, so that a reader who finds it finds the other files
        write_json(paths["probe"], record.summary() | {"layers": record.layers, "baselines": baselines})
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {error.strerror or error}; make room and give the same command"
        ) from None
    if record.complete:
        shutil.rmtree(folder / "partial", ignore_errors=True)
    return paths


# tokens.jsonl


MEASURES = ("norm", "mass", "net", "sharers")
"""What a probe measured of every token, in `Rollout.measures`: norm ‖e_y − π‖; mass |w| · norm, of the recipe's weights
w = ∂L/∂log π; sharers, rollouts of the group, itself included, that wrote the same text up to and including this token;
net |Σ w over the sharers| · norm / sharers."""


def _line(rollout: Rollout) -> dict[str, Any]:
    """A rollout as a line of tokens.jsonl."""
    weight = [] if rollout.loss_weights is None else rollout.loss_weights.tolist()
    measures = {name: rollout.measures[name].tolist() for name in MEASURES}
    return {
        "problem": rollout.problem, "prompt": rollout.prompt, "completion": rollout.completion,
        "reward": rollout.reward, "tokens": rollout.tokens, "weight": weight, **measures,
        "sharers": list(map(int, measures["sharers"])),
    }  # fmt: skip


def _read_rollouts(folder: Path) -> tuple[Rollout, ...]:
    """The rollouts in `folder`, prompt after prompt; none where it has no tokens.jsonl. UserError for a broken file."""
    path = folder / TOKENS
    if not path.is_file():
        return ()
    try:
        return tuple(_rollout(row) for _, row in json_lines(path))
    except (KeyError, TypeError, ValueError) as error:
        said = "" if isinstance(error, KeyError | TypeError) else f": {error}"
        raise UserError(
            f"{path} was not written by grposcope probe, or was changed{said}; make it again with grposcope probe"
        ) from None


def _rollout(row: Mapping[str, Any]) -> Rollout:
    tokens = tuple(map(str, row["tokens"]))
    columns: dict[str, Floats] = {}
    for name in ("weight", *MEASURES):
        numbers = [json_number(value) for value in row[name]] if isinstance(row[name], list) else [None]
        if None in numbers:
            raise ValueError(f"{name} must be a list of numbers")
        if len(numbers) != len(tokens):
            raise ValueError(f"{len(tokens)} tokens but {len(numbers)} entries of {name}")
        columns[name] = np.array(numbers, np.float64)
    texts: dict[str, Any] = {name: str(row[name]) for name in ("problem", "prompt", "completion")}
    reward = json_number(row["reward"])
    return Rollout(
        **texts, reward=math.nan if reward is None else reward, tokens=tokens, loss_weights=columns.pop("weight"),
        measures=columns,
    )  # fmt: skip


# gram.npz


@dataclass(frozen=True)
class ProbeGram:
    """Content of gram.npz: gram (B, B), rewards (P, G), truncated (P, G), layers (L, B, B) with their names."""

    gram: NDArray
    rewards: NDArray
    truncated: NDArray
    layers: NDArray | None = None
    layer_names: tuple[str, ...] = ()

    def without_truncated(self) -> ProbeGram:
        """Gram matrix as if the truncated rollouts had not been drawn; their rewards become NaN."""
        out = self.truncated.reshape(-1)
        gram = np.where(out[:, None] | out[None, :], 0.0, self.gram)
        layers = None if self.layers is None else np.where(out[:, None] | out[None, :], 0.0, self.layers)
        return replace(self, gram=gram, layers=layers, rewards=np.where(self.truncated, np.nan, self.rewards))


def write_gram(folder: Path, content: ProbeGram) -> Path:
    """Write gram.npz into `folder`, atomically; returns its path. UserError where shapes do not fit."""
    arrays = {
        "gram": np.asarray(content.gram, np.float64),
        "rewards": np.asarray(content.rewards, np.float64),
        "truncated": np.asarray(content.truncated, bool),
    }
    if content.layers is not None:
        arrays["layers"] = np.asarray(content.layers, np.float64)
        arrays["layer_names"] = np.array(list(content.layer_names), dtype=np.str_)
    path = Path(folder) / GRAM
    _check(path, arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return path


def read_gram(folder: Path, layers: bool = False) -> ProbeGram:
    """Read gram.npz from `folder`, the Gram matrices of the layers only if asked for: they are many times larger.

    UserError for a file that is missing, damaged or of other shapes.
    """
    path = Path(folder) / GRAM
    if not path.is_file():
        raise UserError(f"{path} is missing; {REMEDY}")
    arrays = read_arrays(path, REMEDY, lambda name: layers or not name.startswith("layer"))
    for name in ("gram", "rewards"):
        if name not in arrays:
            raise UserError(f"{path} has no array {name!r}; {REMEDY}")
    arrays.setdefault("truncated", np.zeros(arrays["rewards"].shape, bool))
    _check(path, arrays)
    if recognises(folder):
        _check_same(path, read(folder), arrays["rewards"])
    return ProbeGram(
        gram=arrays["gram"],
        rewards=arrays["rewards"],
        truncated=arrays["truncated"].astype(bool),
        layers=arrays.get("layers"),
        layer_names=tuple(map(str, arrays.get("layer_names", ()))),
    )


def _check_same(path: Path, record: ProbeRecord, rewards: NDArray) -> None:
    """UserError where the Gram matrix is of other rollouts than the probe.json beside it."""
    shape = (record.prompts, record.group)
    said = record.solved
    if None not in shape and rewards.shape != shape:
        why = f"{rewards.shape[0]} × {rewards.shape[1]} rollouts instead of {shape[0]} × {shape[1]}"
    elif math.isfinite(said) and np.isfinite(rewards).all() and abs(rewards.mean() - said) > 1e-4 * max(1, abs(said)):
        why = f"their mean reward is {rewards.mean():.4g} instead of {said:.4g}"
    else:
        return
    raise UserError(f"{path} and {RECORD} beside it belong to different probes ({why}); copy both from one probe")


def _check(path: Path, arrays: Mapping[str, NDArray]) -> None:
    """UserError where the arrays of gram.npz do not belong together."""
    rewards, gram = arrays["rewards"], arrays["gram"]
    for name, array in arrays.items():
        if name in ("gram", "rewards", "layers") and array.dtype.kind != "f":
            raise UserError(f"{path}: {name} holds {array.dtype}, not floating-point numbers; {REMEDY}")
        if array.dtype.kind == "f" and (np.isfinite(array) & (np.abs(array) > np.float64(LARGEST))).any():
            raise UserError(f"{path}: {name} holds values beyond {LARGEST:g}, which no gradient has; {REMEDY}")
    if rewards.ndim != 2:
        raise UserError(f"{path}: rewards has shape {rewards.shape}, not (prompts, group); {REMEDY}")
    size = rewards.size
    if gram.shape != (size, size):
        raise UserError(
            f"{path}: gram has shape {gram.shape}, but {rewards.shape[0]} prompts of {rewards.shape[1]} rollouts need "
            f"({size}, {size}); {REMEDY}"
        )
    if arrays["truncated"].shape != rewards.shape:
        raise UserError(f"{path}: truncated has shape {arrays['truncated'].shape}, rewards {rewards.shape}; {REMEDY}")
    names = arrays.get("layer_names", np.empty(0))
    if names.ndim != 1:
        raise UserError(f"{path}: layer_names has shape {names.shape}, not (layers,); {REMEDY}")
    if "layers" in arrays and arrays["layers"].shape != (len(names), size, size):
        raise UserError(
            f"{path}: layers has shape {arrays['layers'].shape}, not ({len(names)}, {size}, {size}) for its "
            f"{len(names)} layer_names; {REMEDY}"
        )
