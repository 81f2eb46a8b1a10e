"""The verdict in the team's own runs: written once for each change, never lost, and only where a flag says."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from asked import asked

from grposcope.core.errors import UserError
from grposcope.logs import read
from grposcope.watch import alerts, destinations, write_to
from grposcope.watch.alerts import Alert
from grposcope.watch.destinations import Destination, destination
from grposcope.watch.receivers.program import RefusedError
from grposcope.watch.receivers.wandb import _parts_of
from grposcope.watch.write_to import Writer

PLACE = Destination("tensorboard", "somewhere")
VERDICT = Alert("runs/a", "failing: <b>reward</b> fell", "what to do: stop", "failing", "", 40)
ALARM = Alert("runs/a", "failing: kl blow-up, since step 30", "step 40, because it grew", "failing", "kl blow-up", 40)


class Network:
    """A destination that fails as long as `problem` says why. got: what arrived."""

    def __init__(self, problem: Exception | None = None):
        self.problem, self.got, self.tried = problem, list[Alert](), threading.Event()

    def __call__(self, where: Destination, batch: Sequence[Alert]) -> None:
        assert where == PLACE
        self.tried.set()
        if self.problem is not None:
            raise self.problem
        self.got += batch


def test_what_is_sent_arrives_in_order_and_nothing_is_kept(tmp_path: Path) -> None:
    network = Network()
    writer = Writer(PLACE, network, tmp_path)
    for step in range(5):
        writer.send(Alert("r", "t", "x", "note", "", step))
    assert alerts.wait([writer]) == []
    assert [alert.step for alert in network.got] == list(range(5))
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line for a reason, further attempts, and the next watch writes what this one could not."""
    monkeypatch.setattr(write_to, "AGAIN", 0.01)
    network = Network(ConnectionError("no route to host"))
    writer = Writer(PLACE, network, tmp_path)
    writer.send(VERDICT)
    assert network.tried.wait(5)
    writer.send(ALARM)
    for _ in range(3):  # further attempts
        network.tried.clear()
        assert network.tried.wait(5)
    monkeypatch.setattr(write_to, "AGAIN", 30.0)
    said = alerts.wait([writer], 5)
    assert said[0] == "tensorboard:somewhere: no route to host; the change is kept and tried again later"
    assert len(said) == 2
    assert said[1].startswith(f"tensorboard:somewhere: 2 changes are not written yet; they are kept in {tmp_path}")
    (path,) = tmp_path.iterdir()
    assert [json.loads(line)["title"] for line in path.read_text().splitlines()] == [VERDICT.title, ALARM.title]
    later = Network()
    assert alerts.wait([Writer(PLACE, later, tmp_path)]) == []
    assert later.got == [VERDICT, ALARM]
    assert list(tmp_path.iterdir()) == []


def test_the_network_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_to, "AGAIN", 0.01)
    network = Network(ConnectionError("down"))
    writer = Writer(PLACE, network, tmp_path)
    writer.send(VERDICT)
    assert network.tried.wait(5)
    network.problem = None
    assert alerts.wait([writer]) == ["tensorboard:somewhere: down; the change is kept and tried again later"]
    assert network.got == [VERDICT]


def test_a_destination_that_refuses_is_said_once_and_left_alone(tmp_path: Path) -> None:
    network = Network(RefusedError("Run 'x' does not exist"))
    writer = Writer(PLACE, network, tmp_path)
    writer.send(VERDICT)
    said = alerts.wait([writer])
    writer.send(ALARM)
    assert said == ["tensorboard:somewhere: Run 'x' does not exist; nothing is written there"]
    assert alerts.wait([writer]) == []
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_keeps_nothing_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    network = Network()
    writer = Writer(PLACE, network, tmp_path / "file" / "below")
    writer.send(VERDICT)
    assert alerts.wait([writer]) == []
    assert network.got == [VERDICT]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("runs/a", "is not a destination; give one of wandb:"),
        ("slack:x/y", "is not a destination"),
        ("wandb:run", "a path of a run has two or three parts"),
        ("wandb:", "names no run of wandb"),
        ("mlflow:../x", "a run has an id of letters and digits"),
        ("trackio:project", "it has a project and a name"),
        ("tensorboard:/no/where", "there is no such folder"),
    ],
)
def test_places_that_are_none(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        destination(text)


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="needs the package mlflow, which is not installed; pip install mlflow"):
        destination("mlflow:0abc")


def test_addresses_of_wandb_runs() -> None:
    parts = _parts_of
    assert parts("team/math/3f2k9q1x") == parts("https://wandb.ai/team/math/runs/3f2k9q1x?nw=1")
    assert parts("math/3f2k9q1x") == ["math", "3f2k9q1x"]


