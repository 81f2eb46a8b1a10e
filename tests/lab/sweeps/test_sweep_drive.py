"""The driver: what is finished is kept, what died is tried once more, and kill -9 of a run or of the driver is
mended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from functools import partial
from pathlib import Path

import pytest
from asked import asked
from sweeping import BASE, gone, killed_at, phase, small

from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.core.files import alone
from grposcope.lab.sweeps import drive
from grposcope.lab.sweeps.processes import LocalProcesses
from grposcope.logs import read

PLAN = "seeds: 1\nbase: " + json.dumps(BASE) + "\ngrid: {recipe: [grpo, rloo]}\n"


class Scripted:
    """A launcher that starts nothing: runs end in the order of their starts, with the statuses given for each."""

    def __init__(self, statuses: dict[int, list[int]], slots: int = 2):
        self.statuses, self.slots, self.threads = statuses, slots, 1
        self.started: list[int] = []
        self.most, self.stopped = 0, False
        self._running: deque[int] = deque()

    def start(self, number: int, settings: Path, log: Path) -> None:
        assert json.loads(settings.read_text())["out"]
        self.started.append(number)
        self._running.append(number)
        self.most = max(self.most, len(self._running))
        log.write_text("Traceback\nValueError: bad luck\n")

    def ended(self) -> list[tuple[int, int]]:
        number = self._running.popleft()
        return [(number, self.statuses.get(number, [0]).pop(0) if self.statuses.get(number) else 0)]

    def stop(self, grace: float = 30.0) -> None:
        self.stopped = True


@pytest.fixture
def finishing(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Folders that count as finished; every run that ends with status 0 is added by the test's launcher."""
    done: set[Path] = set()
    monkeypatch.setattr(drive, "_finished", lambda folder: folder in done or folder.with_suffix(".log").exists())
    return done


def test_a_run_that_dies_is_tried_once_more(tmp_path: Path, finishing: set[Path]) -> None:
    launcher, said = Scripted({0: [-9, 0], 1: [70, -11]}), []
    states = drive.sweep(small(tmp_path), launcher, said.append)
    assert [state.status for state in states] == ["finished", "failed"]
    assert states[0].deaths == ("killed by SIGKILL",)
    assert states[1].deaths == ("ValueError: bad luck (status 70)", "killed by SIGSEGV")
    assert launcher.started == [0, 1, 0, 1]
    assert launcher.stopped
    assert any("died, killed by SIGKILL; it is tried once more" in line for line in said)
    assert "2 runs: 0 are finished, 2 to do, 2 at a time" in said[0]
    stored = json.loads((tmp_path / "sweep.json").read_text())
    assert [run["status"] for run in stored["runs"]] == ["finished", "failed"]


def test_what_the_user_can_mend_is_not_tried_again(tmp_path: Path, finishing: set[Path]) -> None:
    launcher = Scripted({0: [2]})
    states = drive.sweep(small(tmp_path), launcher)
    assert [state.status for state in states] == ["failed", "finished"]
    assert launcher.started == [0, 1]


def test_finished_runs_are_kept_and_no_more_run_at_a_time_than_asked(tmp_path: Path, finishing: set[Path]) -> None:
    plan = small(tmp_path, seeds=4)
    finishing |= {run.folder for run in plan.runs[:3]}
    launcher = Scripted({}, slots=2)
    states = drive.sweep(plan, launcher)
    assert launcher.started == [3, 4, 5, 6, 7]
    assert launcher.most == 2
    assert all(state.status == "finished" for state in states)


def test_a_folder_without_a_record_is_begun_again(tmp_path: Path, finishing: set[Path]) -> None:
    plan = small(tmp_path)
    (plan.runs[0].folder / "rollouts").mkdir(parents=True)
    drive.sweep(plan, Scripted({}))
    assert not plan.runs[0].folder.exists()  # nothing but the worker makes it again


def test_two_drivers_do_not_share_a_folder(tmp_path: Path, finishing: set[Path]) -> None:
    plan = small(tmp_path)
    with alone(plan.out, "sweep"), pytest.raises(UserError, match="another sweep is running in"):
        drive.sweep(plan, Scripted({}))


def test_runs_of_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    plan = small(tmp_path)
    folder = plan.runs[0].folder
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"format": 2, "settings": {"steps": 99}}))
    with pytest.raises(UserError, match="other settings \\(steps 99 there, 2 here\\)"):
        drive.sweep(plan, Scripted({}))


