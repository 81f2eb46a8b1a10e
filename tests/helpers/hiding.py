"""Hides folders of instruments, as if they were not there: in this process, or while commands run in another."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "grposcope.instruments"


class Declining:
    """A finder of modules that does not find those of hidden folders, and else does what `finder` does."""

    def __init__(self, finder: Any, hidden: Collection[str]):
        self.finder = finder
        self.hidden = {f"{PACKAGE}.{name}" for name in hidden}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The place of a module; None for one of a hidden folder."""
        if ".".join(name.split(".")[:3]) in self.hidden:
            return None
        found: ModuleSpec | None = self.finder.find_spec(name, path, target)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


def hide(names: Collection[str]) -> None:
    """Make these folders impossible to import from now on; nothing of them may be imported yet."""
    importlib.import_module(PACKAGE)
    imported = [name for name in sys.modules if name.startswith(tuple(f"{PACKAGE}.{one}." for one in names))]
    assert not imported, f"imported before it was hidden: {imported[0]}"
    for name in names:
        sys.modules.pop(f"{PACKAGE}.{name}", None)
    sys.meta_path[:] = [Declining(finder, names) for finder in sys.meta_path]


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str


def commands(hidden: Collection[str], *asked: Sequence[object]) -> list[Ran]:
    """What these commands do, in a process in which these folders are hidden."""
    given = {"hidden": list(hidden), "asked": [[str(word) for word in words] for words in asked], "path": sys.path}
    made = subprocess.run(
        [sys.executable, __file__], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return [Ran(**one) for one in json.loads(made.stdout.splitlines()[-1])]


def _run(words: Sequence[str]) -> dict[str, Any]:
    from grposcope.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as end:
            status = int(end.code or 0)
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}


def tests_in(file: Path) -> list[str]:
    """Names of the tests that a file defines, read from its source."""
    import ast

    tree = ast.parse(file.read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return [node.name for node in functions if node.name.startswith("test_")]


def needs(file: Path) -> frozenset[str]:
    """The folders of instruments that a file of tests needs: its own with what that uses, and what it imports."""
    from imports import needed_to_import
    from places import TESTS

    parts = file.relative_to(TESTS).parts
    own = using(parts[1:2]) if parts[0] == "instruments" and len(parts) > 2 else frozenset()
    return own | needed_to_import(file)


def using(folders: Collection[str]) -> frozenset[str]:
    """These folders of instruments with those that they use, and those that these use."""
    from grposcope.instruments import FOLDERS, all_instruments

    every, seen = all_instruments(), frozenset[str]()
    while set(folders) > seen:
        seen = frozenset(folders)
        folders = seen.union(*(instrument.uses for instrument in every if FOLDERS[instrument.name] in seen))
    return seen


if __name__ == "__main__":
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    hide(request["hidden"])
    print(json.dumps([_run(words) for words in request["asked"]]))
