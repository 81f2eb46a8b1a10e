"""Counting the subsets of a prompt's rollouts: an average over all of them is a complete U-statistic."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def log_choose(n: ArrayLike, k: ArrayLike) -> NDArray:
    """log C(n, k) for whole n, k ≥ 0 that broadcast; −∞ where k > n."""
    n, k = np.broadcast_arrays(np.asarray(n), np.asarray(k))
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, max(n.max(), k.max()) + 1)))])
    return np.where(k <= n, factorial[n] - factorial[k] - factorial[np.maximum(n - k, 0)], -np.inf)
