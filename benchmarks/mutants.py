"""How many small faults the tests of a module notice.

    python benchmarks/mutants.py src/grposcope/maths/moments.py=tests/maths/test_moments.py [MODULE=TESTS,TESTS ...]

Draws `--draws` places of every module with the seed, changes one operator there (a comparison negated, + for −, × for
÷, a number by one, a returned value to None), and runs the tests named beside the module on a copy of the sources that
has this one fault. A fault is noticed when a test fails, or when the tests take `--limit` seconds. Prints each fault
and whether it was noticed. Draws depend on the module's text and the seed alone, so that two sets of tests meet the
same faults.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEGATED = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SWAPPED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    """A module with one fault: its text, and where and how it differs from the original."""

    text: str
    line: int
    before: str
    after: str


def mutants(source: str, draws: int, seed: int) -> list[Mutant]:
    """`draws` different faults of a module (fewer where it has fewer places), the same for the same text and seed."""
    rng = random.Random(seed)
    places = [place for place, node in enumerate(ast.walk(ast.parse(source))) if changed(node, 1) is not None]
    return [_mutant(source, place, rng.choice((-1, 1))) for place in rng.sample(places, min(draws, len(places)))]


def _mutant(source: str, place: int, by: int) -> Mutant:
    tree = ast.parse(source)
    node = list(ast.walk(tree))[place]
    before = ast.unparse(node)
    for name, value in (changed(node, by) or {}).items():
        setattr(node, name, value)
    return Mutant(ast.unparse(tree), getattr(node, "lineno", 0), before, ast.unparse(node))


def changed(node: ast.AST, by: int) -> dict[str, object] | None:
    """The fields of a node that make it wrong, a number off by `by`; None where a node can have no such fault."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in NEGATED:
            return {"ops": [NEGATED[type(operator)]()]}
        case ast.BinOp(op=operator) if type(operator) in SWAPPED:
            return {"op": SWAPPED[type(operator)]()}
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return {"value": number + by}
        case ast.Return(value=value) if value is not None and not (isinstance(value, ast.Constant) and not value.value):
            return {"value": ast.Constant(None)}
    return None


def noticed(module: Path, text: str, tests: list[str], limit: float) -> bool:
    """Whether the tests fail, or take longer than `limit` seconds, when the module of the package reads `text`."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy)
        target = copy / module.relative_to("src")
        for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*"):
            compiled.unlink()
        target.write_text(text)
        helpers = [str(ROOT / name) for name in ("tests/helpers", "tests", "experiments", "benchmarks")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), *helpers]), "CI": "true"}
        command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests]
        try:
            return (
                subprocess.run(command, cwd=ROOT, env=environment, timeout=limit, capture_output=True).returncode != 0
            )
        except subprocess.TimeoutExpired:
            return True


def judged(module: Path, tests: list[str], options: argparse.Namespace) -> Iterator[tuple[Mutant, bool]]:
    """Every drawn fault of a module, and whether its tests noticed."""
    source = (ROOT / module).read_text()
    if noticed(module, ast.unparse(ast.parse(source)), tests, options.limit):
        print(f"{module}: left out, its tests fail without any fault, or take longer than {options.limit:g} s")
        return
    drawn = mutants(source, options.draws, options.seed)
    with ThreadPoolExecutor(options.workers) as pool:
        yield from zip(drawn, pool.map(lambda m: noticed(module, m.text, tests, options.limit), drawn), strict=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pairs", nargs="+", metavar="MODULE=TESTS", help="a module and its tests, with commas between")
    parser.add_argument("--draws", type=int, default=8, help="faults of each module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a fault counts as noticed")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    total: Counter[bool] = Counter()
    for pair in options.pairs:
        module, _, tests = pair.partition("=")
        for mutant, killed in judged(Path(module), tests.split(","), options):
            total[killed] += 1
            change = f"{mutant.before}  →  {mutant.after}"
            print(f"{module}:{mutant.line}: {'noticed' if killed else 'NOT NOTICED'}: {change}", flush=True)
    print(f"{total[True]} of {total.total()} noticed")


if __name__ == "__main__":
    main()
