"""The record's files: strict JSON, atomic, one writer, never over an existing run, whole on a full disk."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.files import dumps, write_json
from grposcope.core.rollouts import Rollout
from grposcope.logs.native.schema import FORMAT, RunConfig
from grposcope.logs.native.writer import RunWriter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_numbers_that_are_not_finite_stay_visible() -> None:
    text = dumps({"a": [math.nan, math.inf, -math.inf, 1.5], "b": Estimate(math.nan, 0.0, 3, "why")})
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == {
        "a": ["NaN", "Infinity", "-Infinity", 1.5],
        "b": {"value": "NaN", "se": 0.0, "n": 3, "flag": "why"},
    }


@pytest.mark.parametrize(
    "hidden", ["\x1b[2J", "\x7f", "\x9b2J", "\x85", "\u2028", "\u202e", "\u2066", "\ufeff", "\U000e0041", "\ud800"]
)
def test_nothing_in_it_acts_on_a_terminal(hidden: str) -> None:
    """C1 controls, reversed writing, other line ends, invisible letters; parsed, the text is what it was."""
    content = {f"key {hidden}": [f"é 漢 {hidden}", math.nan]}
    text = dumps(content)
    assert json.loads(text) == {f"key {hidden}": [f"é 漢 {hidden}", "NaN"]}
    assert text.isprintable()
    assert "é 漢" in text
    assert text.encode()
    assert len(text.splitlines()) == 1


def test_lines_are_there_as_soon_as_they_are_written(folder: Path) -> None:
    with RunWriter.create(folder, RunConfig(settings={"seed": 1})) as record:
        record.step({"step": 1})
        record.group([{"step": 1, "rewards": [0.0, 1.0]}, {"step": 1, "rewards": [math.nan]}])
        record.evaluation({"step": 1})
        row = json.loads((folder / "steps.jsonl").read_text())
        assert row.pop("time") > 1.7e9
        assert row == {"step": 1}
        groups = [json.loads(line) for line in (folder / "groups.jsonl").read_text().splitlines()]
        assert [g["rewards"] for g in groups] == [[0.0, 1.0], ["NaN"]]
    assert json.loads((folder / "config.json").read_text()) == {"format": FORMAT, "settings": {"seed": 1}}


def test_files_appear_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "summary.json"
    write_json(target, {"old": True})
    monkeypatch.setattr("os.fsync", lambda number: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_json(target, {"new": True})
    assert json.loads(target.read_text()) == {"old": True}


def test_folders_in_use_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        RunWriter.create(tmp_path, RunConfig())
    with pytest.raises(UserError, match="is a file"):
        RunWriter.create(tmp_path / "notes.txt", RunConfig())
    assert sorted(f.name for f in tmp_path.iterdir()) == ["notes.txt"]


def test_one_writer_at_a_time(folder: Path) -> None:
    with RunWriter.create(folder, RunConfig()) as record:
        record.step({"step": 1})
        code = (
            "import sys; from pathlib import Path; from grposcope.logs.native.writer import RunWriter\n"
            "RunWriter.reopen(Path(sys.argv[1]), {'steps': 0, 'groups': 0, 'evals': 0}, 0)"
        )
        other = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
        assert f"is being written by another process (pid {os.getpid()})" in other.stderr
        assert (folder / "steps.jsonl").stat().st_size > 0
    RunWriter.reopen(folder, {"steps": 0, "groups": 0, "evals": 0}, 0).close()


def test_a_line_that_does_not_fit_is_taken_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 10:
            raise OSError(28, "No space left on device")
        return whole(file, data[: len(data) - 5])

    with RunWriter.create(folder, RunConfig()) as record:
        record.evaluation({"step": 1})
        monkeypatch.setattr("os.write", full)
        with pytest.raises(UserError, match=r"evals.jsonl: No space left on device; make room, then resume"):
            record.evaluation({"step": 2})
    assert (folder / "evals.jsonl").read_text() == '{"step": 1}\n'


def test_a_device_that_is_really_full(folder: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    folder.mkdir()
    with RunWriter.create(folder, RunConfig()) as record:
        os.dup2(os.open("/dev/full", os.O_WRONLY), record._files["steps"])
        with pytest.raises(UserError, match=r"cannot write .*steps.jsonl: .*; make room, then resume"):
            record.step({"step": 1})


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="Permission denied; choose another folder"):
        RunWriter.create(tmp_path / "run", RunConfig())


def test_reopening_takes_back_what_came_after_the_checkpoint(folder: Path) -> None:
    with RunWriter.create(folder, RunConfig()) as record:
        record.step({"step": 1})
        record.rollouts(1, [sample()])
        sizes = record.sizes()
        record.step({"step": 2})
        record.rollouts(2, [sample()])
        os.write(record._files["steps"], b'{"step": 3, "rew')
    (folder / "rollouts" / ".step-000003.parquet.99.part").write_text("cut")
    RunWriter.reopen(folder, sizes, 1).close()
    assert [json.loads(line)["step"] for line in (folder / "steps.jsonl").read_text().splitlines()] == [1]
    assert [f.name for f in (folder / "rollouts").iterdir()] == ["step-000001.parquet"]


def test_a_record_shorter_than_its_checkpoint_is_named(folder: Path) -> None:
    with RunWriter.create(folder, RunConfig()) as record:
        record.step({"step": 1})
        sizes = record.sizes()
    (folder / "steps.jsonl").write_text("")
    with pytest.raises(UserError, match=r"steps.jsonl is shorter than at the checkpoint of step 1"):
        RunWriter.reopen(folder, sizes, 1)


def sample() -> Rollout:
    logp, entropy, weight = np.array([-0.5, math.nan]), np.array([0.1, 0.2]), np.zeros(2)
    return Rollout(
        problem="p1", prompt="1+1=", index=0, completion="</script>\x1b[31m2", reward=1.0, truncated=False,
        tokens=("</", "2"), sampler=logp, entropy=entropy, loss_weights=weight,
    )  # fmt: skip


def test_sampled_rollouts_are_parquet(folder: Path) -> None:
    with RunWriter.create(folder, RunConfig()) as record:
        record.rollouts(7, [sample(), sample()])
    table = pq.read_table(folder / "rollouts" / "step-000007.parquet").to_pylist()
    assert len(table) == 2
    assert table[0]["step"] == 7
    assert table[0]["completion"] == "</script>\x1b[31m2"
    assert table[0]["tokens"] == ["</", "2"]
    assert table[0]["logp"][0] == -0.5
    assert math.isnan(table[0]["logp"][1])


def test_the_phase_is_one_document_at_any_moment(folder: Path) -> None:
    with RunWriter.create(folder, RunConfig()) as record:
        record.phase("sampling", 9, 1000)
        size = (folder / "phase.json").stat().st_size
        record.phase("checkpoint", 1000, 1000)
    state = json.loads((folder / "phase.json").read_text())
    assert (state["phase"], state["step"], state["steps"], state["pid"]) == ("checkpoint", 1000, 1000, os.getpid())
    assert (folder / "phase.json").stat().st_size == size


def test_the_lock_of_a_killed_process_is_taken_from_the_child_it_left(folder: Path) -> None:
    """A child inherits the lock, and goes on holding it when its parent is killed."""
    code = (
        "import os, sys, time; from pathlib import Path\n"
        "from grposcope.logs.native.schema import RunConfig; from grposcope.logs.native.writer import RunWriter\n"
        "record = RunWriter.create(Path(sys.argv[1]), RunConfig()); record.step({'step': 1})\n"
        "child = os.fork()\n"
        "if not child: time.sleep(60); os._exit(0)\n"
        "print(child, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    nothing = {"steps": 0, "groups": 0, "evals": 0}
    try:
        with pytest.raises(UserError, match=rf"{folder} is being written by another process \(pid {parent.pid}\)"):
            RunWriter.reopen(folder, nothing, 0)
        parent.kill()
        parent.wait()
        os.kill(child, 0)  # it lives
        with RunWriter.reopen(folder, nothing, 0) as record:
            record.step({"step": 2})
            with pytest.raises(UserError, match=rf"pid {os.getpid()}"):
                RunWriter.reopen(folder, nothing, 0)
    finally:
        parent.kill()
        os.kill(child, signal.SIGKILL)


def test_a_lock_of_another_machine_is_left_alone(folder: Path) -> None:
    with RunWriter.create(folder, RunConfig()):
        (folder / ".lock").write_text("999999999 elsewhere")
        with pytest.raises(UserError, match="pid 999999999 on elsewhere"):
            RunWriter.reopen(folder, {"steps": 0, "groups": 0, "evals": 0}, 0)
