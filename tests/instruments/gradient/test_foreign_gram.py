"""A Gram matrix of another probe, copied beside a probe.json, is refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import synthetic_probe

from grposcope.core.errors import UserError
from grposcope.instruments.gradient.probe_record import read_gram


@pytest.mark.parametrize(("prompts", "seed", "said"), [(8, 0, "8 × 4 rollouts"), (12, 3, "mean reward")])
def test_it_is_refused(tmp_path: Path, prompts: int, seed: int, said: str) -> None:
    own = synthetic_probe.make(tmp_path / "own", prompts=12, group=4)
    other = synthetic_probe.make(tmp_path / "other", prompts=prompts, group=4, seed=seed)
    assert read_gram(own).rewards.shape == (12, 4)
    shutil.copy(other / "gram.npz", own)
    with pytest.raises(UserError, match=said):
        read_gram(own)
