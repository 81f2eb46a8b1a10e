"""What a newcomer has to hold in the head, counted from the source: `python tests/helpers/house.py` prints the table.

LIMITS are counts reached so far: a change may lower them and none may raise them (`tests/test_house.py`). GOALS are
where they are to go.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from imports import SOURCE

FILLERS = frozenset({
    "apart", "entry", "found", "given", "held", "item", "kept", "known", "left", "one", "part", "place", "thing"
})  # fmt: skip
"""Names that do not say what is in them."""

MOST_PARAMETERS, MOST_BRANCHES = 8, 20
"""Of a function. A branch is a condition, loop, handler, case, filter of a comprehension, operand of `and` and `or`."""

WIDE = f"functions with over {MOST_PARAMETERS} parameters"
BRANCHING = f"functions with over {MOST_BRANCHES} branches"
VAGUE = "fillers among bound names, %"

LIMITS: Mapping[str, float] = {
    "public names": 1843,
    "classes with fields": 449,
    WIDE: 1,  # GRPOscopeTrainer, whose keywords users write
    BRANCHING: 0,
    VAGUE: 1.5,
    "rooms that import each other": 0,
    "folders of instruments": 15,
}
GOALS: Mapping[str, float] = {
    "public names": 1500,
    "classes with fields": 250,
    WIDE: 0,
    BRANCHING: 0,
    VAGUE: 2,
    "rooms that import each other": 0,
    "folders of instruments": 18,
}
SWEPT = frozenset({
    "commands", "core", "instruments/claims", "instruments/credit",
    "instruments/diagnosis", "instruments/dynamics", "instruments/evaluation", "instruments/group_size",
    "instruments/gradient", "instruments/lint", "instruments/offpolicy", "instruments/runs",
    "instruments/verify", "lab/allocation", "lab/cpu", "lab/credit",
    "lab/objectives", "lab/policies", "lab/sampling", "lab/sweeps", "lab/tasks", "maths", "render",
})  # fmt: skip
"""Rooms in which fewer than a fiftieth of all bound names are fillers, and stay so."""


@cache
def trees() -> Mapping[str, ast.Module]:
    """Syntax tree of every file of the package, by its path below it."""
    return {file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text()) for file in sorted(SOURCE.rglob("*.py"))}


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree; kept, as one walk over the package takes seconds."""
    return tuple(ast.walk(tree))


def public_names(tree: ast.Module) -> list[str]:
    """Functions and classes of a module that do not begin with an underscore."""
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, defined) and not node.name.startswith("_")]


def classes_with_fields(tree: ast.Module) -> list[str]:
    """Dataclasses, named tuples, typed dictionaries and whatever else declares fields with their types."""
    classes = [node for node in nodes(tree) if isinstance(node, ast.ClassDef)]
    return [node.name for node in classes if any(isinstance(line, ast.AnnAssign) for line in node.body)]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods, nested ones included."""
    return (node for node in nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Number of named parameters, the `self` or `cls` of a method among them."""
    signature = function.args
    return len(signature.posonlyargs) + len(signature.args) + len(signature.kwonlyargs)


def branches(node: ast.AST) -> int:
    """Branches of a function, without those of the functions and classes defined in it."""
    count, below = 0, list(ast.iter_child_nodes(node))
    while below:
        child = below.pop()
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(child, (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.match_case)):
            count += 1
        elif isinstance(child, ast.comprehension):
            count += len(child.ifs)
        elif isinstance(child, ast.BoolOp):
            count += len(child.values) - 1
        below += ast.iter_child_nodes(child)
    return count


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Every name that is bound, as often as it is: variables, parameters, fields, functions and classes."""
    for node in nodes(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def room(path: str) -> str:
    """The folder that a file counts for: of instruments and the laboratory the second one, else the first."""
    folders = path.split("/")[:-1]
    return "/".join(folders[: 2 if folders[:1] in (["instruments"], ["lab"]) else 1]) or "."


@cache
def fillers() -> dict[str, tuple[int, int]]:
    """Per room: bound names that are fillers, and all bound names."""
    counts: dict[str, tuple[int, int]] = {}
    for path, tree in trees().items():
        names = list(bound_names(tree))
        vague, every = counts.get(room(path), (0, 0))
        counts[room(path)] = (vague + sum(name.strip("_") in FILLERS for name in names), every + len(names))
    return counts


def _folder(path: str) -> str:
    """The room that a file's imports count for: commands are one room, wherever they lie; as in `test_layers`."""
    first, *inner = path.split("/")
    if not inner:
        return ""
    if first in ("instruments", "lab", "watch") and inner[-1].startswith("command"):
        return "commands"
    return f"{first}/{inner[0]}" if first in ("instruments", "lab") and len(inner) > 1 else first


