"""`grposcope diagnose` through its own parser."""

from __future__ import annotations

import io
import json
import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_faults
from asked import asked

from grposcope import cli
from grposcope.core.errors import UserError
from grposcope.instruments.diagnosis import answer, diagnose, screen
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs import read
from grposcope.render import wrapping


def log(path: Path, collapse: bool = False, rows: int = 80) -> Path:
    """A JSONL log of a made-up trainer; collapse: of entropy and reward, from the middle on."""
    lines = []
    for i, wobble in enumerate(0.01 * np.random.default_rng(0).normal(size=rows)):
        gone = collapse and i > rows // 2
        reward = 0.3 + 0.005 * (rows - i if gone else i) + wobble
        entropy = 0.8 * (0.001 if gone else 1) * (1 + wobble)
        row = {"step": i + 1, "reward": reward, "entropy": entropy, "grad_norm": 1 + wobble}
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")
    return path


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, dict[str, Any]]:
    status, document = asked("diagnose", *arguments)
    return status, capsys.readouterr().out, document


def test_healthy_first_line_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, document = call(capsys, log(tmp_path / "a.jsonl"), "--fail-on", "note")
    assert status == 0
    assert out.splitlines()[0] == "Healthy: reward 0.33 → 0.66 in 80 steps; held-out not logged"
    assert document["present"] == []
    assert re.search(r"Not logged: .*\bkl\b.*\.", out)
    _, out, _ = call(capsys, tmp_path / "a.jsonl", "--verbose")
    assert "beta=1e-4 or more" in out, "how to log it is in the table"


def test_failing_and_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "a.jsonl", collapse=True)
    status, out, document = call(capsys, path, "--fail-on", "note")
    assert status == 1
    first, _, second, *_ = out.splitlines()
    assert first.startswith("Failing: reward 0.49 → 0.35, down since step ")
    assert "; entropy 0.8 → 8.0e-4 since step 42" in first
    assert second.startswith("What to do: raise the upper clip")
    assert document["verdict"] == "failing" + first[7:]
    assert document["because"].startswith("the entropy went from 0.8")
    assert "entropy collapse" in document["present"]
    assert call(capsys, path, "--fail-on", "entropy collapse")[0] == 1
    assert call(capsys, path, "--fail-on", "kl blow-up")[0] == 0
    assert call(capsys, path)[0] == 0


TOY = '''"""The reward is a toy.

What it is
    A fault of a test.
How it shows
    Always.
What it does to the gradient
    Nothing.
What to do
    Put it away.
What decides
    Looking again.
Sources
    a test
"""
from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Sign, fact

def check(quantities):
    reward = quantities.get("reward")
    return fact(True, "the reward is a toy", (Sign("reward", reward.values[0]),), int(reward.steps[0]))

FAULT = Fault("toy", 999, "put it away", beside="failing",
              log=LogTest("toy", check, ("reward",), "none", "always"))
'''


