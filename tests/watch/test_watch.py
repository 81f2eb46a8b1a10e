"""`grposcope watch`: what it shows at every stage of a run, and when it ends."""

from __future__ import annotations

import gzip
import http.server
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import synthetic
from asked import asked

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.core.text import BLOCKS, sparkline
from grposcope.logs import tail
from grposcope.watch import command as watch
from grposcope.watch import follow
from grposcope.watch.follow import Watcher


def call(*arguments: str | Path) -> int:
    return asked("watch", *arguments)[0]


def phase(folder: Path, name: str, **more: object) -> None:
    said = {"step": 20, "steps": 40, "phase": name, "time": synthetic.STARTED, "pid": os.getpid(), **more}
    (folder / "phase.json").write_text(json.dumps(said).ljust(200))


@pytest.fixture
def going(tmp_path: Path) -> Path:
    """A run of 40 steps, 20 of them done."""
    run = synthetic.make(tmp_path / "going", steps=20, phase="sampling", settings={"steps": 40})
    phase(run, "sampling")
    return run


def seen(run: Path, now: float = synthetic.STARTED + 11) -> tuple[Watcher, str]:
    watcher = Watcher(run)
    watcher.look(now)
    return watcher, watcher.screen(now, 90)


def test_one_look(going: Path, capsys: pytest.CaptureFixture) -> None:
    status, document = asked("watch", going, "--once")
    assert status == 0
    out = capsys.readouterr().out.splitlines()
    said = document
    assert out[0] == "going · grpo on arithmetic:steps=3, tiny"
    assert "step 20 of 40 (50%) · sampling" in out[1]
    assert any(line.startswith("Held-out accuracy") and "at step 20" in line for line in out)
    assert said["step"] == 20
    assert said["latest"]["reward"] == json.loads((going / "steps.jsonl").read_text().splitlines()[-1])["reward"]


def test_time_left_is_from_the_clock(going: Path) -> None:
    watcher, screen = seen(going)
    run = watcher.snapshot(synthetic.STARTED + 11)
    times = [json.loads(line)["time"] for line in (going / "steps.jsonl").read_text().splitlines()]
    each = (times[-1] - times[0]) / 19
    assert run.seconds_per_step == pytest.approx(each)
    assert run.seconds_left == pytest.approx(20 * each)
    assert "about" in screen
    assert all(len(line) <= 90 for line in screen.splitlines())


def test_the_first_format_is_timed_by_its_phases(tmp_path: Path) -> None:
    run = synthetic.make(tmp_path / "old", steps=10, version=1, phase="going", settings={"steps": 20})
    watcher, _ = seen(run)
    rows = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    total = sum(row[f"seconds_{name}"] for row in rows for name in ("sample", "grade", "update"))
    assert watcher.snapshot(synthetic.STARTED).seconds_left == pytest.approx(total)
    assert not watcher.ended
    (run / "summary.json").write_text("{}")
    watcher.look(synthetic.STARTED)
    assert watcher.ended


