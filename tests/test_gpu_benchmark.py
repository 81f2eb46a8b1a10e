"""`make gpu` with small sizes on a CPU: every part gives figures or says what it lacks; and paths that a GPU takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from places import ROOT

from grposcope.lab import policies
from grposcope.lab.sampling import accumulate
from grposcope.lab.train import setup

SCRIPT = ROOT / "benchmarks" / "gpu" / "run.py"


def run(out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--small", "--out", str(out), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_parts_run_on_a_cpu_and_are_not_run_twice(tmp_path: Path) -> None:
    first = run(tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    parts = json.loads((tmp_path / "results.json").read_text())["parts"]
    assert {part["state"] for part in parts.values()} <= {"measured", "absent"}
    measured = {name for name, part in parts.items() if part["state"] == "measured"}
    checks = {f"{what}: {dtype}" for what in ("probe against autograd", "resume", "sampler against update")
              for dtype in ("float32", "bfloat16")}  # fmt: skip
    speeds = {f"{model}: {what}" for model in ("tiny", "small")
              for what in ("sampling", "update", "probe", "credit", "offpolicy")}  # fmt: skip
    assert checks | speeds <= measured
    table = (tmp_path / "results.md").read_text()
    assert all(f"| {name} |" in table for name in parts)
    again = run(tmp_path, "--only", "small: update")
    assert "small: update " not in again.stdout


@pytest.mark.slow
def test_a_part_that_takes_too_long_is_ended_and_the_next_goes_on(tmp_path: Path) -> None:
    run(tmp_path, "--only", "small: up", "--part-minutes", "0.001")
    parts = json.loads((tmp_path / "results.json").read_text())["parts"]
    assert parts["small: update"]["state"] == "too slow"


@pytest.mark.slow
def test_without_a_gpu_nothing_is_measured_unless_small(monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "sees no GPU" in done.stdout


def test_what_pytorch_holds_of_a_gpu_counts_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    assert policies.available_memory(torch.device("cuda", 1)) == 40


def test_a_batch_without_live_rollouts_stays_on_its_device() -> None:
    class Empty:
        mask = torch.ones(2, 3, device="meta")

    none = torch.zeros(0, dtype=torch.long, device="meta")
    found = accumulate.accumulate(None, Empty(), none, 1.0, 1, lambda rows, logp: logp)  # type: ignore[arg-type]
    assert {array.device.type for array in found} == {"meta"}


def test_a_micro_batch_on_a_gpu_leaves_room_for_the_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policies.load("tiny")
    monkeypatch.setattr(setup, "_kept_bytes", lambda model: None)
    monkeypatch.setattr(type(policy.model), "device", torch.device("cuda", 1))
    weights = sum(p.numel() * p.element_size() for p in policy.model.parameters())
    sizes = []
    for more in (0, 3 * weights):
        monkeypatch.setattr(policies, "available_memory", lambda device, more=more: 1e9 + more)
        sizes.append(setup.micro_batch(policy, 100))
    monkeypatch.setattr(policies, "available_memory", lambda device: 2e9 + 3 * weights)
    assert sizes[0] < sizes[1]
    assert setup.micro_batch(policy, 100) == pytest.approx(2 * sizes[1], abs=1)
