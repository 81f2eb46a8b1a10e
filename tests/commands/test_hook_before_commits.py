""".pre-commit-hooks.yaml: its entry, run as pre-commit runs it, on the files of a commit."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from asked import asked
from places import ROOT

(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))

FILES = {
    "bad.yaml": "learning_rate: 0.0\nnum_generations: 8\nbeta: 0.0\n",
    "good.yaml": "learning_rate: 1.0e-6\nnum_generations: 8\nbeta: 0.0\nper_device_train_batch_size: 8\n",
    "two.py": "from trl import GRPOConfig\n\na = GRPOConfig(learning_rate=1e-6)\nb = GRPOConfig(learning_rate=0.0)\n",
    "helper.py": "def add(a, b):\n    return a + b\n",
    "template.yaml": "name: {{ name }}\n",
    "odd name.json": '{"dependencies": {}}\n',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def committed(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """The entry with its arguments and the names of files, in the root of the repository, as pre-commit calls it."""
    program, *words = shlex.split(HOOK["entry"])
    assert program == "grposcope"
    line = [sys.executable, "-m", "grposcope", *words, *HOOK.get("args", ()), *names]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)


def test_the_hook_is_one_that_pre_commit_takes() -> None:
    assert {"id", "name", "entry", "language"} <= set(HOOK)
    assert HOOK["language"] == "python"
    assert set(HOOK["types_or"]) <= {"python", "jupyter", "yaml", "toml", "json", "shell"}


def test_a_commit_with_settings_that_cannot_work_is_stopped(folder: Path) -> None:
    done = committed(folder, *FILES)
    assert done.returncode == 1, done.stderr
    assert "zero learning rate" in done.stdout
    assert "==> two.py#1 <==" in done.stdout
    assert "==> two.py#2 <==" in done.stdout
    assert done.stdout.count("no settings can be read, passed over") == 3
    assert re.search(r"^7 sets of settings: 2 failing, .*3 cannot be read$", done.stdout, re.M), done.stdout[-200:]


def test_other_commits_pass(folder: Path) -> None:
    done = committed(folder, "good.yaml", "helper.py", "template.yaml", "odd name.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr


def test_without_the_flag_a_file_without_settings_is_an_error(folder: Path) -> None:
    status, documents = asked("lint", folder / "good.yaml", folder / "helper.py", folder / "none.yaml")
    assert status == 2
    assert [bool(said.get("error")) for said in documents] == [False, True, True]
    status, documents = asked("lint", "--skip-others", folder / "good.yaml", folder / "none.yaml")
    assert status == 2, "a file that does not exist is no file without settings"
    json.dumps(documents)