@cache
def circles() -> list[list[str]]:
    """Groups of rooms each of which reaches every other by imports, those in functions too."""
    reached: dict[str, set[str]] = {}
    for path, tree in trees().items():
        own = _folder(path)
        others = {_folder(module) for name in _imported(tree) if (module := _module_path(name))} - {"", own}
        if own:
            reached.setdefault(own, set()).update(others)
    changed = True
    while changed:
        changed = False
        for others in reached.values():
            beyond = set().union(*(reached.get(other, set()) for other in others))
            changed |= not beyond <= others
            others |= beyond
    groups = {tuple(sorted(o for o in others if name in reached.get(o, ()))) for name, others in reached.items()}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def _imported(tree: ast.AST) -> set[str]:
    """Absolute names of all that a module imports, in functions too."""
    names: set[str] = set()
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names


@cache
def _module_path(name: str) -> str:
    """Path below the package of the module that an imported name is or lies in; empty where it is none of ours."""
    while name.startswith("grposcope."):
        path = name.removeprefix("grposcope.").replace(".", "/")
        for file in (f"{path}.py", f"{path}/__init__.py"):
            if file in trees():
                return file
        name = name.rpartition(".")[0]
    return ""


@cache
def counts() -> dict[str, float]:
    """All measures, in the order of the table."""
    every = trees().values()
    vague, bound = (sum(column) for column in zip(*fillers().values(), strict=True))
    return {
        "files": len(trees()),
        "lines": sum(len((SOURCE / path).read_text().splitlines()) for path in trees()),
        "public names": sum(len(public_names(tree)) for tree in every),
        "classes with fields": sum(len(classes_with_fields(tree)) for tree in every),
        WIDE: len(wide()),
        BRANCHING: len(branching()),
        VAGUE: round(100 * vague / bound, 2),
        "rooms that import each other": sum(len(group) for group in circles()),
        "folders of instruments": len([path for path in (SOURCE / "instruments").iterdir() if path.is_dir()])
        - (SOURCE / "instruments" / "__pycache__").is_dir(),
    }


@cache
def wide() -> list[str]:
    """Functions with too many parameters, as `file:line name (count)`."""
    return _over(parameters, MOST_PARAMETERS)


@cache
def branching() -> list[str]:
    """Functions with too many branches, as `file:line name (count)`."""
    return _over(branches, MOST_BRANCHES)


def _over(measure: Callable[[ast.FunctionDef | ast.AsyncFunctionDef], int], most: int) -> list[str]:
    counted = Counter({
        f"{path}:{function.lineno} {function.name}": measure(function)
        for path, tree in trees().items()
        for function in functions(tree)
    })  # fmt: skip
    return [f"{name} ({count})" for name, count in counted.most_common() if count > most]


def table() -> str:
    """Counts beside their limits and goals."""
    lines = [f"{'':42}{'now':>9}{'limit':>9}{'goal':>9}"]
    for name, count in counts().items():
        lines.append(f"{name:42}{count:>9}{LIMITS.get(name, ''):>9}{GOALS.get(name, ''):>9}")
    return "\n".join(lines)


def vague_rooms() -> str:
    """Share of fillers in every room, the largest first."""
    shares = sorted(((100 * vague / every, vague, name) for name, (vague, every) in fillers().items()), reverse=True)
    return "\n".join(f"{name:42}{share:>8.1f} %{vague:>8}" for share, vague, name in shares if vague)


if __name__ == "__main__":
    print(table(), vague_rooms(), *wide(), *branching(), *map(", ".join, circles()), sep="\n")
