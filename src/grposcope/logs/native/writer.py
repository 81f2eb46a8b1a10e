"""Writes the record of a run: append-only files that are readable while the run goes; `schema` says what they hold.

Lines are flushed as they are written; whole files appear atomically. A line that cannot be written whole, on a full
disk for one, is taken back. JSON has no NaN, so numbers that are not finite are written as the strings "NaN",
"Infinity" and "-Infinity". One process at a time writes to a folder.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.files import append, atomic, dumps, write_json
from grposcope.core.rollouts import Rollout
from grposcope.logs.native import rollouts
from grposcope.logs.native.rollouts import FOLDER
from grposcope.logs.native.schema import LINES, RunConfig, RunPhase

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
    def create(folder: Path, config: RunConfig, beside: Collection[str] = ()) -> RunWriter:
        """Begin the record of a new run in a folder that does not exist or is empty but for what `beside` names."""
        with _explained(folder, "choose another folder"):
            folder.mkdir(parents=True, exist_ok=True)
            refuse_used(folder, beside)
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
        target = _rollout_file(self.folder, step)
        with _explained(self.folder, "make room, then resume the run"):
            target.parent.mkdir(exist_ok=True)
            with atomic(target) as file:
                rollouts.write(file, step, sampled)

    def phase(self, name: str, step: int, steps: int) -> None:
        """Say what the run is doing now: sampling, update, evaluation, checkpoint, finished, interrupted or failed."""
        now = RunPhase(step, steps, name, round(time.time(), 3), os.getpid())
        with _explained(self.folder / "phase.json", "make room, then resume the run"):
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
        with _explained(self.folder, "make room, then resume the run"):
            for file in self._files.values():
                os.fsync(file)

    def close(self) -> None:
        """Close the files and release the lock."""
        for file in (*self._files.values(), self._phase, self._lock):
            os.close(file)

    def _append(self, name: str, *rows: Mapping[str, Any]) -> None:
        text = "".join(dumps(row) + "\n" for row in rows).encode()
        with _explained(self._paths[name], "make room, then resume the run"):
            append(self._files[name], text)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _rollout_file(run: Path, step: int) -> Path:
    """The file of a step in the folder of a run."""
    return run / FOLDER / f"step-{step:06d}.parquet"


def refuse_used(folder: Path, beside: Collection[str] = ()) -> None:
    """UserError for a folder that holds something but for what `beside` names."""
    if folder.is_dir() and any(file.name not in {".lock", *beside} for file in folder.iterdir()):
        if (folder / "config.json").exists():
            what, hint = "already holds a run", "choose another folder, or resume that run"
        else:
            what, hint = "is not empty", "choose another folder"
        raise UserError(f"{folder} {what}; {hint}; nothing was changed")


@contextmanager
def _explained(path: Path, remedy: str) -> Iterator[None]:
    """Turn an error of the file system into a UserError that names the place and the remedy."""
    try:
        yield
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{path} is a file, not a folder; {remedy}") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; {remedy}") from None


def check_unlocked(folder: Path) -> None:
    """UserError if a process is writing the record in `folder`."""
    if (folder / ".lock").exists():
        os.close(_locked(folder))


def _locked(folder: Path) -> int:
    """Lock the folder for this process; the system releases the lock when the process ends, however it ends.

    A child that a killed process left behind holds the lock on; it is then taken from it.
    """
    if sys.platform == "win32":
        return os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    import fcntl

    guard = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)  # for a moment, so that a dead process's lock is taken over once
        lock = _held(folder / ".lock")
    finally:
        os.close(guard)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()} {socket.gethostname()}".encode(), 0)
    return lock


def _held(path: Path) -> int:
    """The file, open and locked; a new one in its place where the process that locked it is dead."""
    import fcntl

    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock
    except BlockingIOError:
        pid, _, host = os.read(lock, 300).decode("utf-8", "replace").partition(" ")
        os.close(lock)
    if not _is_dead(pid, host):
        where = f" on {host}" if host and host != socket.gethostname() else ""
        raise UserError(
            f"{path.parent} is being written by another process (pid {pid or 'unknown'}{where}); wait for it, or "
            "choose another folder"
        )
    path.unlink(missing_ok=True)
    return _held(path)


def _is_dead(pid: str, host: str) -> bool:
    """Whether the process of this number on this machine has ended; False where that cannot be told."""
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
