"""What the files of the package and its tests import, read from their source: where, and under which condition."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from places import ROOT, TESTS

from grposcope.core.instrument import Instrument
from grposcope.instruments import FOLDERS, all_instruments

SOURCE = ROOT / "src" / "grposcope"
BESIDE = (TESTS / "helpers", TESTS, ROOT / "experiments", ROOT / "benchmarks")
"""Folders of modules that tests import, besides the package."""


@dataclass(frozen=True)
class Import:
    """name: absolute, of a module or of what is taken from it. inside: in a function, so that it waits for a call.
    guards: folders of instruments whose presence the code has asked for with `has` before it comes here."""

    name: str
    inside: bool
    guards: frozenset[str]


@dataclass(frozen=True)
class Source:
    """What tests ask of a file, from one parse of it: parsing all files takes seconds.

    imports: all but those for type checkers alone. imported: absolute names of everything that is imported, wherever.
    classes: names of the classes at its top. attributes: (name, attribute) where a plain name is before the dot.
    page: the docstring of the module, empty without one. strings: its constants, without the page.
    """

    imports: tuple[Import, ...]
    imported: frozenset[str]
    classes: tuple[str, ...]
    attributes: frozenset[tuple[str, str]]
    page: str
    strings: tuple[str, ...]


@cache
def source(file: Path) -> Source:
    """A file's Source. AssertionError for a relative import."""
    tree = ast.parse(file.read_text())
    names: set[str] = set()
    attributes: set[tuple[str, str]] = set()
    strings = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.add((node.value.id, node.attr))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.append(node.value)
    page = ast.get_docstring(tree, clean=False) or ""
    return Source(
        imports=tuple(_in(tree.body, False, frozenset())),
        imported=frozenset(names),
        classes=tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef)),
        attributes=frozenset(attributes),
        page=page,
        strings=tuple(text for text in strings if text != page),
    )


def imports(file: Path) -> tuple[Import, ...]:
    """All imports of a file but those for type checkers alone."""
    return source(file).imports


def _in(body: Sequence[ast.AST], inside: bool, guards: frozenset[str]) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, inside, guards) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(f"{node.module}.{alias.name}", inside, guards) for alias in node.names)
        elif isinstance(node, ast.If):
            asked, absent = _asked(node.test), _asked(node.test, negated=True)
            if "TYPE_CHECKING" not in ast.unparse(node.test):
                yield from _in(node.body, inside, guards | asked)
            yield from _in(node.orelse, inside, guards | absent)
            if isinstance(node.body[-1], ast.Return | ast.Raise):
                guards |= absent
        else:
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _in(list(ast.iter_child_nodes(node)), inside or function, guards)


def _asked(test: ast.expr, negated: bool = False) -> frozenset[str]:
    """Folders of instruments that are there where the condition holds; negated: where it does not."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _asked(test.operand, not negated)
    if isinstance(test, ast.BoolOp):
        every = isinstance(test.op, ast.And) is not negated
        return frozenset().union(*(_asked(part, negated) for part in test.values)) if every else frozenset()
    if not negated and isinstance(test, ast.Call) and getattr(test.func, "id", getattr(test.func, "attr", "")) == "has":
        return frozenset(part.value for part in test.args if isinstance(part, ast.Constant))
    return frozenset()


@cache
def folder_of(name: str) -> str:
    """The folder of instruments that a dotted name lies in; empty for none."""
    parts = name.split(".")
    inside = parts[:2] == ["grposcope", "instruments"] and len(parts) > 2
    return parts[2] if inside and (SOURCE / "instruments" / parts[2]).is_dir() else ""


@cache
def place_of(name: str) -> Path | None:
    """The file of the module that an imported name is or lies in; None where it is none of ours."""
    while name:
        path = name.replace(".", "/")
        for folder in (ROOT / "src", *BESIDE):
            for file in (folder / f"{path}.py", folder / path / "__init__.py"):
                if file.is_file():
                    return file
        name = name.rpartition(".")[0]
    return None


def reached(files: Iterable[Path], within: Path) -> frozenset[Path]:
    """These files and all below a folder that they import, at once or in functions, and what those import."""
    waiting, seen = set(files), set[Path]()
    while waiting:
        seen.add(file := waiting.pop())
        imported = {place_of(imported.name) for imported in imports(file)}
        waiting |= {place for place in imported if place is not None and place.is_relative_to(within)} - seen
    return frozenset(seen)


@cache
def files_of(instrument: Instrument) -> frozenset[Path]:
    """The files of its folder that belong to an instrument: what its answers and its commands reach there.

    What no instrument of the folder reaches, since it is entered from elsewhere, counts for the one that uses most.
    """

    def own(instrument: Instrument) -> frozenset[Path]:
        modules = (instrument.answers, *(command.module for command in instrument.commands))
        return reached([file for module in modules if module and (file := place_of(module))], folder)

    folder = SOURCE / "instruments" / FOLDERS[instrument.name]
    sharing = [other for other in all_instruments() if FOLDERS[other.name] == folder.name]
    rest = frozenset(folder.rglob("*.py")).difference(*map(own, sharing))
    return own(instrument) | (rest if instrument == max(sharing, key=lambda other: len(other.uses)) else frozenset())


@cache
def needed_to_import(file: Path) -> frozenset[str]:
    """The folders of instruments without which a file cannot be imported: it names them, or what it imports does.

    Of a test and its helpers also those that are imported in functions, since the tests will call them.
    """
    found: set[str] = set()
    waiting, seen = [file], {file}
    while waiting:
        one = waiting.pop()
        instruments, places = _at_once(one)
        found |= instruments
        waiting += places - seen
        seen |= places
    return frozenset(found)


@cache
def _at_once(file: Path) -> tuple[frozenset[str], frozenset[Path]]:
    """Folders of instruments that a file names, and files that are imported with it, packages on the way among them."""
    waits = file.is_relative_to(SOURCE)
    names = {one.name for one in imports(file) if not one.guards and not (one.inside and waits)}
    every = {".".join(name.split(".")[:end]) for name in names for end in range(1, name.count(".") + 2)}
    places = {place_of(name) for name in every}
    return frozenset(map(folder_of, names)) - {""}, frozenset(place for place in places if place is not None)
