"""Writes the record of a run: append-only files that are readable while the run goes; `schema` says what they hold.

Lines are flushed as they are written; whole files appear atomically. A line that cannot be written whole, on a full
disk for one, is taken back. JSON has no NaN, so numbers that are not finite are written as the strings "NaN",
"Infinity" and "-Infinity". One process at a time writes to a folder.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from grposcope.errors import UserError
from grposcope.files import atomic, dumps, write_json
from grposcope.runs.native import rollouts
from grposcope.runs.native.schema import LINES, RunConfig, RunPhase
from grposcope.runs.run import Rollout

PHASE_WIDTH = 128
"""Bytes of phase.json, padded with spaces, so that it is overwritten at once."""


class RunWriter:
    """Appends to the record of a run; made by `create` or `reopen`, used as a context manager."""

    def __init__(self, folder: Path, config: RunConfig | None = None):
        self.folder = folder
        self._lock = _locked(folder)
        if config is not None:
            write_json(folder / "config.json", config.document())
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._paths = {name: folder / f"{name}.jsonl" for name in LINES}
        self._files = {name: os.open(path, flags, 0o644) for name, path in self._paths.items()}
        self._phase = os.open(folder / "phase.json", os.O_WRONLY | os.O_CREAT, 0o644)

    @staticmethod
    def create(folder: Path, config: RunConfig) -> RunWriter:
        """Begin the record of a new run in a folder that does not exist or is empty."""
        with _explained(folder, "choose another folder"):
            folder.mkdir(parents=True, exist_ok=True)
            if any(file.name != ".lock" for file in folder.iterdir()):
                if (folder / "config.json").exists():
                    what, hint = "already holds a run", "choose another folder, or resume that run"
                else:
                    what, hint = "is not empty", "choose another folder"
                raise UserError(f"{folder} {what}; {hint}; nothing was changed")
            return RunWriter(folder, config)

    @staticmethod
    def reopen(folder: Path, sizes: Mapping[str, int], step: int, config: RunConfig | None = None) -> RunWriter:
        """Go on with a record as it was after `step`, when its files had these `sizes` in bytes.

        What was written later, a half-written line among it, is taken back: the run does it again. A config
        that is given replaces the old one: the run has been extended.
        """
        with _explained(folder, "nothing was changed"):
            writer = RunWriter(folder, config)
            short = [name for name in LINES if writer.sizes()[name] < sizes[name]]
            if short:
                writer.close()
                raise UserError(
                    f"{folder / short[0]}.jsonl is shorter than at the checkpoint of step {step}: "
                    "lines were lost; restore it, or delete the newest folder in checkpoints/ to use the one before"
                )
            for name in LINES:
                os.ftruncate(writer._files[name], sizes[name])
            for later, file in rollouts.files(folder).items():
                if later > step:
                    file.unlink()
            (folder / "summary.json").unlink(missing_ok=True)
            for file in (*folder.glob(".*.part"), *folder.glob("rollouts/.*.part")):  # of a process that was killed
                file.unlink()
            return writer

    def step(self, row: Mapping[str, Any]) -> None:
        """Append an optimiser step."""
        self._append("steps", {**row, "time": round(time.time(), 3)})

    def group(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append the groups of a batch."""
        self._append("groups", *rows)

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Append a held-out evaluation."""
        self._append("evals", row)

    def rollouts(self, step: int, sampled: Sequence[Rollout]) -> None:
        """Write some rollouts of a step, token by token, as rollouts/step-….parquet."""
        target = rollouts.file_of(self.folder, step)
        with _explained(self.folder, "make room, then resume the run"):
            target.parent.mkdir(exist_ok=True)
            with atomic(target) as file:
                rollouts.write(file, step, sampled)

    def phase(self, name: str, step: int, steps: int) -> None:
        """Say what the run is doing now: sampling, update, evaluation, checkpoint, finished, interrupted or failed."""
        now = RunPhase(step, steps, name, round(time.time(), 3), os.getpid())
        os.pwrite(self._phase, dumps(vars(now)).ljust(PHASE_WIDTH - 1).encode() + b"\n", 0)

    def summary(self, content: Mapping[str, Any]) -> None:
        """Write summary.json: what the run came to."""
        with _explained(self.folder, "make room, then resume the run"):
            write_json(self.folder / "summary.json", content)

    def sizes(self) -> dict[str, int]:
        """Bytes of each file of lines."""
        return {name: os.fstat(file).st_size for name, file in self._files.items()}

    def sync(self) -> None:
        """Flush the lines to the disk, so that a loss of power cannot take them either."""
        for file in self._files.values():
            os.fsync(file)

    def close(self) -> None:
        """Close the files and release the lock."""
        for file in (*self._files.values(), self._phase, self._lock):
            os.close(file)

    def _append(self, name: str, *rows: Mapping[str, Any]) -> None:
        text = "".join(dumps(row) + "\n" for row in rows).encode()
        file = self._files[name]
        before = os.fstat(file).st_size
        with _explained(self._paths[name], "make room, then resume the run"):
            try:
                while text:
                    text = text[os.write(file, text) :]
            except OSError:
                os.ftruncate(file, before)
                raise

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _explained(path: Path, remedy: str) -> Iterator[None]:
    """Turn an error of the file system into a UserError that names the place and the remedy."""
    try:
        yield
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{path} is a file, not a folder; {remedy}") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; {remedy}") from None


def _locked(folder: Path) -> int:
    """Lock the folder for this process; the system releases the lock when the process ends, however it ends."""
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(lock, 20).decode() or "unknown"
            os.close(lock)
            raise UserError(
                f"{folder} is being written by another process (pid {owner}); wait for it, or choose another folder"
            ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock
