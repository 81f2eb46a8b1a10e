"""A person at a terminal sees text, a program the JSON document on the last line, and --json prints nothing else."""

from __future__ import annotations

import argparse
import json
import sys

import pytest

from grposcope.cli import main
from grposcope.commands import HELP, output

SETTING = ["stability", "--lr", "0.1", "--curvature", "1"]


@pytest.mark.parametrize(("terminal", "only", "text", "document"), [
    (True, False, True, False), (True, True, False, True), (False, False, True, True), (False, True, False, True),
])  # fmt: skip
def test_who_reads_decides_what_is_printed(
    terminal: bool,
    only: bool,
    text: bool,
    document: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert main([*SETTING, *(["--json"] if only else [])]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert bool(lines) == text
    assert last.startswith("{") == document
    if document:
        assert json.loads(last)["verdict"] == "stable"


@pytest.mark.parametrize("name", HELP)
def test_every_command_has_the_flag(name: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert "--json" in capsys.readouterr().out


def test_a_document_is_one_line(capsys: pytest.CaptureFixture) -> None:
    output.finish(argparse.Namespace(json=True), {"text": "one\ntwo"})
    assert len(capsys.readouterr().out.splitlines()) == 1