def without_waiting(monkeypatch: pytest.MonkeyPatch, events: Iterable[Callable[[], object]]) -> None:
    """Between two looks the next event happens instead of a pause; nothing depends on the clock."""
    ahead = iter(events)
    paused = SimpleNamespace(time=time.time, sleep=lambda _: next(ahead)())
    monkeypatch.setattr(watch, "time", paused)
    monkeypatch.setattr("grposcope.watch.follow.READING", 1.0)  # reading and judging need no rest


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_it_follows_until_the_run_ends(
    going: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows arrive in pieces, the record is cut back and goes on, and the run finishes."""
    steps = going / "steps.jsonl"
    lines = steps.read_text().splitlines(keepends=True)
    steps.write_text("".join(lines[:10]))
    pieces = ("".join(lines[10:12]), lines[12][:30], lines[12][30:])
    events: list[Callable[[], object]] = [partial(append, steps, piece) for piece in pieces]
    events += [
        lambda: steps.write_text("".join(lines[:5])),
        lambda: append(steps, "".join(lines[5:8])),
        lambda: phase(going, "finished"),
    ]
    without_waiting(monkeypatch, events)
    status, document = asked("watch", going)
    assert status == 0
    out = capsys.readouterr().out
    assert document["step"] == 8
    seen = ["step 10 of 40", "step 12 of 40", "step 13 of 40", "step 5 of 40", "step 8 of 40 (20%) · finished"]
    places = [out.index(words) for words in seen]
    assert places == sorted(places)


def test_one_look_at_what_is_not_there_fails(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="later does not exist; give the path of a run or a log"):
        call(tmp_path / "later", "--once")


@pytest.mark.parametrize(
    ("host", "pid", "words"),
    [
        (None, 4_100_000, "process 4100000 does not run here: it has ended"),
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
    _, screen = seen(going, synthetic.STARTED + 3600)
    assert "! nothing was written for" in screen
    assert words in screen.replace("\n", " ")
    assert ("gone" in screen) == ("gone" in words)


def test_a_killed_run_is_noticed_at_once(going: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "here")
    config = json.loads((going / "config.json").read_text())
    config["environment"]["host"] = "here"
    (going / "config.json").write_text(json.dumps(config))
    phase(going, "update", pid=4_100_000)
    _, screen = seen(going, synthetic.STARTED + 40)
    assert "! its process 4100000 was killed" in screen


def test_a_torn_phase_leaves_the_last_one(going: Path) -> None:
    watcher, _ = seen(going)
    (going / "phase.json").write_text('{"step": 21, "ste')
    watcher.look(synthetic.STARTED + 12)
    assert watcher.snapshot(synthetic.STARTED + 12).phase == "sampling"


def test_sparks() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == BLOCKS
    assert sparkline([0, 0, 7, 7], 2) == "▁█"
    assert sparkline([1.0, math.nan, 2.0], 3) == "▁×█"
    assert sparkline([3.0, 3.0], 5) == "▄▄"
    assert sparkline([math.inf], 5) == "×"
    assert sparkline([], 5) == ""
    assert len(sparkline(list(range(1000)), 33)) == 33


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = synthetic.make(tmp_path / "run\x1b[2J", steps=4, settings={"recipe": "\x1b]0;x\x07"})
    assert call(run, "--once") == 0
    assert "\x1b" not in capsys.readouterr().out.replace("\\u001b", "")


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("newer", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"format": 99}')
    for path, words in (
        (tmp_path, "a folder of 2 runs"),
        (tmp_path / "file", "file is empty"),
        (tmp_path / "newer", "record format 99"),
        (tmp_path / "no" / "where", "there is no folder"),
    ):
        with pytest.raises(UserError, match=words) as error:
            call(path, "--once")
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="--every 0 must be above 0"):
        call(tmp_path / "file", "--every", "0")


# Logs of other trainers


def rows(count: int = 80, collapse_from: int | None = None, first: int = 1) -> list[dict[str, float]]:
    """Metrics of a healthy run, or one that stalls at half of its range and whose entropy collapses."""
    noise = 0.01 * np.random.default_rng(3).normal(size=(count, 2))
    found = []
    for i in range(count):
        gone = collapse_from is not None and i + first >= collapse_from
        entropy = (0.001 if gone else 0.8) * (1 + noise[i, 0])
        reward = 0.3 + (0.004 * i if collapse_from is None else 0.01 * min(i, 20))
        found.append({"step": i + first, "reward": reward + noise[i, 1], "entropy": entropy})
    return found


def jsonl(table: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in table)


def state(table: list[dict[str, Any]], **more: Any) -> str:
    history = [{**row, "frac_reward_zero_std": 0.1, "completions/mean_length": 50.0} for row in table]
    return json.dumps({"log_history": history, "global_step": len(table), "logging_steps": 1, **more})


def verl(table: list[dict[str, Any]]) -> str:
    keys = {"reward": "critic/score/mean", "entropy": "actor/entropy"}
    rows = [(row["step"], {keys[k]: v for k, v in row.items() if k in keys}) for row in table]
    return "".join(f"step:{at} - " + " - ".join(f"{k}:{v}" for k, v in row.items()) + "\n" for at, row in rows)


def openrlhf(table: list[dict[str, Any]]) -> str:
    rows = [{"policy_loss": 0.1, "reward": row["reward"], "entropy_loss": row["entropy"]} for row in table]
    return "".join(f"INFO ppo_trainer.py:550] Global step {i}: {row!r}\n" for i, row in enumerate(rows, 1))


def csv(table: list[dict[str, Any]]) -> str:
    return "step,reward,entropy\n" + "".join(f"{r['step']},{r['reward']},{r['entropy']}\n" for r in table)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", jsonl),
        ("trainer_state.json", state),
        ("verl.log", verl),
        ("openrlhf.log", openrlhf),
        ("a.csv", csv),
    ],
)
def test_a_log_of_any_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture, name: str, text: Callable[[list[dict[str, Any]]], str]
) -> None:
    path = tmp_path / name
    path.write_text(text(rows(collapse_from=50)))
    status, document = asked("watch", path, "--once")
    assert status == 0
    out = capsys.readouterr().out
    said = document
    assert said["step"] == 80
    assert said["present"] == ["entropy collapse"]
    assert [alarm["fault"] for alarm in said["alarms"]] == ["entropy collapse"]
    assert out.count("✗ step 80: failing: entropy collapse, since step ") == 1
    assert "failing: entropy collapse" in out
    assert any(line.startswith("Reward ") for line in out.splitlines())
    assert all(len(line) <= 100 for line in out.splitlines()[:-1])


def test_a_growing_log_and_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not there yet, empty, half-written, growing: it leaves with 1 when the mode is first flagged, not before."""
    path = tmp_path / "run.jsonl"
    halves = [half for line in jsonl(rows(120, collapse_from=60)).splitlines(True) for half in (line[:20], line[20:])]
    written = [0]

    def write(half: str) -> None:
        append(path, half)
        written[0] += half.endswith("\n")

    without_waiting(monkeypatch, [lambda: path.write_text(""), *(partial(write, half) for half in halves)])
    status, document = asked("watch", path, "--fail-on", "entropy collapse")
    assert status == 1
    out = capsys.readouterr().out
    said = document
    assert "not begun; waiting for it" in out
    assert 60 < said["alarms"][0]["seen"] == written[0]
    assert 55 <= said["alarms"][0]["since"]["step"] <= 62


def test_each_onset_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    whole = rows(200, collapse_from=60)
    seen = Watcher(path)
    seen._pace = tail.Pace(1.0)
    modes = []
    for end in range(20, 201, 10):
        path.write_text(jsonl(whole[:end]))
        modes += [alarm.fault for alarm in seen.look(0.0)]
    assert modes == ["entropy collapse"]


def test_another_run_in_the_same_file_is_judged_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    seen = Watcher(path)
    seen._pace = tail.Pace(1.0)
    path.write_text(jsonl(rows(100, collapse_from=60)))
    assert [alarm.fault for alarm in seen.look(0.0)] == ["entropy collapse"]
    path.replace(tmp_path / "run.jsonl.1")
    assert seen.look(0.0) == []
    path.write_text("")
    assert seen.look(0.0) == []
    assert "is empty" in seen.problem
    assert "is empty" in seen.screen(0.0, 100)
    path.write_text(jsonl(rows(60)))
    assert seen.look(0.0) == []
    assert seen.alarms.raised == []
    assert seen.log.run is not None
    assert seen.log.run.steps == 60
    path.write_text(jsonl(rows(90, collapse_from=50)))
    assert [alarm.fault for alarm in seen.look(0.0)] == ["entropy collapse"]


def test_reading_rests_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace = tail.Pace(0.2)
    assert pace.ready()
    pace.spent(3.0)
    now = 111.9
    assert not pace.ready()
    now = 112.1
    assert pace.ready()
    assert not tail.Pace(0.2, rest=1.0).ready()


def test_a_log_is_read_only_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl(rows(10)))
    log = tail.GrowingLog(path)
    assert log.look()
    monkeypatch.setattr(tail, "read", None)
    assert not log.look()
    assert log.run is not None


