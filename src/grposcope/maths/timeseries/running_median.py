"""Running medians on NumPy alone: the import of `scipy.ndimage` takes longer than all of a log."""

from __future__ import annotations

import numpy as np

from grposcope.maths.timeseries.noise import Array


def running_median(y: Array, size: int, mirrored: bool = True) -> Array:
    """Medians (n,) of `size` neighbouring values of y (n,), the upper one of an even number.

    Beyond its ends y is mirrored, the end itself included; else its end values go on.
    """
    before, after = size // 2, size - size // 2 - 1
    padded = np.pad(y, (before, after), mode="symmetric" if mirrored else "edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, size)
    return np.asarray(np.partition(windows, size // 2, axis=-1)[..., size // 2], np.float64)
