"""What a command prints: text for people, or with `--json` one JSON document for programs and nothing else.

Whoever reads it, such as head, may leave: the command still does and writes to files what it was asked for.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from grposcope.core.flag import flag
from grposcope.core.text import printable


def json_flag(group: str = "", help: str = "print only the JSON document") -> Any:
    """The field of a command's settings that is --json."""
    return flag(default=False, group=group, help=help)


def say(arguments: argparse.Namespace, text: str, coloured: Callable[[str], str] = str) -> None:
    """Print text for people, as `coloured` makes it, unless --json asks for the document alone."""
    if not arguments.json:
        _print(arguments, coloured(printable(text)))


def finish(arguments: argparse.Namespace, document: Any) -> None:
    """Keep the document as `arguments.document`, and print it on one line if --json asks for it."""
    arguments.document = document
    if arguments.json:
        from grposcope.core.files import dumps

        _print(arguments, dumps(document))


def _print(arguments: argparse.Namespace, text: str) -> None:
    """Print a text; where nobody reads it any more, this and what follows is lost, and `arguments.unread` is true."""
    try:
        print(text)
    except BrokenPipeError:
        silence()
        arguments.unread = True


def silence() -> None:
    """Let nothing more that is printed go anywhere, as its reader has left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
