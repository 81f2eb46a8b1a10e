"""What a command prints: text for people, or with `--json` one JSON document for programs and nothing else."""

from __future__ import annotations

import argparse
from typing import Any

from grposcope.core.text import printable


def add_json(command: Any, help: str = "print only the JSON document") -> None:
    """Add --json to a parser or to a group of its flags."""
    command.add_argument("--json", action="store_true", help=help)


def say(arguments: argparse.Namespace, text: str) -> None:
    """Print text for people, unless --json asks for the document alone."""
    if not arguments.json:
        print(printable(text))


def finish(arguments: argparse.Namespace, document: Any) -> None:
    """Keep the document as `arguments.document`, and print it on one line if --json asks for it."""
    arguments.document = document
    if arguments.json:
        from grposcope.core.files import dumps

        print(dumps(document))
