"""Files that other programs rely on: strict JSON that is safe to print, and writes that are atomic."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import IO, Any

HIDDEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that a terminal acts on, or that are not seen, and halves of characters, which it cannot show."""


def dumps(content: Any, indent: int | None = None) -> str:
    """Strict JSON, fit for a terminal: records become objects, numbers that are not finite become strings.

    What texts may hold to move a cursor or reverse a line is escaped (HIDDEN); parsed, the JSON is the same.
    """
    try:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=indent)
    except (ValueError, TypeError):  # numbers that are not finite, records
        text = json.dumps(_plain(content), ensure_ascii=False, allow_nan=False, indent=indent)
    if text.isascii() and "\x7f" not in text:  # nearly always, and much faster to see
        return text
    return HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """A file to be written at `path` that is there complete when the block ends, or not at all when it raises."""
    scratch = path.with_name(path.name + ".part")
    try:
        with scratch.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented strict JSON, atomically."""
    with atomic(path) as file:
        file.write((dumps(content, indent=2) + "\n").encode())


def _plain(content: Any) -> Any:
    if is_dataclass(content) and not isinstance(content, type):
        return _plain(asdict(content))
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return "NaN" if math.isnan(content) else "Infinity" if content > 0 else "-Infinity"
    return content