def test_the_callback_of_an_output_folder_is_followed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """TRL's own state is written at checkpoints only; the record of the callback is ahead of it."""
    synthetic.make(tmp_path / "grposcope", steps=20)
    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "checkpoint-5" / "trainer_state.json").write_text(state(rows(5)))
    status, document = asked("watch", tmp_path, "--once")
    assert status == 0
    assert document["step"] == 20


def test_a_run_of_ours_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = synthetic.make(tmp_path / "run", steps=60)
    table = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    for row in table[40:]:
        row["grad_norm"] = "NaN"
    (run / "steps.jsonl").write_text(jsonl(table))
    status, document = asked("watch", run, "--fail-on", "failing")
    assert status == 1
    out = capsys.readouterr().out
    assert "non-finite" in document["present"]
    assert "failing: non-finite" in out


def test_a_finished_log_ends_the_watch(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(state(rows(40), max_steps=40))
    assert call(path) == 0


def test_minor_modes_are_raised_only_if_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    noise = 0.005 * np.random.default_rng(0).normal(size=200)
    path = tmp_path / "flat.jsonl"
    path.write_text(jsonl([{"step": i + 1, "reward": 0.5 + noise[i]} for i in range(200)]))
    status, document = asked("watch", path, "--once", "--fail-on", "note")
    assert status == 0
    said = document
    assert (said["present"], said["alarms"]) == (["no learning"], [])
    assert call(path, "--once", "--fail-on", "no learning") == 1


HOSTILE = "\x1b]0;owned\x07\x1b[2J</script><b>x"


def test_escapes_of_a_log_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    table = [{**row, f"reward {HOSTILE}": row["reward"], HOSTILE: "text"} for row in rows()]
    path = tmp_path / f"{HOSTILE.replace('/', '-')}.jsonl"
    path.write_text(jsonl(table))
    assert call(path, "--once") == 0
    assert "\x1b" not in capsys.readouterr().out
    path.write_text(f"{HOSTILE}\n" * 5)
    with pytest.raises(UserError):
        call(path, "--once")
    seen = Watcher(path)
    seen.look(0.0)
    assert "\x1b" not in seen.screen(0.0, 100)


def test_a_compressed_log(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(jsonl(rows()).encode()))
    assert call(path, "--once") == 0


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, Any]], list[int]]]:
    """URL of a server, what it was sent, and the statuses it answers with (200 after these)."""
    sent: list[dict[str, Any]] = []
    answers: list[int] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(answers.pop(0) if answers else 200)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", sent, answers
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grposcope.watch.webhook.PAUSE", 0.01)


