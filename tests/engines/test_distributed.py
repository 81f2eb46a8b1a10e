"""A probe shared by two and three processes equals that of one; a failure of one ends all, with its reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.instruments.gradient.probe_record import read_gram

HERE = Path(__file__).parent
EQUAL = (
    "replicated, fast",
    "DDP, exact, matrices split",
    "FSDP2, fast, matrices split",
    "FSDP2, exact",
    "works again",
    "experts",
    "parts apart",
)


@pytest.fixture(
    scope="module", params=[pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What every rank found, by case."""
    folder, count = tmp_path_factory.mktemp("ranks"), request.param
    path = os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE.parent / "helpers")])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}"]
    done = subprocess.run(
        [*command, str(HERE / "rank_cases.py"), str(folder)],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(count)]


@pytest.mark.parametrize("case", EQUAL)
def test_several_processes_measure_what_one_measures(found: list[dict[str, Any]], case: str) -> None:
    for rank in found:
        assert max(rank[case].values()) <= 1e-7, rank[case]


def test_a_rank_that_fails_ends_all_within_seconds(found: list[dict[str, Any]]) -> None:
    *others, last = [rank["a rank fails"] for rank in found]
    assert last[0] == "layer such and such: not finite"
    for message, seconds in others:
        assert message == f"process {len(found) - 1} of {len(found)} ended this probe: layer such and such: not finite"
        assert seconds < 30


def test_rollouts_that_cannot_be_shared_are_refused_everywhere(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert f" cannot be shared by {len(found)} processes" in rank["too few rollouts"][0]
        assert rank["groups of several sizes"][0].startswith("groups have 5 to 10 rollouts over all ranks")


@pytest.mark.slow
def test_the_command_under_torchrun_writes_the_probe_of_one_process(tmp_path: Path) -> None:
    """Twenty prompts are drawn in two parts, one by each process."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    asked = ["-m", "grposcope", "probe", "--prompts", "20", "--group", "4", "--json"]

    def run(before: list[str], out: str, *flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *before, *asked, "--out", str(tmp_path / out), *flags],
            env=os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src"), "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    both, one = run(torchrun, "two"), run([], "one")
    assert both.returncode == one.returncode == 0, both.stderr[-2000:]
    assert len(both.stdout.strip().splitlines()) == 1, "one process prints"
    grams = [read_gram(tmp_path / out, layers=True) for out in ("two", "one")]
    assert grams[0].layer_names == grams[1].layer_names
    assert np.abs(grams[0].gram - grams[1].gram).max() <= 1e-6 * np.abs(grams[1].gram).max()
    refused = run(torchrun, "two")
    said = [line for line in refused.stderr.splitlines() if line.startswith("grposcope: error")]
    assert len(said) == 1
    assert "is not empty" in said[0]
