"""List every sentence of the package that a user can see: verdicts, advice, notes, errors, help, page text.

python docs/words.py                        # all of them, with file and line
python docs/words.py instruments/diagnosis  # of one folder or file under src/grposcope
python docs/words.py --count                # how many each room has

A sentence is a string constant or f-string of at least three words that is not documentation: no docstring, no bare
string, no pattern or template of code. What an f-string puts in is shown as {…}.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "grposcope"
_WORD = re.compile(r"(?<![\w/_.=-])[A-Za-z][a-z]*(?:'[a-z]+)?(?![\w/_=(])")
_CODE = re.compile(r"\\[dwsb(]|\(\?[P:!=<]|</?[a-z]+[ >]|[{;]\s*\n|^\s*(SELECT|import|from|def) |#include|__\w+__")


class Sentence(NamedTuple):
    """A string that a user may read: its file under src/grposcope, its line, its text with {…} for what is put in."""

    file: str
    line: int
    text: str


def sentences(source: Path = SOURCE) -> list[Sentence]:
    """Return every sentence under `source`, in the order of files and lines."""
    return [
        Sentence(path.relative_to(source).as_posix(), line, text)
        for path in sorted(source.rglob("*.py"))
        for line, text in _strings(ast.parse(path.read_text(encoding="utf-8")))
        if _reads_as_one(text)
    ]


def _strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each string in `tree` that is not documentation; an f-string is one string."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(_piece(piece) for piece in node.values)
            for piece in node.values:
                if isinstance(piece, ast.FormattedValue):
                    yield from _strings(piece)
        else:
            yield from _strings(node)


def _piece(piece: ast.expr) -> str:
    return str(piece.value) if isinstance(piece, ast.Constant) else "{…}"


def _reads_as_one(text: str) -> bool:
    """Whether `text` is a sentence or a part of one: three words, most of it words, no code."""
    words = _WORD.findall(text)
    return len(words) >= 3 and " " in text.strip() and not _CODE.search(text)


def main() -> None:
    """Print the sentences, or how many there are."""
    parser = argparse.ArgumentParser(description="list the sentences that a user can see")
    parser.add_argument("under", nargs="?", default="", help="a folder or file under src/grposcope")
    parser.add_argument("--count", action="store_true", help="how many each room has")
    flags = parser.parse_args()
    found = [sentence for sentence in sentences() if sentence.file.startswith(flags.under)]
    if flags.count:
        rooms = Counter("/".join(sentence.file.split("/")[:2]) for sentence in found)
        print("\n".join(f"{count:5d}  {room}" for room, count in sorted(rooms.items())))
        print(f"{len(found):5d}  in all")
        return
    for file, line, text in found:
        print(f"{file}:{line}: {' '.join(text.split())}")


if __name__ == "__main__":
    main()