def test_a_new_fault_is_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is diagnosed, named by --fail-on and its help, and shown in verdict, JSON and page."""
    toy_faults.add(tmp_path / "more", monkeypatch, "reward", "toy", TOY)
    path, page = log(tmp_path / "a.jsonl"), tmp_path / "page.html"
    status, out, document = call(capsys, path, "--fail-on", "toy", "--html", page)
    assert status == 1
    assert out.startswith("Failing: toy; reward 0.33 → 0.66 in 80 steps\n")
    assert "Because the reward is a toy." in out
    assert document["present"] == ["toy"]
    assert document["tests"]["toy"]["threshold"] == "always"
    assert "diagnosis-reward" in page.read_text()
    for command in ("diagnose", "watch"):
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        assert "no learning, toy" in " ".join(capsys.readouterr().out.split())


def test_json_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, document = call(capsys, log(tmp_path / "a.jsonl"), "--json")
    assert len(out.splitlines()) == 1
    assert {"statistic", "threshold", "needs"} == set(document["tests"]["length"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--fail-on", "nonsense"], "neither a grade nor a fault"),
        (["--level", "2"], "not a probability"),
        (["--set", "group"], "NAME=VALUE"),
    ],
)
def test_what_the_user_can_mend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        call(capsys, log(tmp_path / "a.jsonl"), *flags)


def test_settings_given_by_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "group of one" in call(capsys, log(tmp_path / "a.jsonl"), "--set", "group=1")[2]["present"]


def test_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "out" / "verdict.html"
    _, out, document = call(capsys, log(tmp_path / "a.jsonl", collapse=True), "--html", page)
    assert document["page"] == str(page)
    assert f"page: {page}" in out
    text = page.read_text()
    assert "Failing: reward 0.49 → 0.35, down since step " in text
    assert "diagnosis-entropy" in text
    assert "since step" in text
    with pytest.raises(UserError, match="--html"):
        call(capsys, tmp_path / "a.jsonl", "--html", tmp_path)


def test_a_webhook_hears_of_flags_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr("grposcope.watch.alerts.Sender.send", lambda _, alert: sent.append(alert.document))
    url = ("--webhook", "https://example.org/hook")
    call(capsys, log(tmp_path / "a.jsonl"), *url)
    assert sent == []
    _, _, document = call(capsys, log(tmp_path / "b.jsonl", collapse=True), *url)
    (said,) = sent
    assert said["present"] == ["entropy collapse", "reward decline"]
    assert said["grade"] == "failing"
    assert said["text"].startswith(f"{tmp_path / 'b.jsonl'}: {document['verdict']}; what to do: raise the upper clip")
    with pytest.raises(UserError, match="not an http or https URL"):
        call(capsys, tmp_path / "a.jsonl", "--webhook", "ftp://example.org")


# One screen


@pytest.mark.parametrize("columns", [40, 60, 120])
def test_one_screen_whatever_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str], columns: int) -> None:
    """At most 20 lines, none beyond the width; nothing that is flagged is left out without a word."""
    path = log(tmp_path / "a.jsonl", collapse=True)
    run = read(path)
    findings = diagnose(run)
    judged, found = verdict(run, findings), answer.of_run(run, findings)
    lines = screen.text(run, judged, findings, found, "{left}-v", columns).split("\n")
    assert len(lines) <= 20
    assert max(map(len, lines)) <= columns
    said = " ".join(" ".join(lines).split())
    assert "failing: entropy collapse, since step 42" in said
    assert "reward decline" in said or "more remark" in said
    assert said.index("What to do: ") < said.index("✗ failing") < said.index("Not logged: ") < said.index(" rules, ")
    if columns == 120:
        assert "entropy, last 20%: " in said
        assert len(call(capsys, path, "-v")[1].splitlines()) > 40


def test_what_the_record_proves_is_certain(tmp_path: Path) -> None:
    """Not "confidence 1.000 (p = 0)"."""
    findings = {finding.fault: finding for finding in diagnose(read(log(tmp_path / "a.jsonl", collapse=True)))}
    found = findings["entropy collapse"]
    assert screen.certainty(replace(found, basis="fact")) == "certain"
    assert screen.certainty(replace(found, adjusted=0.0001)) == "confidence\u00a0above\u00a00.999"
    assert screen.certainty(replace(found, adjusted=0.029)) == "confidence\u00a00.971"


def test_colours_are_for_a_terminal_and_escapes_of_a_log_stay_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log(tmp_path / "x\x1b[2J.jsonl", collapse=True)
    assert "\x1b" not in call(capsys, path)[1]
    monkeypatch.setattr(wrapping, "has_colours", lambda: True)
    out = call(capsys, path)[1]
    assert out.startswith("\x1b[1;31mFailing: ")
    assert out.count("\x1b") == 2


# What is no run, or a broken one


class Trap:
    """A pickle that would leave a file behind if it were loaded."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def bad(folder: Path) -> dict[str, tuple[Path, str]]:
    """Name -> a path that cannot be diagnosed, and words of the message."""
    files = {
        "empty": (b"", "is empty"),
        "sft.jsonl": (b'{"step": 1, "loss": 2.0, "learning_rate": 1e-5}\n' * 3, "log of supervised training"),
        "junk.log": (bytes(range(256)) * 64, "binary file"),
        "text.log": (b"hello\nworld\n" * 20, "text.log"),
        "training_args.bin": (pickle.dumps(Trap(folder / "sprung")), "pickle"),
        "model.pt": (b"PK\x03\x04 zip", "pickle or an archive"),
        "cut.json": (b'{"log_history": [{"step": 1, "rew', "not valid JSON"),
        "deep.json": (b"[" * 100_000, "deep.json"),
        "utf16.csv": ("step,reward\n1,2\n".encode("utf-16"), "UTF-16"),
    }
    found = {}
    for name, (content, words) in files.items():
        (folder / name).write_bytes(content)
        found[name] = (folder / name, words)
    runs = folder / "runs"
    runs.mkdir()
    log(runs / "a.jsonl")
    log(runs / "b.jsonl", collapse=True)
    return {**found, "two": (runs, "holds logs of different runs"), "none": (folder / "no" / "such", "there is no")}


def test_two_logs_of_the_same_rows_are_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As verl's, which prints its rows, rounded, and writes them; the one with more metrics is read."""
    full = log(tmp_path / "b.jsonl")
    rows = [json.loads(line) for line in full.read_text().splitlines()]
    printed = [{"step": row["step"], "reward": round(row["reward"], 3), "entropy": row["entropy"]} for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, printed)))
    status, out, document = call(capsys, tmp_path)
    assert status == 0
    assert "b.jsonl and a.jsonl tell of the same rows; b.jsonl is read" in out
    assert document["verdict"] == call(capsys, full)[2]["verdict"]


