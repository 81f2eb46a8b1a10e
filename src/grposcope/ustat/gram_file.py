"""The file between a probe and everything that plans with it: `gram.npz` in the probe's folder.

    gram         (B, B) float64   K_ij = ⟨s_i, s_j⟩, s_i = ∇ log π(y_i|x), rows prompt-major, B = P·G
    rewards      (P, G) float64   NaN where a group has no such rollout (its row of `gram` is then not read)
    truncated    (P, G) bool      the completion was cut before its end token
    layers       (L, B, B) float64 and layer_names (L,) text, optional: the Gram of each layer alone

The scores are those of whole completions at the sampling distribution, not weighted by any advantage.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grposcope.errors import UserError

NAME = "gram.npz"
REMEDY = "make it again with `grposcope probe`"


@dataclass(frozen=True)
class GramFile:
    """What `gram.npz` holds: gram (B, B), rewards (P, G), truncated (P, G), layers (L, B, B) with their names."""

    gram: NDArray
    rewards: NDArray
    truncated: NDArray
    layers: NDArray | None = None
    layer_names: tuple[str, ...] = ()

    def without_truncated(self) -> GramFile:
        """The same probe as if its truncated rollouts had not been drawn: groups become unequal."""
        out = self.truncated.reshape(-1)
        gram = np.where(out[:, None] | out[None, :], 0.0, self.gram)
        layers = None if self.layers is None else np.where(out[:, None] | out[None, :], 0.0, self.layers)
        return replace(self, gram=gram, layers=layers, rewards=np.where(self.truncated, np.nan, self.rewards))


def write(
    folder: Path,
    gram: NDArray,
    rewards: NDArray,
    truncated: NDArray | None = None,
    layers: NDArray | None = None,
    layer_names: Sequence[str] = (),
) -> Path:
    """Write `gram.npz` into `folder`, atomically; returns its path. Raises UserError where shapes do not fit."""
    rewards = np.asarray(rewards, np.float64)
    arrays = {
        "gram": np.asarray(gram, np.float64),
        "rewards": rewards,
        "truncated": np.zeros(rewards.shape, bool) if truncated is None else np.asarray(truncated, bool),
    }
    if layers is not None:
        arrays["layers"] = np.asarray(layers, np.float64)
        arrays["layer_names"] = np.array(list(layer_names), dtype=np.str_)
    path = Path(folder) / NAME
    _check(path, arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(NAME + ".part")
    with scratch.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    return path


def read(folder: Path, layers: bool = False) -> GramFile:
    """Read `gram.npz` from `folder`, the Grams of the layers only if asked: they are many times larger.

    Raises UserError for a file that is missing, damaged or of other shapes.
    """
    path = Path(folder) / NAME
    if not path.is_file():
        raise UserError(f"{path} is missing; {REMEDY}")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if layers or not name.startswith("layer")}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read ({str(error).splitlines()[0]}); {REMEDY}") from error
    for name in ("gram", "rewards"):
        if name not in arrays:
            raise UserError(f"{path} has no array {name!r}; {REMEDY}")
    arrays.setdefault("truncated", np.zeros(arrays["rewards"].shape, bool))
    _check(path, arrays)
    return GramFile(
        gram=arrays["gram"],
        rewards=arrays["rewards"],
        truncated=arrays["truncated"].astype(bool),
        layers=arrays.get("layers"),
        layer_names=tuple(map(str, arrays.get("layer_names", ()))),
    )


def _check(path: Path, arrays: dict[str, NDArray]) -> None:
    rewards, gram = arrays["rewards"], arrays["gram"]
    for name, array in arrays.items():
        if name in ("gram", "rewards", "layers") and array.dtype.kind != "f":
            raise UserError(f"{path}: {name} holds {array.dtype}, not floating-point numbers; {REMEDY}")
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
    if "layers" in arrays and arrays["layers"].shape != (len(names), size, size):
        raise UserError(
            f"{path}: layers has shape {arrays['layers'].shape}, not ({len(names)}, {size}, {size}) for its "
            f"{len(names)} layer_names; {REMEDY}"
        )