def test_the_watch_writes_each_change_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict as it changes, and the alarms; nothing without the flag."""
    sent: list[Alert] = []
    monkeypatch.setattr(Writer, "send", lambda self, alert: sent.append(alert))
    path = tmp_path / "run.jsonl"
    rows = [{"step": i + 1, "reward": 0.3 + 0.01 * min(i, 20) + 0.001 * (i * 7 % 5),
             "entropy": 0.001 if i >= 50 else 0.8 + 0.001 * (i * 3 % 7)} for i in range(80)]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert asked("watch", path, "--once")[0] == 0
    assert sent == []
    asked("watch", path, "--once", "--write-to", f"tensorboard:{tmp_path}")
    assert [(alert.fault, alert.grade, alert.step) for alert in sent] == [
        ("entropy collapse", "failing", 80), ("", "failing", 80),
    ]  # fmt: skip
    assert "since step" in sent[0].title
    assert sent[1].text.startswith("what to do: ")
    with pytest.raises(UserError, match=r"^--write-to 'x' is not a destination"):
        asked("watch", path, "--once", "--write-to", "x")


def test_a_fall_without_a_rule_is_an_alarm_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Alert] = []
    monkeypatch.setattr(Writer, "send", lambda self, alert: sent.append(alert))
    path = tmp_path / "run.jsonl"
    rows = [{"step": i + 1, "reward": 0.5 - 0.004 * i + 0.002 * (i * 7 % 5)} for i in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, document = asked("watch", path, "--once", "--write-to", f"tensorboard:{tmp_path}")
    assert document["grade"] == "failing"
    raised = [alert for alert in sent if alert.fault]
    assert len(raised) == 1
    assert raised[0].grade == "failing"


def delivered(where: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Both alerts delivered by the real library, in a process as the watch starts it."""
    from dataclasses import asdict

    return subprocess.run(
        [sys.executable, "-m", "grposcope.watch.deliver", where], capture_output=True, text=True, check=False,
        input=json.dumps([asdict(VERDICT), asdict(ALARM)]), env={**os.environ, **environment}, timeout=120,
    )  # fmt: skip


def needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed")


def test_tensorboard(tmp_path: Path) -> None:
    """Event files beside those of the run, which stays the run that it was."""
    needs("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    destinations.deliver(Destination("tensorboard", str(tmp_path)), [VERDICT, ALARM])
    shown = EventAccumulator(str(tmp_path / "grposcope-verdict"), size_guidance={"tensors": 0}).Reload()
    (text,) = shown.Tensors("grposcope/verdict/text_summary")
    assert text.step == 40
    assert b"failing: <b>reward</b> fell" in text.tensor_proto.string_val[0]
    assert [(event.step, event.value) for event in shown.Scalars("grposcope/alarm/kl_blow-up")] == [(40, 3.0)]
    with pytest.raises(RefusedError, match="there is no folder"):
        destinations.deliver(Destination("tensorboard", str(tmp_path / "no")), [VERDICT])
    with pytest.raises(UserError, match=r"no scalars|no log"):
        read(tmp_path)


@pytest.mark.slow
def test_wandb_offline(tmp_path: Path) -> None:
    needs("wandb")
    done = delivered("wandb:team/math/3f2k9q1x", WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    (log,) = tmp_path.glob("wandb/offline-run-*-3f2k9q1x/run-3f2k9q1x.wandb")
    content = log.read_bytes()
    for words in (b"grposcope/verdict", b"grposcope/severity", b"verdict_text", b"kl blow-up, since step 30", b"ERROR"):
        assert words in content, words
    (panel,) = tmp_path.glob("wandb/offline-run-*/files/media/html/grposcope/*.html")
    assert "&lt;b&gt;reward&lt;/b&gt; fell" in panel.read_text()
    assert not list(tmp_path.glob("wandb/offline-run-*/files/requirements.txt"))


@pytest.mark.slow
def test_trackio(tmp_path: Path) -> None:
    needs("trackio")
    begin = 'import trackio; r = trackio.init(project="team", name="run1"); r.log({"reward": 1.0}); r.finish()'
    subprocess.run([sys.executable, "-c", begin], env={**os.environ, "TRACKIO_DIR": str(tmp_path)}, check=True,
                   capture_output=True, timeout=120)  # fmt: skip
    done = delivered("trackio:team/run1", TRACKIO_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(tmp_path / "team.db") as base:
        logged = [bytes(row[0], "utf-8") if isinstance(row[0], str) else row[0]
                  for row in base.execute("select metrics from metrics order by id")]  # fmt: skip
        raised = base.execute("select title, level from alerts").fetchall()
    assert len(logged) == 2
    assert json.loads(logged[1])["grposcope/severity"] == 3.0
    assert raised == [(ALARM.title, "error")]
    refused = delivered("trackio:team/nobody", TRACKIO_DIR=str(tmp_path))
    assert refused.returncode == 3
    assert "does not exist" in refused.stderr


@pytest.mark.slow
def test_mlflow(tmp_path: Path) -> None:
    needs("mlflow")
    needs("sqlalchemy")
    store = f"sqlite:///{tmp_path}/mlflow.db"
    begin = (
        "from mlflow import MlflowClient; c = MlflowClient(); "
        f"print(c.create_run(c.create_experiment('team', artifact_location='{tmp_path}')).info.run_id)"
    )
    begun = subprocess.run([sys.executable, "-c", begin], env={**os.environ, "MLFLOW_TRACKING_URI": store}, check=True,
                           capture_output=True, text=True, timeout=120)  # fmt: skip
    run = begun.stdout.split()[-1]
    done = delivered(f"mlflow:{run}", MLFLOW_TRACKING_URI=store)
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(tmp_path / "mlflow.db") as base:
        tags = dict(base.execute("select key, value from tags"))
        points = base.execute("select key, value, step from metrics").fetchall()
    assert tags["grposcope/verdict"].startswith(VERDICT.title)
    assert tags["grposcope/grade"] == "failing"
    assert tags["grposcope/alert"].startswith(ALARM.title)
    assert points == [("grposcope/severity", 3.0, 40)]
    refused = delivered(f"mlflow:{'0' * 32}", MLFLOW_TRACKING_URI=store)
    assert refused.returncode == 3
    assert "not found" in refused.stderr
