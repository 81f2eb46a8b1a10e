"""Which rollouts are read: of one run, of whole groups, with a note on what is left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import written_texts

from grposcope.core.rollouts import Rollout
from grposcope.signs.texts import sample


def rows(steps: range, text: str) -> list[Rollout]:
    return [Rollout(step=step, group=str(step), prompt="p", completion=f"{text}{step}", reward=0.0) for step in steps]


@pytest.mark.parametrize(
    ("runs", "kept", "left"),
    [
        ([("a", range(1, 5)), ("b", range(1, 4))], ["b1", "b2", "b3"], 4),
        ([("a", range(1, 5)), ("b", range(3, 6))], ["a1", "a2", "b3", "b4", "b5"], 2),
        ([("a", range(1, 5)), ("b", range(3, 6)), ("c", range(2, 4))], ["a1", "c2", "c3"], 6),
        ([("a", range(1, 3)), ("b", range(3, 5))], ["a1", "a2", "b3", "b4"], 0),
        ([("a", range(9, 1, -1))], [f"a{step}" for step in range(9, 1, -1)], 0),  # in no order of steps
    ],
)
def test_runs_that_follow_one_another_are_the_last_of_each_step(
    runs: list[tuple[str, range]], kept: list[str], left: int
) -> None:
    own = sample.of_rollouts([row for text, steps in runs for row in rows(steps, text)])
    assert list(own.texts) == kept
    told = [note for note in own.notes if note.startswith("The steps go back")]
    assert [note.split("file; ")[1].split(" ")[0] for note in told] == ([str(left)] if left else [])


def test_runs_that_a_column_names_are_read_one_at_a_time() -> None:
    both = [replace(row, columns={"run": name}) for name, steps in (("a", range(3)), ("b", range(5)))
            for row in rows(steps, name)]  # fmt: skip
    own = sample.of_rollouts(both)
    assert list(own.texts) == [f"b{step}" for step in range(5)]
    assert own.notes == ("The rollouts are of 2 runs by the column run; those of b are read, which has most.",)


def test_whole_groups_evenly_over_the_run_are_read_of_many() -> None:
    own = written_texts.rollouts(None, 1, steps=20, prompts=4)
    read = sample.of_rollouts(own, most=200)
    assert len(read) <= 200
    assert (np.bincount(read.group) == 8).all()
    steps = np.unique(read.step)
    assert (steps[0], steps[-1]) == (1, 20)
    assert np.diff(steps).max() <= 2
    assert read.notes == (f"{len(read)} of 640 rollouts are read: {len(read) // 8} whole groups, evenly over the run.",)
