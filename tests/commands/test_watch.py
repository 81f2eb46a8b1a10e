"""`grposcope watch`: what it shows at every stage of a run, and when it ends."""

from __future__ import annotations

import argparse
import json
import math
import os
import threading
import time
from pathlib import Path

import pytest

import synthetic
from grposcope.commands import watch
from grposcope.errors import UserError
from grposcope.report import live


def call(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    watch.add(parser.add_subparsers())
    given = parser.parse_args(["watch", *map(str, arguments)])
    return int(given.run(given))


def phase(folder: Path, name: str, **more: object) -> None:
    said = {"step": 20, "steps": 40, "phase": name, "time": synthetic.STARTED, "pid": os.getpid(), **more}
    (folder / "phase.json").write_text(json.dumps(said).ljust(200))


@pytest.fixture
def going(tmp_path: Path) -> Path:
    """A run of 40 steps, 20 of them done."""
    run = synthetic.make(tmp_path / "going", steps=20, phase="sampling", settings={"steps": 40})
    phase(run, "sampling")
    return run


def seen(run: Path, now: float | None = None) -> tuple[live.Watched, str]:
    watched = live.Watched(run)
    watched.look(now or synthetic.STARTED + 11)
    return watched, live.frame(watched, now or synthetic.STARTED + 11, 90)


def test_one_look(going: Path, capsys: pytest.CaptureFixture) -> None:
    assert call(going, "--once") == 0
    out = capsys.readouterr().out.splitlines()
    said = json.loads(out[-1])
    assert out[0] == "going · grpo on arithmetic:steps=3, tiny"
    assert "step 20 of 40 (50%) · sampling" in out[1]
    assert any(line.startswith("Held-out pass@1") and "at step 20" in line for line in out)
    assert said["step"] == 20
    assert said["latest"]["reward"] == json.loads((going / "steps.jsonl").read_text().splitlines()[-1])["reward"]


def test_time_left_is_from_the_clock(going: Path) -> None:
    watched, frame = seen(going)
    times = [json.loads(line)["time"] for line in (going / "steps.jsonl").read_text().splitlines()]
    each = (times[-1] - times[0]) / 19
    assert watched.seconds_per_step() == pytest.approx(each)
    assert watched.seconds_left() == pytest.approx(20 * each)
    assert "about" in frame
    assert all(len(line) <= 90 for line in frame.splitlines())


def test_the_first_format_is_timed_by_its_phases(tmp_path: Path) -> None:
    run = synthetic.make(tmp_path / "old", steps=10, version=1, phase="going", settings={"steps": 20})
    watched, _ = seen(run)
    rows = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    total = sum(row[f"seconds_{name}"] for row in rows for name in ("sample", "grade", "update"))
    assert watched.seconds_left() == pytest.approx(total)
    assert not watched.ended
    (run / "summary.json").write_text("{}")
    watched.look(synthetic.STARTED)
    assert watched.ended


def test_it_follows_until_the_run_ends(going: Path, capsys: pytest.CaptureFixture) -> None:
    """Rows arrive in pieces, the record is cut back and goes on, and the run finishes."""
    steps = going / "steps.jsonl"
    lines = steps.read_text().splitlines(keepends=True)
    steps.write_text("".join(lines[:10]))

    def write() -> None:
        for text in ("".join(lines[10:12]), lines[12][:30], lines[12][30:]):
            time.sleep(0.1)
            with steps.open("a") as file:
                file.write(text)
        time.sleep(0.1)
        steps.write_text("".join(lines[:5]))
        time.sleep(0.1)
        with steps.open("a") as file:
            file.write("".join(lines[5:8]))
        phase(going, "finished")

    writer = threading.Thread(target=write)
    writer.start()
    assert call(going, "--every", "0.02") == 0
    writer.join()
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1])["step"] == 8
    assert "step 13 of 40" in out
    assert "step 5 of 40" in out
    assert "step 8 of 40 (20%) · finished" in out


def test_a_run_that_has_not_begun_is_awaited(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert call(tmp_path / "later", "--once") == 0
    out = capsys.readouterr().out
    assert "not begun; waiting for its config.json" in out
    assert json.loads(out.splitlines()[-1])["phase"] == "not begun"


@pytest.mark.parametrize(
    ("host", "pid", "words"),
    [
        (None, 4_100_000, "no process 4100000 runs here: it is gone, or runs elsewhere"),
        ("here", 4_100_000, "its process, 4100000, is gone"),
        ("elsewhere", 4_100_000, "a step takes"),
        ("here", None, "a step takes"),
    ],
)
def test_silence_is_noticed(
    going: Path, monkeypatch: pytest.MonkeyPatch, host: str | None, pid: int | None, words: str
) -> None:
    monkeypatch.setattr("platform.node", lambda: "here")
    config = json.loads((going / "config.json").read_text())
    config["environment"]["host"] = host
    (going / "config.json").write_text(json.dumps(config))
    phase(going, "update", pid=pid or os.getpid())
    _, quiet = seen(going, synthetic.STARTED + 40)
    assert "!" not in quiet
    _, frame = seen(going, synthetic.STARTED + 3600)
    assert "! nothing was written for" in frame
    assert words in frame.replace("\n", " ")
    assert ("gone" in frame) == ("gone" in words)


def test_a_torn_phase_leaves_the_last_one(going: Path) -> None:
    watched, _ = seen(going)
    (going / "phase.json").write_text('{"step": 21, "ste')
    watched.look(synthetic.STARTED + 12)
    assert watched.doing == "sampling"


def test_sparks() -> None:
    assert live.spark([0, 1, 2, 3, 4, 5, 6, 7], 8) == live.BLOCKS
    assert live.spark([0, 0, 7, 7], 2) == "▁█"
    assert live.spark([1.0, math.nan, 2.0], 3) == "▁×█"
    assert live.spark([3.0, 3.0], 5) == "▄▄"
    assert live.spark([math.inf], 5) == "×"
    assert live.spark([], 5) == ""
    assert len(live.spark(list(range(1000)), 33)) == 33


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = synthetic.make(tmp_path / "run\x1b[2J", steps=4, settings={"recipe": "\x1b]0;x\x07"})
    assert call(run, "--once") == 0
    assert "\x1b" not in capsys.readouterr().out.replace("\\u001b", "")


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "config.json").write_text('{"format": 99}')
    for path, words in (
        (tmp_path, "has no config.json"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "newer", "record of format 99"),
        (tmp_path / "no" / "where", "there is no folder"),
    ):
        with pytest.raises(UserError, match=words) as error:
            call(path, "--once")
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="--every 0 must be above 0"):
        call(tmp_path / "file", "--every", "0")
