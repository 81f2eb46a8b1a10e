"""Arrays that a run keeps of single steps, RUN/FOLDER/step-NNNNNN.npz, written whole or not at all; no pickle."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from grposcope.core.array_files import read_arrays
from grposcope.core.errors import UserError
from grposcope.core.files import atomic

T = TypeVar("T")

REMEDY = "delete it: the other probes are then pooled without it"

_NAME = re.compile(r"step-(\d{1,15})\.npz")


def write(folder: Path, step: int, arrays: Mapping[str, Any]) -> Path:
    """Write the arrays of a step into a folder, made where it is not there; UserError where the disk refuses."""
    path = folder / f"step-{step:06d}.npz"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as file:
            np.savez(file, **arrays)
    except OSError as problem:
        raise UserError(f"cannot write {path}: {problem.strerror or problem}; make room") from None
    return path


def in_run(run: Path, folder: str) -> list[Path]:
    """The files of steps in this subfolder of a run, or of the record in its subfolder `grposcope`."""
    places = [folder_above / folder for folder_above in (run, run / "grposcope")]
    return [
        path
        for folder_of_arrays in places
        for path in sorted(folder_of_arrays.glob("step-*.npz"))
        if _NAME.fullmatch(path.name)
    ]


def read(path: Path, newest: int, make: Callable[[dict[str, NDArray[Any]]], T]) -> T:
    """What `make` gets from the arrays of a file.

    newest: the newest number of `format` that can be read. UserError for a newer one, and for a file that is damaged or
    whose arrays `make` refuses by a ValueError.
    """
    try:
        arrays = read_arrays(path, REMEDY)
        if int(arrays["format"]) > newest:
            raise UserError(f"{path} has format {int(arrays['format'])}, newer than {newest}; update GRPOscope")
        return make(arrays)
    except KeyError as missing:
        raise UserError(f"{path} has no array {missing}; {REMEDY}") from None
    except (ValueError, TypeError, IndexError) as problem:
        raise UserError(f"{path} cannot be read ({str(problem).splitlines()[0]}); {REMEDY}") from None
