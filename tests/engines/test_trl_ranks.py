"""GRPOscopeTrainer on two ranks: its probes are those of one process, and training is what it is without them."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.rewards import probe_file

pytest.importorskip("trl")
pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
RANKS = 2
CASES = ("replicated", "replicated, accumulated", "sharded", "sharded, accumulated", "sharded, bfloat16")


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Runs all cases under torchrun; the folder that has what each rank found, and what they printed."""
    folder = tmp_path_factory.mktemp("ranks")
    path = os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE.parent), str(HERE), str(HERE.parent / "helpers")])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={RANKS}"]
    done = subprocess.run(
        [*command, str(HERE / "trainer_cases.py"), str(folder), *CASES, "a rank fails", "constrained"],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    return folder, done.stderr


def found(folder: Path, case: str) -> list[dict[str, Any]]:
    """What every rank found."""
    return [json.loads((folder / case / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, launched: tuple[Path, str]) -> tuple[Path, str]:
    """The folder of a case, and its name."""
    return launched[0], request.param


def test_every_rank_gets_the_probe_of_one_process(case: tuple[Path, str]) -> None:
    """Of 3 groups of 4, the second straddles the two ranks. What is sharded in bfloat16 is compared with float32."""
    allowed = 0.05 if "bfloat16" in case[1] else 1e-6
    for rank in found(*case):
        assert len(rank["differences"]) == 2  # of steps 1 and 3
        for off in rank["differences"]:
            assert max(off.values()) <= allowed, off


def test_training_goes_on_on_every_rank_as_it_does_without_probes(case: tuple[Path, str]) -> None:
    ranks = found(*case)
    for rank in ranks:
        assert rank["probed"] == rank["plain"]
        assert (rank["probed"]["modules sharded"] > 2) == case[1].startswith("sharded")
    different = len({rank["probed"]["weights"] for rank in ranks})
    assert different == (RANKS if case[1].startswith("sharded") else 1)


def test_the_probe_is_of_the_gradient_that_all_ranks_take_together(case: tuple[Path, str]) -> None:
    """TRL logs the norm of the gradient averaged over ranks; ours comes from the probe's weights and Gram matrix."""
    folder = case[0] / case[1] / "probed" / "grposcope"
    rows = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "geometry/rollout_stable" in row] == [1, 3]
    for row in rows[::2]:
        record = probes.read(folder / "probes" / f"step-{row['step'] - 1:06d}")
        assert (record.prompts, record.group) == (3, 4)
        weights = [rollout.loss_weights for rollout in record.read_rollouts()]
        u = np.array([own[0] if own is not None and len(own) else 0.0 for own in weights])
        assert row["grad_norm"] > 1e-3
        assert math.sqrt(u @ record.read_gram().gram @ u) == pytest.approx(
            row["grad_norm"], rel=0.01 if "bfloat16" in case[1] else 1e-4
        )


def test_a_rank_that_fails_ends_the_probe_and_not_the_training(launched: tuple[Path, str]) -> None:
    folder, said = launched
    ranks = found(folder, "a rank fails")
    assert ranks[0]["weights"] == ranks[1]["weights"]
    assert "step 1: no geometry: process 1 of 2 ended this probe: RuntimeError: such and such" in said
    names = sorted(place.name for place in (folder / "a rank fails" / "failing" / "grposcope" / "probes").iterdir())
    assert names == ["step-000002"]


def test_multipliers_and_advantages_are_those_of_all_ranks(launched: tuple[Path, str]) -> None:
    """Recomputed from what the ranks saw of each batch: 12 rollouts, of which a group straddles the two ranks."""
    place = launched[0] / "constrained"
    ranks = found(launched[0], "constrained")
    assert ranks[0]["weights"] == ranks[1]["weights"]
    integral = np.zeros(2)
    for parts in zip(*(rank["batches"] for rank in ranks), strict=True):
        assert parts[0]["rewards"] == parts[1]["rewards"]
        rewards = np.array(parts[0]["rewards"]).reshape(3, 4, 2)
        lengths = np.concatenate([part["lengths"] for part in parts]).reshape(3, 4).astype(float)
        costs = lengths, -rewards[..., 0]
        expected = sum(z(rewards[..., j]) for j in range(2)) - sum(
            m * z(c) for m, c in zip(integral, costs, strict=True)
        )
        given = np.concatenate([part["advantages"] for part in parts])
        np.testing.assert_allclose(given, np.reshape(expected, -1), atol=2e-5)
        violations = lengths.mean() / 3 - 1, 1 - rewards[..., 0].mean() / 0.5
        integral = np.maximum(integral + 0.5 * np.array(violations), 0)
        for part in parts:
            assert part["multipliers"] == pytest.approx(integral, rel=1e-5)
    assert integral.any()
    probed = probe_file.in_folder(place)
    assert [one.step for one in probed] == [1, 3]
    assert probed[1].names[:2] == ("reward_letters", "reward_length")
    assert probed[1].constraints >= 1
    kept = json.loads((place / "checkpoint-2" / "grposcope_constraints.json").read_text())
    assert kept["dual"]["multipliers"] == pytest.approx(ranks[1]["batches"][1]["multipliers"])


def z(values: np.ndarray) -> np.ndarray:
    """Standardized within groups."""
    deviation = values.std(1, ddof=1, keepdims=True)
    less = values - values.mean(1, keepdims=True)
    return np.divide(less, deviation + 1e-4, out=np.zeros_like(less), where=deviation > 1e-9)
