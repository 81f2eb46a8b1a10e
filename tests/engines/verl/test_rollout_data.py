"""The fixture of verl's rollout_data_dir: what the installed verl writes, and what our reader makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engines.verl import rollout_data
from grposcope.logs import read


def test_the_installed_verl_writes_the_fixture(tmp_path: Path) -> None:
    pytest.importorskip("verl", reason="needs the extra verl: make test-verl")
    rollout_data.write(tmp_path)
    for file in sorted(rollout_data.FIXTURE.rglob("*.jsonl")):
        written = tmp_path / file.relative_to(rollout_data.FIXTURE)
        assert written.read_text() == file.read_text()


@pytest.mark.parametrize("trainer", ["v0", "v1"])
def test_the_fixture_is_read_as_groups(trainer: str) -> None:
    run = read(rollout_data.FIXTURE / trainer)
    assert run.groups.step.tolist() == [1, 1, 2, 2]
    assert run.groups.sizes.tolist() == [4, 4, 4, 4]
    np.testing.assert_allclose(run.table["reward"], [5 / 8, 7 / 8])
    assert sorted(rollout.completion for rollout in run.rollouts[1])[:3] == ["12-4=8", "13-4=9", "13-4=9"]
