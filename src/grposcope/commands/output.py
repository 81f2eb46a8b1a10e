"""What a command prints: text for people, and one JSON document for programs as the last line.

A person at a terminal sees the text alone. Where the output goes to a file or a pipe, the document follows the text;
`--json` prints nothing but the document.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from grposcope.formatting import printable


def add_json(command: Any, help: str = "print only the JSON document") -> None:
    """Add --json to a parser or to a group of its flags."""
    command.add_argument("--json", action="store_true", help=help)


def say(arguments: argparse.Namespace, text: str) -> None:
    """Print text for people, unless --json asks for the document alone."""
    if not arguments.json:
        print(printable(text))


def finish(arguments: argparse.Namespace, document: Any) -> None:
    """Print the document on one line, unless the output goes to a person at a terminal who did not ask for it."""
    if arguments.json or not sys.stdout.isatty():
        from grposcope.files import dumps

        print(dumps(document))
