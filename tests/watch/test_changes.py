"""The stream of changes: each told once, in JSON lines that a program can act on, and the exit statuses."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asked import asked

from grposcope import cli
from grposcope.core.finding import Finding, Status, at
from grposcope.instruments.diagnosis.verdict import Verdict
from grposcope.watch import command as watch
from grposcope.watch import follow
from grposcope.watch.changes import Change, WatchedState, between
from grposcope.watch.follow import Watcher

FINDING = Finding("length", because="it fits", remedy="cut it", p=0.5, adjusted=1.0)


def finding(fault: str, status: Status, grade: Any = None, onset: int | None = None) -> Finding:
    return replace(FINDING, fault=fault, status=status, grade=grade, since=at(onset))


def name(change: Change) -> str:
    return change.finding.fault if change.finding else ""


def test_each_change_once_in_order() -> None:
    healthy = WatchedState(
        10, Verdict("healthy", "healthy: fine"), [finding("length", "excluded"), finding("zero loss", "excluded")]
    )
    flagged = [finding("length", "present", "warning", 12), finding("zero loss", "possible")]
    bad = WatchedState(20, Verdict("warning", "warning: length", "length", remedy="cut it"), flagged)
    changes = between(healthy, bad)
    assert [(c.event, c.finding, c.before, c.after) for c in changes] == [
        ("verdict", flagged[0], "healthy", "warning"), ("fault", flagged[0], "excluded", "warning"),
        ("fault", flagged[1], "excluded", "possible"),
    ]  # fmt: skip
    assert [c.text for c in changes] == ["warning: length; what to do: cut it", "", ""]
    sent = changes[0].document("run", 1.0)
    assert (sent["finding"]["fault"], sent["finding"]["since"]["step"]) == ("length", 12)
    later = replace(bad, step=30, verdict=Verdict("warning", "warning: other numbers", "length"))
    assert between(bad, later) == []
    assert [c.after for c in between(bad, replace(healthy, step=40))] == ["healthy", "excluded", "excluded"]


def test_a_first_look_names_only_what_is_wrong() -> None:
    first = WatchedState(10, Verdict("cannot tell", "cannot tell"), [FINDING, finding("kl blow-up", "cannot tell")])
    assert [c.event for c in between(WatchedState(), first)] == ["verdict"]
    worse = replace(first, findings=[FINDING, finding("kl blow-up", "present", "failing")])
    assert [(c.event, name(c)) for c in between(WatchedState(), worse)] == [("verdict", ""), ("fault", "kl blow-up")]


def test_a_failure_that_gets_another_name_is_closed() -> None:
    one = WatchedState(10, None, [finding("saturated", "present", "warning")])
    other = WatchedState(11, None, [finding("constant reward", "present", "failing")])
    assert [(name(c), c.before, c.after) for c in between(one, other)] == [
        ("constant reward", "", "failing"), ("saturated", "warning", "excluded"),
    ]  # fmt: skip


def test_stalled_and_unreadable_come_and_go() -> None:
    going = WatchedState(10)
    stuck = replace(going, stalled="nothing was written for 5 min", problem="line 3 is broken")
    assert [(c.event, c.text) for c in between(going, stuck)] == [
        ("stalled", "nothing was written for 5 min"), ("unreadable", "line 3 is broken"),
    ]  # fmt: skip
    assert between(stuck, replace(stuck, stalled="nothing was written for 6 min")) == []
    assert [c.event for c in between(stuck, going)] == ["resumed", "readable"]


def test_a_log_stalls_by_its_own_pace(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    timed = [{"step": k, "reward": 0.01 * k, "timestamp": 1.8e9 + 20 * k} for k in range(1, 30)]
    path.write_text("".join(json.dumps(row) + "\n" for row in timed))
    watcher = Watcher(path)
    watcher.look(0.0)
    written = path.stat().st_mtime
    assert watcher.state(written + 199).stalled == ""
    assert watcher.state(written + 201).stalled == "nothing was written for 3 min 21 s, and a step takes 20 s"
    path.write_text("".join(json.dumps({"step": row["step"], "reward": row["reward"]}) + "\n" for row in timed))
    watcher = Watcher(path)
    watcher.look(0.0)
    assert watcher.state(path.stat().st_mtime + follow.UNTIMED - 1).stalled == ""
    assert watcher.state(path.stat().st_mtime + follow.UNTIMED + 1).stalled.startswith("nothing was written for")


def collapsing(count: int, start: int = 60) -> list[str]:
    """Lines of a run whose entropy collapses and whose reward stalls from `start` on."""
    rows = []
    for i in range(count):
        entropy = (0.001 if i >= start else 0.8) * (1 + 0.01 * math.sin(9 * i))
        rows.append({"step": i + 1, "reward": 0.3 + 0.01 * min(i, 20) + 0.01 * math.sin(7 * i), "entropy": entropy})
    return [json.dumps(row) + "\n" for row in rows]


def events(monkeypatch: pytest.MonkeyPatch, ahead: Iterable[Callable[[], object]]) -> None:
    """Between two looks the next of these happens; after the last, Ctrl-C."""
    waiting = iter(ahead)

    def sleep(_: float) -> None:
        following = next(waiting, None)
        if following is None:
            raise KeyboardInterrupt
        following()

    monkeypatch.setattr(watch, "time", SimpleNamespace(time=time.time, sleep=sleep))
    monkeypatch.setattr(follow, "READING", 1.0)


def append(path: Path, lines: Iterable[str]) -> None:
    with path.open("a") as file:
        file.writelines(lines)


def test_the_stream_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    path, lines = tmp_path / "run.jsonl", collapsing(120)
    events(monkeypatch, [lambda k=k: append(path, lines[k : k + 20]) for k in range(0, 120, 20)])
    status, document = asked("watch", path, "--json")
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert status == 0
    assert told[0]["event"] == "start"
    assert told[-1] == document
    assert (document["event"], document["reason"], document["status"]) == ("ended", "left by Ctrl-C", 0)
    assert document["grade"] == "failing"
    (collapse,) = [one for one in told if one["event"] == "fault" and one["finding"]["fault"] == "entropy collapse"]
    assert (collapse["from"], collapse["to"]) == ("excluded", "failing")
    assert 55 <= collapse["finding"]["since"]["step"] <= 62 < collapse["step"]
    assert "entropy" in collapse["finding"]["because"]
    assert collapse["finding"]["remedy"]
    grades = [one["to"] for one in told if one["event"] == "verdict"]
    assert grades[-1] == "failing"
    assert all(set(one) == set(collapse) for one in told[:-1])


def test_exit_statuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """0 at the end of the run, 1 for --fail-on, 2 where nothing can be followed; the last line says the same."""
    path = tmp_path / "run.jsonl"
    path.write_text("".join(collapsing(120)))
    events(monkeypatch, [])
    assert cli.main(["watch", str(path), "--json", "--fail-on", "failing"]) == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["event"], last["status"], last["reason"]) == ("ended", 1, "--fail-on: failing: entropy collapse")
    state = {"log_history": [json.loads(line) for line in collapsing(40, 99)], "global_step": 40, "max_steps": 40}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert cli.main(["watch", str(tmp_path / "trainer_state.json"), "--json"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["status"], last["reason"]) == (0, "the run has ended")
    assert cli.main(["watch", str(tmp_path / "no" / "where"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out).keys() == {"error"}
    assert cli.main(["watch", str(path), "--json", "--once"]) == 0
    once = capsys.readouterr().out.splitlines()
    assert len(once) == 1
    assert "event" not in json.loads(once[0])
