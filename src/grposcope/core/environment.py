"""Description of the environment of a run: versions, machine, command line, and the state of the user's own code."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("grposcope", "torch", "transformers", "tokenizers", "safetensors", "numpy", "math-verify", "reasoning-gym")


def environment(folder: Path | None = None) -> dict[str, Any]:
    """Versions, machine, command line and git state, as plain JSON values, so that a run can be repeated.

    git: commit, branch and whether there are uncommitted changes in `folder` (the current one by
    default); None where it is not in a repository or git is not installed.
    """
    return {
        "python": platform.python_version(),
        "host": platform.node(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        **{name: installed for name in PACKAGES if (installed := _version(name)) is not None},
        "command": shlex.join(sys.argv),
        "git": _git_state(folder or Path()),
    }


def _git_state(folder: Path) -> dict[str, Any] | None:
    """Commit, branch and whether there are uncommitted changes, of the repository that holds `folder`, if any."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    branch, changes = _git(folder, "rev-parse", "--abbrev-ref", "HEAD"), _git(folder, "status", "--porcelain")
    return {"commit": commit, "branch": branch, "dirty": bool(changes) if changes is not None else None}


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
