"""Standard input as a file, for commands that read rollouts: a path of "-" stands for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from grposcope.commands.log_flags import STANDARD_INPUT
from grposcope.core.errors import UserError

NAME = "standard input"
"""What the file is called, so that messages name it."""


@contextmanager
def as_file(path: str) -> Iterator[Path]:
    """The path, or a file with all that standard input holds while the block lasts, where the path is "-"."""
    if path != STANDARD_INPUT:
        yield Path(path)
        return
    held = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode()
    if not held.strip():
        raise UserError(f"{NAME} is empty; give rollouts with prompt, completion and reward on each line")
    ending = ".jsonl" if held.lstrip()[:1] in (b"{", b"[") else ".csv"
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{NAME}{ending}"
        file.write_bytes(held)
        yield file
