"""Logs and probes are read, judged and drawn without torch; JSON lines also without pyarrow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import synthetic
import synthetic_probe

PRELUDE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from grposcope.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""Run the command line in an interpreter in which some packages are not installed."""

TRAINING = ("torch", "transformers", "accelerate", "trl")


def call(*arguments: str | Path, absent: tuple[str, ...] = TRAINING) -> str:
    """Standard output of the command line without the packages `absent`; it must succeed."""
    done = attempt(*arguments, absent=absent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def attempt(*arguments: str | Path, absent: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, without the packages `absent`."""
    command = [sys.executable, "-c", PRELUDE.format(absent=set(absent)), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "COLUMNS": "100"})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.make(tmp_path_factory.mktemp("runs") / "run", steps=40)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What TRL prints, a line of JSON per logging step."""
    path = tmp_path_factory.mktemp("logs") / "log.jsonl"
    rng = np.random.default_rng(0)
    rows = [
        {"step": i + 1, "reward": 0.3 + 0.005 * i + rng.normal(0, 0.02), "kl": 0.001 * i, "loss": 0.01,
         "completion_length": 100.0, "reward_std": 0.3, "grad_norm": 0.2}
        for i in range(80)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("command", [["diagnose"], ["compare"], ["watch", "--once"], ["report", "--json"], ["fit"],
                                     ["plan"]], ids=" ".join)  # fmt: skip
def test_commands_for_logs_need_no_torch(command: list[str], run: Path, tmp_path: Path) -> None:
    runs = [run, synthetic.make(tmp_path / "other", steps=40, seed=1)] if command == ["compare"] else [run]
    assert json.loads(call(*command, *runs).splitlines()[-1])


def test_the_page_needs_no_torch(run: Path, log: Path, tmp_path: Path) -> None:
    call("report", run, log, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 100_000


def test_a_setting_is_judged_without_torch() -> None:
    call("stability", "--lr", "0.1", "--momentum", "0.9", "--curvature", "0.1", "--interval", "20")


def test_a_probe_is_read_without_torch(tmp_path: Path) -> None:
    probe = synthetic_probe.make(tmp_path / "probe")
    assert json.loads(call("plan", probe).splitlines()[-1])
    call("report", probe, "--json")


@pytest.mark.parametrize("command", [["diagnose"], ["watch", "--once"], ["report", "--json"], ["fit"]], ids=" ".join)
def test_json_lines_need_no_pyarrow(command: list[str], log: Path) -> None:
    call(*command, log, absent=(*TRAINING, "pyarrow"))


@pytest.mark.parametrize("command", [["diagnose"], ["watch", "--once"], ["report", "--json"], ["fit"]], ids=" ".join)
def test_logs_are_judged_without_the_slow_parts_of_scipy(command: list[str], log: Path) -> None:
    """Importing `scipy.stats` takes a third of a second and `scipy.optimize` a quarter: more than the diagnosis."""
    code = (
        "import sys; from grposcope.cli import main; status = main(sys.argv[1:]); "
        "sys.exit(status or ', '.join({'scipy.stats', 'scipy.optimize', 'scipy.signal'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command, str(log)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [["diagnose"], ["fit"]], ids=" ".join)
def test_a_record_is_read_alike_without_pyarrow(command: list[str], run: Path) -> None:
    assert call(*command, run, absent=(*TRAINING, "pyarrow")) == call(*command, run)


LAB = (*TRAINING, "huggingface_hub", "jaxtyping", "pyarrow", "safetensors", "tqdm")


@pytest.mark.parametrize("command", [["train"], ["probe"], ["train", "--help"]], ids=" ".join)
def test_a_command_that_needs_an_extra_names_it_in_one_line(command: list[str]) -> None:
    done = attempt(*command, absent=LAB)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "which the extra `lab` of GRPOscope installs" in line


def test_the_page_of_a_record_needs_none_of_the_packages_of_the_lab(tmp_path: Path) -> None:
    """Its rollouts are in Parquet files; without pyarrow the page says why it does not show them."""
    run = synthetic.make(tmp_path / "run", steps=40)
    assert list((run / "rollouts").glob("*.parquet"))
    call("report", run, "--out", tmp_path / "page.html", absent=LAB)
    assert "needs pyarrow" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("command", [["diagnose"], ["watch", "--once"], ["report", "--json"], ["fit"]], ids=" ".join)
def test_logs_need_none_of_the_packages_of_the_lab(command: list[str], log: Path) -> None:
    call(*command, log, absent=LAB)
