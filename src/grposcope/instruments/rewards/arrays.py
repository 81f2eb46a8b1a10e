"""A matrix of inner products from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grposcope.core.array_files import read_arrays
from grposcope.core.errors import UserError
from grposcope.maths.aggregation import Floats


def square(path: Path) -> Floats:
    """The matrix in a .npy file; UserError where there is none, or it is not square and finite."""
    arrays = read_arrays(path, "write a matrix with numpy.save")
    try:
        matrix = arrays[""].astype(np.float64, casting="same_kind")
    except (KeyError, ValueError, TypeError):
        raise UserError(f"{path} is not a NumPy array of numbers; write it with numpy.save") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
        raise UserError(f"{path} is an array {matrix.shape}; give a square matrix of finite numbers")
    return matrix
