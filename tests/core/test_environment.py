"""What is kept of the place a run ran in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from grposcope.core.environment import _git_state, environment


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_git_state(tmp_path: Path) -> None:
    assert _git_state(tmp_path) is None
    git(tmp_path, "init", "-b", "topic")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    assert _git_state(tmp_path) == {"commit": commit, "branch": "topic", "dirty": False}
    (tmp_path / "a").write_text("2")
    assert _git_state(tmp_path) == {"commit": commit, "branch": "topic", "dirty": True}


def test_a_working_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert environment()["git"] is None


def test_environment_names_versions(tmp_path: Path) -> None:
    about = environment(tmp_path)
    assert about["git"] is None
    assert {"python", "torch", "transformers", "grposcope", "command"} <= about.keys()