@pytest.mark.usefixtures("quick")
def test_webhook(tmp_path: Path, hook: tuple[str, list[dict[str, Any]], list[int]]) -> None:
    url, sent, answers = hook
    answers.append(500)
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl(rows(collapse_from=50)))
    assert call(path, "--once", "--webhook", url) == 0
    assert len(sent) == 2  # the first was answered with 500
    assert sent[0] == sent[1]
    assert (sent[0]["fault"], sent[0]["seen"], sent[0]["run"]) == ("entropy collapse", 80, str(path))
    assert sent[0]["text"].startswith(f"{path}: step 80: failing: entropy collapse, since step ")


@pytest.mark.usefixtures("quick")
def test_a_message_to_slack(tmp_path: Path, hook: tuple[str, list[dict[str, Any]], list[int]]) -> None:
    url, sent, _ = hook
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl(rows(collapse_from=50)))
    assert call(path, "--once", "--webhook", f"slack:{url}", "--webhook", url) == 0
    said, document = sorted(sent, key=len)
    assert list(said) == ["text"]
    assert said["text"].startswith("*failing: entropy collapse, since step ")
    assert f"\n{path}: step 80, because " in said["text"]
    assert document["fault"] == "entropy collapse"
    sent.clear()
    assert call(path, "--once", "--webhook", url, "--alert-on", "kl blow-up") == 0
    assert sent == []
    assert call(path, "--once", "--webhook", url, "--alert-on", "kl blow-up", "--fail-on", "failing") == 1
    assert [document["fault"] for document in sent] == ["entropy collapse"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("status", [500, 302, None])
def test_a_webhook_that_fails_is_said_and_no_more(
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    hook: tuple[str, list[dict[str, Any]], list[int]],
    status: int | None,
) -> None:
    """Errors, redirects (which are not followed), and a port at which nobody answers."""
    url, sent, answers = hook
    answers += [status or 200] * 2
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl(rows(collapse_from=50)))
    ended, document = asked("watch", path, "--once", "--webhook", url if status else "http://127.0.0.1:9/x")
    assert ended == 0
    said = capsys.readouterr()
    assert "webhook: " in said.err
    assert str(status or "refused") in said.err
    assert len(sent) == (2 if status else 0)
    assert document["present"] == ["entropy collapse"]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://a/b", "http://", "a b", "http://a:x/", "data:,x"])
def test_a_webhook_is_http(tmp_path: Path, url: str) -> None:
    with pytest.raises(UserError, match="is not an http or https URL"):
        call(tmp_path, "--webhook", url)


def test_what_is_on_the_screen(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal each look takes the place of the last."""
    path = tmp_path / "trainer_state.json"
    path.write_text(state(rows(40), max_steps=40))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert call(path) == 0
    assert capsys.readouterr().out.startswith("\x1b[H\x1b[J")


def test_a_held_out_score_below_zero_is_no_percentage() -> None:
    low = [(10, Estimate(-0.9, 0.02, 400)), (20, Estimate(-0.963, 0.02, 400))]
    assert follow._last_score(low, [-0.9, -0.963]) == "-0.963 (-1 to -0.924) at step 20"
    share = [(20, Estimate(0.5, 0.025, 400))]
    assert follow._last_score(share, [0.5]).startswith("50% (45% to 55%)")
