"""Scripts in benchmarks/ and experiments/ are too slow to run here; what they use of the package must exist."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(
    path.relative_to(ROOT) for folder in ("benchmarks", "experiments") for path in ROOT.glob(f"{folder}/*.py")
)


def programs(tree: ast.Module) -> Iterator[ast.Module]:
    """The script, and every program that it holds as a string to be run in a process of its own."""
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "from grposcope" in node.value:
            try:
                yield ast.parse(textwrap.dedent(node.value))
            except SyntaxError:  # prose that names an import
                continue


def names(tree: ast.Module) -> Iterator[str]:
    """Dotted names of what a program imports from the package, and of the attributes it takes from its modules."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "grposcope":
            for alias in node.names:
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    yield from modules.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield f"{modules[node.value.id]}.{node.attr}"


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_what_a_script_uses_exists(script: Path) -> None:
    missing = []
    for program in programs(ast.parse((ROOT / script).read_text())):
        for name in names(program):
            owner, _, attribute = name.rpartition(".")
            try:
                holder = resolve_name(owner)
                if isinstance(holder, ModuleType) and not hasattr(holder, attribute):
                    resolve_name(name)
            except ModuleNotFoundError as error:
                if not (error.name or "").startswith("grposcope"):
                    pytest.skip(f"{error.name} is not installed")
                missing.append(name)
            except AttributeError:
                missing.append(name)
    assert not missing
