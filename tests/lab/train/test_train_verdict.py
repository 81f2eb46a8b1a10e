"""`grposcope train` ends with the verdict that `grposcope diagnose` has of its record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_runs import config

from grposcope.cli import main
from grposcope.lab.policies import Policy


def test_the_last_words_are_the_first_line_of_diagnose(
    policy: Policy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = config(policy, tmp_path, "equal")
    size = "--prompts 3 --group 4 --max-tokens 6 --steps 12 --eval-every 0 --checkpoint-every 0 --rollouts-every 0"
    flags = ["--model", asked.model, "--task", asked.task, "--reward", str(asked.reward), *size.split()]
    run = str(tmp_path / "run")
    assert main(["train", *flags, "--out", run]) == 0
    told = capsys.readouterr().out
    assert main(["diagnose", run, "--json"]) == 0
    line = json.loads(capsys.readouterr().out)["sentence"]
    assert line.startswith("Warning: ")
    assert f"\n{line} (why, and what to do: grposcope diagnose {run})\n\nnext:" in told
    assert main(["train", *flags, "--out", f"{run}2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == line
