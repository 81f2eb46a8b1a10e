"""rows_of and what it takes for one value, and updates after the first."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grposcope.instruments.verify import read, row_file
from grposcope.instruments.verify.own_loop import rows_of, verify_batch
from grposcope.signs.rollouts.evidence import Stated


def test_one_version_is_that_of_all_rows() -> None:
    """As docs/verify.md has it."""
    step = 7
    rows = rows_of([[1], [1]], [[3, 4], [5]], group=2, step=step, version=step - 1, truncated=False)
    assert [row.version for row in rows] == [6.0, 6.0]
    assert [row.truncated for row in rows] == [False, False]
    assert verify_batch(rows, Stated(group=2)).word in ("healthy", "cannot tell")


def test_what_the_last_update_took_is_kept(tmp_path: Path) -> None:
    rows = rows_of([[1]], [[3, 4]], group=1, step=1, current=[[-1.0, -2.0]], loss_weights=[[0.1, 0.2]],
                   last=[[-1.5, -2.5]], last_weights=[[0.3, 0.0]], last_step=2)  # fmt: skip
    again = read.rows(row_file.write(tmp_path, 1, rows))
    for row in (rows[0], again[0]):
        assert row.last is not None
        assert row.last_weights is not None
        np.testing.assert_allclose([row.last, row.last_weights], [[-1.5, -2.5], [0.3, 0.0]])
        assert row.last_step == 2
