"""How far two arrays of floats are apart, in units of the last place.

Vector instructions differ between processors in the order of sums and in the last bits of roots and exponentials.
Arrays that come from the same operations in the same order are compared to the bit; all others by `within_ulps`.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike


def within_ulps(a: ArrayLike, b: ArrayLike, ulps: int) -> bool:
    """Whether arrays of the same shape and type differ nowhere by more than `ulps` units in the last place.

    The unit is that of the larger of the two numbers. NaN equals NaN, and infinity itself alone.
    """
    x, y = _array(a), _array(b)
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    finite = np.isfinite(x) & np.isfinite(y)
    near = np.zeros(x.shape, dtype=bool)
    largest = np.maximum(np.abs(x[finite]), np.abs(y[finite]))
    near[finite] = np.abs(x[finite] - y[finite]) <= ulps * np.spacing(largest)
    return bool((near | (x == y) | (np.isnan(x) & np.isnan(y))).all())


def _array(values: ArrayLike) -> np.ndarray:
    return values.detach().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
