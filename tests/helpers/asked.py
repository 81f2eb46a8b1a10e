"""A command called as from the shell, and its JSON document beside the text that it prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grposcope.cli import parser
from grposcope.core.files import dumps


def asked(*words: object) -> tuple[int, Any]:
    """Exit status and document of a command; its text goes to standard output. UserError as it is raised."""
    given = parser([str(words[0])]).parse_args([str(word) for word in words])
    status = int(given.run(given))
    return status, json.loads(dumps(given.document))


def last_json(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """The document on the last line that was printed, and all that was printed."""
    text = capsys.readouterr().out
    return json.loads(text.strip().splitlines()[-1]), text


def call(*argv: str) -> int:
    """Run a command, its document as a last line; the status."""
    status, document = asked(*argv)
    print(json.dumps(document))
    return status
