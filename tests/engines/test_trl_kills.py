"""Kills of TRL runs, alone and under torchrun: the record is whole, and the resumed run completes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import TESTS

from grposcope.logs import read

pytest.importorskip("trl")
pytestmark = pytest.mark.slow

SCRIPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from engines import tiny_trl
from grposcope.engines.trl import GRPOscopeCallback
from grposcope.engines.trl.draws import checkpoint

folder = Path(sys.argv[1])
rank = os.environ.get("RANK", "0")
(folder / f"rank{{rank}}").write_text(str(os.getpid()))
trainer = tiny_trl.trainer(folder, [GRPOscopeCallback()], max_steps=60, save_strategy="steps", save_steps=10,
                           per_device_train_batch_size=4, log_completions=True)
trainer.train(resume_from_checkpoint=checkpoint(folder, True) if len(sys.argv) > 2 else None)
"""


def launched(folder: Path, ranks: int, *more: str) -> subprocess.Popen[str]:
    """A run of 60 steps in `folder`, under torchrun for several ranks."""
    script = folder.parent / "script.py"
    script.write_text(SCRIPT.format(tests=str(TESTS)))
    alone = [sys.executable, str(script), str(folder), *more]
    together = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", *alone[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return subprocess.Popen(alone if ranks == 1 else together, env=environment, stderr=subprocess.PIPE, text=True)


def after(folder: Path, step: int, process: subprocess.Popen[str], act: Callable[[], None]) -> tuple[int, str]:
    """Do `act` once the record has a row of `step`; returns the exit status and stderr."""
    steps = folder / "grposcope" / "steps.jsonl"
    for _ in range(1200):
        if process.poll() is not None:
            raise AssertionError(process.communicate()[1])
        if steps.exists() and steps.read_bytes().count(b"\n") >= step:
            break
        time.sleep(0.1)
    act()
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def rows(folder: Path, name: str = "steps") -> list[dict[str, Any]]:
    text = (folder / "grposcope" / f"{name}.jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(("ranks", "victim"), [(1, 0), (2, 1), (2, 0)])
def test_a_killed_run_is_completed_by_the_resumed_one(tmp_path: Path, ranks: int, victim: int) -> None:
    folder = tmp_path / "out"
    folder.mkdir()

    def kill() -> None:
        os.kill(int((folder / f"rank{victim}").read_text()), signal.SIGKILL)

    status, said = after(folder, 25, launched(folder, ranks), kill)
    assert status != 0
    if ranks > 1:
        assert "exitcode: -9" in said or "SIGKILL" in said or "Signal 9" in said
    before = rows(folder)
    assert [row["step"] for row in before] == list(range(1, len(before) + 1))
    assert read(folder / "grposcope").steps == len(before)
    process = launched(folder, ranks, "resume")
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    assert [row["step"] for row in rows(folder)] == list(range(1, 61))
    assert rows(folder)[:20] == before[:20]  # up to the checkpoint nothing is written again
    assert read(folder / "grposcope").meta.status == "finished"
    steps = [row["step"] for row in rows(folder, "groups")]
    assert steps == sorted(steps)
    assert set(steps) == set(range(1, 61))
