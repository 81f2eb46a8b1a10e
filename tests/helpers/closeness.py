"""How far two arrays of floats are apart, in units of the last place.

Vector instructions differ between processors in the order of sums and in the last bits of roots and exponentials.
Arrays that come from the same operations in the same order are compared to the bit; all others by `within_ulps`.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray


def within_ulps(a: ArrayLike, b: ArrayLike, ulps: int) -> bool:
    """Whether arrays of the same shape and type differ nowhere by more than `ulps` units in the last place.

    The unit is that of the larger of the two numbers. NaN equals NaN, and infinity itself alone.
    """
    (x, type_of_a), (y, type_of_b) = _wide(a), _wide(b)
    if x.shape != y.shape or type_of_a != type_of_b:
        return False
    kind = torch.finfo(type_of_a)
    finite = np.isfinite(x) & np.isfinite(y)
    largest = np.where(finite, np.maximum(np.abs(x), np.abs(y)), 0.0)
    unit = np.maximum(np.ldexp(kind.eps, np.frexp(largest)[1] - 1), kind.smallest_normal * kind.eps)
    apart = np.abs(np.subtract(x, y, where=finite, out=np.full(x.shape, np.inf)))
    return bool(((apart <= ulps * unit) | (x == y) | (np.isnan(x) & np.isnan(y))).all())


def _wide(values: ArrayLike) -> tuple[NDArray[np.float64], torch.dtype]:
    """The values in float64, which holds those of every type exactly, and the type they are of."""
    tensor = values.detach() if isinstance(values, torch.Tensor) else torch.from_numpy(np.asarray(values))
    return tensor.double().numpy(), tensor.dtype
