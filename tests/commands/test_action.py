"""The action for continuous integration: its step is run here as the runner would, with the runner's variables."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic_series as made
from made_logs import of_columns
from places import ROOT

from grposcope.core import yaml_files

ACTION = yaml_files.read(ROOT / "action.yml").content


def judged(tmp_path: Path, path: str, **inputs: str) -> tuple[int, str, str, str]:
    """The exit status, what is printed, the summary and the outputs of the step, for these inputs."""
    assert isinstance(ACTION, dict)
    step = ACTION["runs"]["steps"][1]
    given = {"path": path, **{name: entry.get("default", "") for name, entry in ACTION["inputs"].items()
                              if name != "path"}, **inputs}  # fmt: skip
    names = {name: re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)[1] for name, value in step["env"].items()}  # type: ignore[index]
    files = {name: tmp_path / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    environment = {**os.environ, **{name: given[of] for name, of in names.items()},
                   **{name: str(file) for name, file in files.items()}, "GITHUB_ACTION_PATH": str(ROOT)}  # fmt: skip
    assert step["run"] == 'python "$GITHUB_ACTION_PATH/action/judge.py"'
    done = subprocess.run(
        [sys.executable, str(ROOT / "action" / "judge.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    summary, output = (file.read_text("utf-8") if file.exists() else "" for file in files.values())
    return done.returncode, done.stdout, summary, output


@pytest.mark.slow
def test_a_failing_run_fails_the_job_and_says_why(tmp_path: Path) -> None:
    never = dict.fromkeys(("reward", "reward_std", "grad_norm", "loss"), [0.0] * 120)
    table = made.healthy() | never | {"dead_fraction": [1.0] * 120, "truncated": [1.0] * 120, "length": [256.0] * 120}
    log = of_columns(tmp_path, "cut", table).path
    status, printed, summary, output = judged(tmp_path, str(log))
    assert status == 1
    assert re.match(rf"::error file={re.escape(str(log))},title=length::length: every completion is cut", printed)
    assert "word=failing\n" in output
    assert "### " in summary
    assert "| failing | length |" in summary


def test_a_healthy_run_passes(tmp_path: Path) -> None:
    log = of_columns(tmp_path, "sound", made.healthy()).path
    status, printed, _, output = judged(tmp_path, str(log))
    assert status == 0
    assert "::error" not in printed
    assert "word=healthy\n" in output


@pytest.mark.slow
def test_settings_are_linted_and_what_is_unreadable_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("trl grpo --num_generations 1 --learning_rate 1e-6 --loss_type grpo\n")
    status, printed, summary, _ = judged(tmp_path, str(tmp_path / "train.sh"), command="lint")
    assert status == 1
    assert "group of one" in printed
    assert "group of one" in summary
    assert judged(tmp_path, str(tmp_path / "nothing.jsonl"))[:2][0] == 2
    assert judged(tmp_path, "x", command="train")[0] == 2


@pytest.mark.parametrize("text", ["a\nb", "a%0Ab", "::error::x", "| a |"])
def test_a_text_of_a_log_cannot_break_out(text: str) -> None:
    sys.path.insert(0, str(ROOT / "action"))
    import judge

    told = {"sentence": text, "findings": [{"status": "present", "grade": "failing", "fault": text, "because": text,
                                            "remedy": text, "since": None}]}  # fmt: skip
    assert all("\n" not in line and line.startswith("::error file=") for line in judge.annotations(told, "log"))
    assert len(judge.summary(json.loads(json.dumps(told)), "log").split("\n")) == 6
