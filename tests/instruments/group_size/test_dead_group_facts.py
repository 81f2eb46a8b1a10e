"""Dead groups of a run: what counts as a success, windows of steps, and why chance cannot be told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic

from grposcope.instruments.group_size.dead_groups_answer import _counted_successes, _dead_groups_of
from grposcope.logs import Run, read


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder: Path = tmp_path_factory.mktemp("runs") / "one"
    synthetic.make(folder, steps=60, prompts=16)
    return read(folder)


def test_success_is_the_larger_of_two_rewards(run: Run) -> None:
    shifted = replace(run.groups, rewards=2 * run.groups.rewards - 1)
    expected = run.groups.rewards.reshape(-1, 8).sum(1)
    np.testing.assert_array_equal(_counted_successes(run.groups), expected)
    np.testing.assert_array_equal(_counted_successes(shifted), expected)


def test_many_values_have_no_successes(run: Run) -> None:
    graded = replace(run.groups, rewards=run.groups.rewards + np.arange(len(run.groups.rewards)))
    assert _counted_successes(graded) is None
    found = _dead_groups_of(replace(run, groups=graded))
    assert found.windows is None
    assert "more than two values" in found.sentence()


def test_windows_hold_every_group_once(run: Run) -> None:
    found = _dead_groups_of(run).windows
    assert found is not None
    assert found.group == 8
    assert found.counts.sum() == len(run.groups)
    assert found.first[0] == 1
    assert found.last[-1] == 60
    assert (found.first[1:] == found.last[:-1] + 1).all()


def test_other_sizes_name_what_they_rest_on(run: Run) -> None:
    windows = _dead_groups_of(run).windows
    assert windows is not None
    sizes = {group: (share, basis) for group, share, basis in windows.other_sizes()}
    assert list(sizes) == [2, 4, 8, 16, 32]
    assert sizes[4][1].startswith("subsets")
    assert sizes[16][1] == "Beta prediction"
    last = windows.counts[-1]
    assert sizes[8][0].value == pytest.approx((last[0] + last[-1]) / last.sum())
