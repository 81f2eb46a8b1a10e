"""The record of a run, written as it goes: a folder of JSON and JSON-lines files.

    config.json    settings, versions and seed, written first
    steps.jsonl    one line per optimiser step
    groups.jsonl   one line per group of rollouts: problem id and rewards
    evals.jsonl    one line per held-out evaluation
    summary.json   the outcome, written last
    model/         the final weights

Lines are flushed as they are written; whole files appear atomically. JSON has no NaN, so numbers
that are not finite are written as the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from grposcope.errors import UserError

FORMAT = 1
"""Version of this layout, kept in config.json."""


class RunWriter:
    """Creates the folder of a new run and appends to its record; use as a context manager."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                what = "already holds a run" if (folder / "config.json").exists() else "is not empty"
                raise UserError(f"{folder} {what}; choose another --out, nothing was changed")
            write_json(folder / "config.json", {"format": FORMAT, **config})
            self._files = {name: (folder / f"{name}.jsonl").open("a") for name in ("steps", "groups", "evals")}
        except (FileExistsError, NotADirectoryError):
            raise UserError(f"{folder} is a file, not a folder; choose another --out") from None
        except PermissionError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror}; choose another --out") from None

    def step(self, row: Mapping[str, Any]) -> None:
        """Append an optimiser step."""
        self._append("steps", row)

    def group(self, row: Mapping[str, Any]) -> None:
        """Append a group of rollouts."""
        self._append("groups", row)

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Append a held-out evaluation."""
        self._append("evals", row)

    def summary(self, content: Mapping[str, Any]) -> None:
        """Write the outcome."""
        write_json(self.folder / "summary.json", content)

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        file: IO[str] = self._files[name]
        file.write(dumps(row) + "\n")
        file.flush()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()


def dumps(content: Any, indent: int | None = None) -> str:
    """Strict JSON: records become objects, numbers that are not finite become strings."""
    return json.dumps(_plain(content), ensure_ascii=False, allow_nan=False, indent=indent)


def write_json(path: Path, content: Any) -> None:
    """Write a whole file atomically: it is there complete, or not at all."""
    scratch = path.with_name(path.name + ".part")
    with scratch.open("w") as file:
        file.write(dumps(content, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


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
