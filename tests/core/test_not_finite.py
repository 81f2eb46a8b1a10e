"""Values that are not finite: an update that stops."""

from __future__ import annotations

import numpy as np

from grposcope.core.files import WRITTEN_NULL
from grposcope.core.not_finite import not_finite


def test_an_update_that_stops_while_the_reward_goes_on() -> None:
    """A writer that has no NaN writes null, as for all else that is measured of the policy."""
    step = np.arange(40.0)
    gone = np.where(step < 12, 1.0, WRITTEN_NULL)
    table = {"step": step, "reward": step / 40, "loss": gone, "grad_norm": gone, "kl": gone, "entropy": gone}
    assert {name: int(rows.sum()) for name, rows in not_finite(table).items()} == {"loss": 28, "grad_norm": 28}
    assert not not_finite({**table, "reward": gone})  # the log ends there
    assert not not_finite({**table, "reward": np.where(step < 12, np.nan, 1.0)})  # a first phase without a reward
    every_second = np.where(step % 2 == 0, gone, WRITTEN_NULL)
    assert not not_finite({**table, "loss": every_second, "grad_norm": every_second})
    absent = np.where(step < 12, 1.0, np.nan)
    assert not not_finite({**table, "loss": absent, "grad_norm": absent})  # the key is no longer logged