def test_what_is_no_run_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Through the command line: exit status 2, a line that names the file, no traceback; pickles are not loaded."""
    for name, (path, words) in bad(tmp_path).items():
        assert cli.main(["diagnose", str(path)]) == 2, name
        said = capfd.readouterr()
        assert said.out == "", name
        assert said.err.startswith("grposcope: error: "), name
        assert said.err.count("\n") == 1, name
        assert words in said.err, (name, said.err)
        assert str(path) in said.err, name
    assert not (tmp_path / "sprung").exists()


def test_a_half_written_last_line_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "a.jsonl")
    with path.open("a") as file:
        file.write('{"step": 81, "reward": 0.')
    _, out, document = call(capsys, path)
    assert document["rows"] == 80
    assert "Note: a.jsonl, line 81: the last line is unfinished and was left out" in out


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "a.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:40], "{broken\n", *lines[40:]]))
    _, out, document = call(capsys, path)
    assert document["rows"] == 80
    assert "1 line is not JSON and was left out: 41" in out


HOSTILE = "\x1b]0;owned\x07\x1b[2J</script><script>alert(1)</script>"


def test_escapes_and_html_of_a_log_stay_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In keys, in completions and in the name of the file; on the terminal, in JSON and on the page."""
    path = tmp_path / "x\x1b[2J.jsonl"
    rows = [
        {"step": i + 1, "reward": 0.3, f"loss {HOSTILE}": 1.0, HOSTILE: HOSTILE, "completion": HOSTILE}
        for i in range(60)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, out, document = call(capsys, path, "--html", tmp_path / "page.html")
    assert "\x1b" not in out
    assert document["rows"] == 60
    page = (tmp_path / "page.html").read_text()
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert cli.main(["diagnose", f"{tmp_path}/no\x1b[2J"]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    import subprocess

    path = log(tmp_path / "a.jsonl")
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; '{sys.executable}' -m grposcope.cli diagnose '{path}' | true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("given", ["reward=step,step=reward", "reward=step", "kl=step"])
def test_the_key_of_the_steps_is_no_other_metric(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["diagnose", str(log(tmp_path / "a.jsonl")), "--map", given]) == 2
    assert 'the key "step" counts steps and cannot be' in capsys.readouterr().err


def piped(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Have standard input hold this."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_several_logs_are_judged_each_under_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has the text that it has alone, the last line counts, and the worst status is that of the command."""
    good, bad = log(tmp_path / "good.jsonl"), log(tmp_path / "bad.jsonl", collapse=True)
    alone = {path: call(capsys, path)[1:] for path in (good, bad)}
    status, out, documents = call(capsys, good, bad, "--fail-on", "failing")
    assert status == 1
    for path in (good, bad):
        assert f"==> {path} <==\n{alone[path][0]}" in out
    assert out.rstrip().splitlines()[-1] == "2 runs: 1 failing, 1 healthy"
    assert documents == [alone[good][1], alone[bad][1]], "a document for each, as it has alone"
    assert call(capsys, good, good, "--fail-on", "failing")[0] == 0


def test_a_log_that_cannot_be_read_leaves_the_others_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, gone = log(tmp_path / "bad.jsonl", collapse=True), tmp_path / "gone.jsonl"
    status, out, documents = call(capsys, gone, bad, "--fail-on", "failing")
    assert status == 2
    assert f"==> {gone} <==\nCannot be read: there is no {gone}" in out
    assert out.rstrip().endswith("2 runs: 1 failing, 1 cannot be read")
    assert documents[0]["source"] == str(gone)
    assert documents[0]["error"].startswith("there is no ")
    assert documents[1]["word"] == "failing"


def test_json_of_several_logs_is_one_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "a.jsonl")
    assert cli.main(["diagnose", str(path), str(path), "--json"]) == 0
    assert [one["word"] for one in json.loads(capsys.readouterr().out)] == ["healthy", "healthy"]


@pytest.mark.parametrize("form", ["jsonl", "csv", "console"])
def test_a_log_from_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """The verdict is that of the file, whose form is told by its text; its name is standard input."""
    rows = [json.loads(line) for line in log(tmp_path / "a.jsonl").read_text().splitlines()]
    texts = {
        "jsonl": [json.dumps(row) for row in rows],
        "csv": [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)],
        "console": [" ".join(f"{key}={value}" for key, value in row.items()) for row in rows],
    }
    content = "\n".join(texts[form]) + "\n"
    (tmp_path / "a.log").write_text(content)
    _, of_file, _ = call(capsys, tmp_path / "a.log")
    piped(monkeypatch, content.encode())
    status, out, document = call(capsys, "-")
    assert status == 0
    assert out.splitlines()[0] == of_file.splitlines()[0]
    assert document["source"] == "standard input"
    piped(monkeypatch, content.encode())
    assert call(capsys, "-", tmp_path / "a.log")[1].startswith("==> standard input <==\nHealthy")
    piped(monkeypatch, content.encode())
    assert cli.main(["diagnose", "-", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("standard input · ")


def test_what_several_logs_and_standard_input_do_not_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log(tmp_path / "a.jsonl")
    with pytest.raises(UserError, match="--html draws the page of one run"):
        call(capsys, path, path, "--html", tmp_path / "a.html")
    with pytest.raises(UserError, match="standard input can be read only once"):
        call(capsys, "-", "-")
    piped(monkeypatch, b"")
    with pytest.raises(UserError, match="standard input is empty"):
        call(capsys, "-")
