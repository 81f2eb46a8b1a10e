"""Scripts in benchmarks/ and experiments/ are too slow to run here; what they use of the package must exist."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import mutants
import pytest
from places import ROOT

SCRIPTS = sorted(
    path.relative_to(ROOT) for folder in ("benchmarks", "experiments") for path in ROOT.glob(f"{folder}/**/*.py")
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


def missing(script: Path) -> Iterator[str]:
    """What the script uses and the package lacks; ModuleNotFoundError where it needs another that is not installed."""
    for program in programs(ast.parse((ROOT / script).read_text())):
        for name in names(program):
            owner, _, attribute = name.rpartition(".")
            try:
                holder = resolve_name(owner)
                if isinstance(holder, ModuleType) and not hasattr(holder, attribute):
                    resolve_name(name)
            except ModuleNotFoundError as error:
                if not (error.name or "").startswith("grposcope"):
                    raise
                yield f"{script}: {name}"
            except AttributeError:
                yield f"{script}: {name}"


def test_what_scripts_use_exists() -> None:
    absent, left_out = [], []
    for script in SCRIPTS:
        try:
            absent += missing(script)
        except ModuleNotFoundError as error:
            left_out.append(f"{script} needs {error.name}")
    assert not absent
    if left_out:
        pytest.skip(f"the other scripts are right; {', '.join(left_out)}")


def test_a_name_that_went_is_found(tmp_path: Path) -> None:
    script = tmp_path / "gone.py"
    script.write_text("from grposcope import logs\nfrom grposcope.gone import away\nlogs.read, logs.went\n")
    assert list(missing(script)) == [f"{script}: grposcope.gone.away", f"{script}: grposcope.logs.went"]


def test_the_drawn_faults_are_single_and_the_same_for_a_seed() -> None:
    source = "def f(x):\n    if x < 3:\n        return x + 1\n    return None\n"
    drawn = mutants.mutants(source, 9, seed=4)
    assert {(fault.line, fault.before) for fault in drawn} == {
        (2, "x < 3"), (2, "3"), (3, "return x + 1"), (3, "x + 1"), (3, "1")
    }  # fmt: skip
    assert drawn == mutants.mutants(source, 9, seed=4)
    plain = ast.unparse(ast.parse(source)).splitlines()
    for fault in drawn:
        changed = [pair for pair in zip(plain, fault.text.splitlines(), strict=True) if len(set(pair)) > 1]
        assert len(changed) == 1
