"""Commands that alarms run."""

from __future__ import annotations

import json
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grposcope.core.errors import UserError
from grposcope.watch import alerts, hook_command
from grposcope.watch.alerts import Alert

ALERT = Alert(
    "runs/a b", "failing: length", "because", "failing", "length", 7, {"fault": "length", "odd": "$(touch x)"}
)
WRITE = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.argv[2] + sys.stdin.read())"


def test_a_command_gets_the_document_and_the_words(tmp_path: Path) -> None:
    """A run's name with spaces stays one word, and nothing is read by a shell."""
    out = tmp_path / "out file"
    sender = hook_command.command(f"{sys.executable} -c '{WRITE}' '{out}' '{{run}};{{fault}}@{{step}} '")
    sender.send(ALERT)
    assert alerts.wait([sender]) == []
    words, _, document = out.read_text().partition(" {")
    assert words == "runs/a b;length@7"
    assert json.loads("{" + document) == dict(ALERT.document)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    "script", ["printf %s {run} > {out}", 'printf %s "{run}" > {out}', "printf %s '{run}' > {out}"]
)
def test_the_name_of_a_run_is_not_run_by_a_shell_either(script: str, tmp_path: Path) -> None:
    """However the user quotes it; and a name that looks like another word of the alert stays as it is."""
    evil, out = tmp_path / "evil", tmp_path / "out"
    name = f"a$(touch {evil})`touch {evil}`;touch {evil};'{{fault}}'"
    sender = hook_command.command(f"sh -c {shlex.quote(script.replace('{out}', str(out)))}")
    sender.send(replace(ALERT, run=name))
    assert alerts.wait([sender]) == []
    assert not evil.exists()
    if "'" not in script:
        assert out.read_text().replace(" ", "") == name.replace(" ", "")


@pytest.mark.parametrize(("code", "said"), [
    ("import sys; sys.exit('no queue')", "ended with status 1: no queue"),
    ("import time; time.sleep(5)", "took longer than 0.3 s"),
])  # fmt: skip
def test_a_command_that_fails_is_told(code: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_command, "TIMEOUT", 0.3 if "sleep" in code else 30)
    sender = hook_command.command(f'{sys.executable} -c "{code}"')
    sender.send(ALERT)
    sender.wait(time.monotonic() + 30)
    (line,) = sender.failures()
    assert said in line


@pytest.mark.parametrize(("line", "said"), [
    ("", "is no program"), ("nosuchprogram {run}", "is no program"), ("echo 'x", "close its quotes"),
])  # fmt: skip
def test_what_cannot_be_run_is_refused_at_once(line: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        hook_command.command(line)
