"""The same sweep on a Ray cluster of this machine. Needs ray, which the environment of verl has (`make test-verl`)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from sweeping import killed_at, small

from grposcope.core.errors import UserError
from grposcope.lab.sweeps import drive, on_ray, table

ray = pytest.importorskip("ray", reason="needs ray, which the environment of verl has: make test-verl")


@pytest.fixture
def tasks() -> on_ray.RayTasks:
    return on_ray.RayTasks("", 1, 2)


@pytest.mark.slow
def test_a_sweep_on_ray_survives_kill_9_of_a_run(tmp_path: Path, tasks: on_ray.RayTasks) -> None:
    from grposcope.logs import read

    plan = small(tmp_path, steps=20)
    thread = killed_at(plan.runs[0].folder, 6)
    states = drive.sweep(plan, tasks)
    thread.join()
    assert states[0].deaths == ("killed by SIGKILL",)
    assert [state.status for state in states] == ["finished", "finished"]
    runs = {(state.run.cell, state.run.seed): read(state.run.folder) for state in states}
    assert [row.mean.n for row in table.of_runs(plan, runs).cells] == [1, 1]
    assert not ray.is_initialized()


@pytest.mark.slow
def test_kill_9_of_a_ray_worker_is_a_death_like_any_other(tmp_path: Path, tasks: on_ray.RayTasks) -> None:
    """A task that kills its own worker; the driver sees the status of a run whose node died."""
    suicide = ray.remote(max_retries=0)(lambda: os.kill(os.getpid(), signal.SIGKILL))
    tasks._running[suicide.remote()] = 0
    ended: list[tuple[int, int]] = []
    while not ended:
        ended = tasks.ended()
    assert ended == [(0, on_ray.KILLED)]
    tasks.stop()


def test_no_cluster_at_an_address_is_one_line() -> None:
    with pytest.raises(UserError, match=r"no Ray cluster at 127\.0\.0\.1:1"):
        on_ray.RayTasks("127.0.0.1:1", 1, 1)
