"""Imports point down only; CONTRIBUTING.md draws the map."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "grposcope"
LEVEL = {
    "errors": 0, "formatting": 0,
    "records": 1, "files": 1, "named": 1, "yaml_files": 2,
    "objectives": 2, "ustat": 2, "timeseries": 2, "tasks": 2, "policies": 2,
    "runs": 3, "credit": 3, "allocation": 3,
    "diagnosis": 4, "dynamics": 4,
    "geometry": 5, "facts": 5,
    "lint": 6, "training": 6,
    "engines": 7, "sweeps": 7,
    "report": 8,
    "commands": 9,
    "cli": 10,
    "__main__": 11,
}  # fmt: skip
TORCHLESS = (
    "errors",
    "files",
    "formatting",
    "named",
    "ustat",
    "allocation",
    "timeseries",
    "dynamics",
    "runs",
    "diagnosis",
    "facts",
    "lint",
)

FILES = sorted(f for f in SOURCE.rglob("*.py") if f != SOURCE / "__init__.py")


def room(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(file: Path) -> set[str]:
    """Absolute names of everything the file imports, wherever in it the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_every_room_has_a_level() -> None:
    assert {room(f) for f in FILES} <= LEVEL.keys()


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_imports_point_down(file: Path) -> None:
    own = room(file)
    for name in imported(file):
        parts = name.split(".")
        if parts[0] != "grposcope" or len(parts) == 1 or parts[1].startswith("__"):
            continue
        assert parts[1] == own or LEVEL[parts[1]] < LEVEL[own], f"{own} must not import {name}"


@pytest.mark.parametrize("file", [f for f in FILES if room(f) in TORCHLESS], ids=lambda f: str(f.relative_to(SOURCE)))
def test_rooms_without_torch(file: Path) -> None:
    assert not [name for name in imported(file) if name.split(".")[0] in ("torch", "transformers")]


def modules() -> dict[str, Path]:
    """File of every module by its dotted name."""
    named = {}
    for file in FILES:
        parts = ("grposcope", *file.relative_to(SOURCE).with_suffix("").parts)
        named[".".join(parts).removesuffix(".__init__")] = file
    return named


def dependencies() -> dict[str, set[str]]:
    """Modules of ours that each module imports, wherever in it the import stands."""
    files = modules()

    def owner(name: str) -> str:
        while name and name not in files:
            name = name.rpartition(".")[0]
        return name

    return {module: {owner(name) for name in imported(file)} - {"", module} for module, file in files.items()}


def test_no_two_modules_import_each_other() -> None:
    """Modules can be put in an order in which each imports earlier ones only."""
    waiting = dependencies()
    while ready := {module for module, needed in waiting.items() if not needed & waiting.keys()}:
        waiting = {module: needed for module, needed in waiting.items() if module not in ready}
    assert not waiting, "these import each other, or what does: " + ", ".join(sorted(waiting))


def test_a_class_name_means_one_thing() -> None:
    trees = [ast.parse(file.read_text()) for file in FILES]
    classes = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert not [name for name, count in classes.items() if count > 1 and not name.startswith("_")]


FLAGS_BELONG = ("commands", "cli")
OTHER_PROGRAMS = ("runs/trainers", "training/pretrain.py", "policies/smollm2.py", "runs/environment.py")
"""Flags of other trainers, of pip and git, and of a program of its own."""


def test_only_commands_name_flags() -> None:
    """What lies below `commands` names quantities in its messages; the same message also reaches users of Python."""
    naming = []
    for file in FILES:
        place = file.relative_to(SOURCE).as_posix()
        if room(file) in FLAGS_BELONG or place.startswith(OTHER_PROGRAMS):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                naming += [f"{place}: {flag}" for flag in re.findall(r"(?<![\w(-])--[a-z][a-z-]+", node.value)]
    assert not naming