def test_cores_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grposcope.lab.sweeps.processes._cores", lambda: 8)
    made = [LocalProcesses(jobs, runs) for jobs, runs in ((None, 20), (None, 3), (2, 20), (9, 20))]
    assert [(p.slots, p.threads) for p in made] == [(8, 1), (3, 2), (2, 4), (9, 1)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    on_gpus = LocalProcesses(None, 20, gpus=2)
    assert on_gpus.slots == 2
    assert [on_gpus._environment(slot)["CUDA_VISIBLE_DEVICES"] for slot in (0, 1)] == ["4", "6"]


@pytest.mark.slow
def test_a_sweep_from_the_shell_and_once_more(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "two.yaml").write_text(PLAN)
    call = ["sweep", str(tmp_path / "two.yaml"), "--out", str(tmp_path / "out"), "--jobs", "2", "--json"]
    assert main(call) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert [run["status"] for run in document["runs"]] == ["finished", "finished"]
    assert [cell["mean"]["n"] for cell in document["cells"]] == [1, 1]
    assert "recipe=rloo" in (tmp_path / "out" / "page.html").read_text()
    assert "finished after" in err
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("summary.json")}
    assert len(before) == 2
    assert main(call) == 0  # nothing to do: the same table
    assert json.loads(capsys.readouterr().out)["cells"] == document["cells"]
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.slow
def test_kill_9_of_a_run_is_mended_from_its_checkpoint(tmp_path: Path) -> None:
    """The killed run ends as one that was left alone, step for step."""
    plan = small(tmp_path / "killed", recipes=("grpo",), steps=20)
    thread = killed_at(plan.runs[0].folder, 8)
    (state,) = drive.sweep(plan, LocalProcesses(1, 1))
    thread.join()
    assert state.deaths == ("killed by SIGKILL",)
    assert state.status == "finished"
    alone = small(tmp_path / "alone", recipes=("grpo",), steps=20)
    drive.sweep(alone, LocalProcesses(1, 1))
    runs = [read(plan.runs[0].folder), read(alone.runs[0].folder)]
    assert runs[0].table["step"].tolist() == list(range(1, 21))
    for name in ("reward", "loss", "grad_norm"):
        assert runs[0].table[name].tolist() == runs[1].table[name].tolist()


@pytest.mark.slow
def test_kill_9_of_the_driver_ends_its_runs_and_the_next_call_goes_on(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(PLAN.replace('"steps": 2', '"steps": 60').replace("grpo, rloo", "grpo"))
    out = tmp_path / "out"
    call = [
        sys.executable,
        "-m",
        "grposcope.cli",
        "sweep",
        str(tmp_path / "two.yaml"),
        "--out",
        str(out),
        "--jobs",
        "1",
    ]
    driver = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first = out / "recipe=grpo" / "seed-0"
    until = time.monotonic() + 120
    while phase(first).get("step", 0) < 5 and time.monotonic() < until:
        time.sleep(0.01)
    driver.kill()
    driver.wait()
    assert gone(phase(first)["pid"])
    reached = phase(first)["step"]
    assert reached < 60
    assert main(call[3:]) == 0
    run = read(first)
    assert run.meta.status == "finished"
    assert run.table["step"].tolist() == list(range(1, 61))
    log = (out / "recipe=grpo" / "seed-0.log").read_text()
    assert "a checkpoint is kept" in log  # the pipe from the driver had ended


@pytest.mark.slow
def test_ctrl_c_leaves_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(PLAN.replace('"steps": 2', '"steps": 60').replace("grpo, rloo", "grpo"))
    call = [sys.executable, "-m", "grposcope.cli", "sweep", str(tmp_path / "two.yaml"), "--out", str(tmp_path / "out")]
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # which what runs in the background does not
    driver = subprocess.Popen([*call, "--jobs", "1"], stderr=subprocess.PIPE, text=True, preexec_fn=heeds)
    first = tmp_path / "out" / "recipe=grpo" / "seed-0"
    until = time.monotonic() + 120
    while phase(first).get("step", 0) < 5 and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(driver.pid, signal.SIGINT)
    _, err = driver.communicate(timeout=90)
    assert driver.returncode == 130
    assert "every run writes a checkpoint" in err
    assert list((first / "checkpoints").glob("step-*"))
    assert json.loads((tmp_path / "out" / "sweep.json").read_text())["runs"][0]["status"] == "waiting"


@pytest.mark.slow
def test_a_run_that_cannot_work_is_reported_and_the_others_finish(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    text = "base: " + json.dumps(BASE) + "\ncells:\n- {recipe: grpo}\n- {name: none, model: ./nowhere}\n"
    (tmp_path / "two.yaml").write_text(text)
    status, document = asked("sweep", tmp_path / "two.yaml", "--out", tmp_path / "out", "--jobs", "2")
    assert status == 1
    out = capsys.readouterr().out
    assert "Runs that failed" in out
    assert "none, seed 0  error: no model in ./nowhere" in out
    assert document["runs"][0]["status"] == "finished"
