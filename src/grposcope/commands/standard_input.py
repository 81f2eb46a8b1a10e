"""Standard input as a file, for commands that read rollouts: a path of "-" stands for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from grposcope.commands.log_flags import STANDARD_INPUT, place
from grposcope.core.errors import UserError

NAME = str(place(STANDARD_INPUT))
"""What the file is called, so that messages name it."""


@contextmanager
def as_file(path: str) -> Iterator[Path]:
    """The path, or a file with all that standard input holds while the block lasts, where the path is "-".

    UserError where it is empty, and those of the block, which name standard input and not the file.
    """
    if path != STANDARD_INPUT:
        yield Path(path)
        return
    content = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode()
    if not content.strip():
        raise UserError(f"{NAME} is empty; give rollouts with prompt, completion and reward on each line")
    ending = ".jsonl" if content.lstrip()[:1] in (b"{", b"[") else ".csv"
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{NAME}{ending}"
        file.write_bytes(content)
        try:
            yield file
        except UserError as error:
            raise UserError(by_name(str(error), file)) from None


def by_name(said: Any, file: Path, name: str = NAME) -> Any:
    """A text, or a document of texts, in which a file of `as_file` is called by its name; others stay."""
    if file.stem != NAME:
        return said
    if isinstance(said, dict):
        return {key: by_name(value, file, name) for key, value in said.items()}
    if isinstance(said, list | tuple):
        return [by_name(value, file, name) for value in said]
    return said.replace(str(file), name) if isinstance(said, str) else said
