"""watch --autopilot advise: advice on the screen, in the stream and to webhooks, each once, and never an action."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from alike import alike

from grposcope.cli import main
from grposcope.core.errors import UserError
from grposcope.core.finding import Finding, at
from grposcope.logs import read
from grposcope.watch import advice
from grposcope.watch.changes import WatchedState, between
from grposcope.watch.wording import advice_alert


def log(path: Path, steps: int) -> Path:
    draw = np.random.default_rng(1)
    rows = [{"step": k, "reward": float((0.7 if k <= 60 else 0.1) + 0.03 * draw.normal())} for k in range(1, steps + 1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.needs("autopilot")
def test_advice_is_said_once_and_never_taken_back(tmp_path: Path) -> None:
    asked, said = advice.adviser("advise"), ()
    states = [WatchedState()]
    for steps in (40, 70, 90, 100, 120):
        now = asked(read(log(tmp_path / "log.jsonl", steps)), ())
        assert alike(now[: len(said)], said)
        said = now
        states.append(WatchedState(steps, advice=now))
    told = [one for old, new in itertools.pairwise(states) for one in between(old, new)]
    assert [(one.event, one.finding.fault) for one in told[:1]] == [("advice", "reward decline")]
    assert len(told) == len(said)
    assert told[0].text.startswith("Go back to the weights of step")
    assert 60 < told[0].step < 90


@pytest.mark.needs("autopilot")
def test_on_the_screen_and_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "log.jsonl", 110)
    assert main(["watch", str(path), "--once", "--autopilot", "advise"]) == 0
    assert "→ step " in capsys.readouterr().out
    assert main(["watch", str(path), "--once", "--autopilot", "advise", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["advice"][0]["finding"]["fault"] == "reward decline"


@pytest.mark.needs("autopilot")
def test_a_watched_run_is_never_acted_on() -> None:
    with pytest.raises(UserError, match="watch can only advise, not act"):
        advice.adviser("act")


@pytest.mark.needs("autopilot")
def test_a_webhook_gets_the_whole_line() -> None:
    finding = Finding("reward decline", "present", because="why", brief="the policy got worse", since=at(61),
                      grade="warning", seen=70)  # fmt: skip
    sent = advice_alert(advice.Advice(finding, "rollback", "Go back"), "run")
    assert sent.document["text"] == "run: step 70: the policy got worse: why. Go back"
    assert sent.document["finding"]["since"]["step"] == 61
    assert (sent.fault, sent.grade, sent.step) == ("reward decline", "warning", 70)
