"""The record of a run on disk: append-only files that are readable while the run goes.

    config.json     settings, what they resolved to, environment   written once
    steps.jsonl     a line per optimiser step                       appended
    groups.jsonl    a line per group of rollouts                    appended
    evals.jsonl     a line per held-out evaluation                  appended
    rollouts/       a Parquet file per sampled step                 written whole
    phase.json      what the run is doing now                       overwritten in place
    summary.json    the outcome                                     written once, last

Lines are flushed as they are written; whole files appear atomically. A line that cannot be written
whole, on a full disk for one, is taken back. JSON has no NaN, so numbers that are not finite are
written as the strings "NaN", "Infinity" and "-Infinity". One process at a time writes to a folder.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from grposcope.errors import UserError
from grposcope.files import dumps, write_json

FORMAT = 2
"""Version of this layout, kept in config.json. 2 added rollouts/, phase.json and `truncated` of groups."""

LINES = ("steps", "groups", "evals")
"""The files that grow by lines, without .jsonl."""

PHASE_WIDTH = 128
"""Bytes of phase.json, padded with spaces, so that it is overwritten at once."""


@dataclass(frozen=True)
class Sample:
    """A sampled rollout for rollouts/: its texts, and a number per completion token."""

    problem: str
    prompt: str
    rollout: int
    completion: str
    reward: float
    truncated: bool
    tokens: Sequence[str]
    logp: Sequence[float]
    entropy: Sequence[float]
    weight: Sequence[float]


class RunWriter:
    """Appends to the record of a run; made by `create` or `reopen`, used as a context manager."""

    def __init__(self, folder: Path, config: Mapping[str, Any] | None = None):
        self.folder = folder
        self._lock = _locked(folder)
        if config is not None:
            write_json(folder / "config.json", {"format": FORMAT, **config})
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._paths = {name: folder / f"{name}.jsonl" for name in LINES}
        self._files = {name: os.open(path, flags, 0o644) for name, path in self._paths.items()}
        self._phase = os.open(folder / "phase.json", os.O_WRONLY | os.O_CREAT, 0o644)

    @staticmethod
    def create(folder: Path, config: Mapping[str, Any]) -> RunWriter:
        """Begin the record of a new run in a folder that does not exist or is empty."""
        with _explained(folder, "choose another --out"):
            folder.mkdir(parents=True, exist_ok=True)
            if any(file.name != ".lock" for file in folder.iterdir()):
                what = "already holds a run" if (folder / "config.json").exists() else "is not empty"
                hint = "choose another --out, or continue it with --resume" if "run" in what else "choose another --out"
                raise UserError(f"{folder} {what}; {hint}; nothing was changed")
            return RunWriter(folder, config)

    @staticmethod
    def reopen(folder: Path, sizes: Mapping[str, int], step: int) -> RunWriter:
        """Go on with a record as it was after `step`, when its files had these `sizes` in bytes.

        What was written later, a half-written line among it, is taken back: the run does it again.
        """
        with _explained(folder, "nothing was changed"):
            writer = RunWriter(folder)
            short = [name for name in LINES if writer.sizes()[name] < sizes[name]]
            if short:
                writer.close()
                raise UserError(
                    f"{folder / short[0]}.jsonl is shorter than at the checkpoint of step {step}: "
                    "lines were lost; restore it, or delete the newest folder in checkpoints/ to use the one before"
                )
            for name in LINES:
                os.ftruncate(writer._files[name], sizes[name])
            for file in (folder / "rollouts").glob("step-*.parquet"):
                if int(file.stem.removeprefix("step-")) > step:
                    file.unlink()
            (folder / "summary.json").unlink(missing_ok=True)
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

    def rollouts(self, step: int, samples: Sequence[Sample]) -> None:
        """Write sampled rollouts of a step as rollouts/step-….parquet."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        floats = pa.list_(pa.float32())
        kinds = {
            "step": pa.int32(), "problem": pa.string(), "prompt": pa.string(), "rollout": pa.int16(),
            "completion": pa.string(), "reward": pa.float64(), "truncated": pa.bool_(),
            "tokens": pa.list_(pa.string()), "logp": floats, "entropy": floats, "weight": floats,
        }  # fmt: skip
        rows = [{"step": step, **vars(sample)} for sample in samples]
        with _explained(self.folder, f"continue it with --resume {self.folder}"):
            target = self.folder / "rollouts" / f"step-{step:06d}.parquet"
            target.parent.mkdir(exist_ok=True)
            scratch = target.with_suffix(".part")
            pq.write_table(pa.Table.from_pylist(rows, pa.schema(list(kinds.items()))), scratch, compression="zstd")
            scratch.replace(target)

    def phase(self, name: str, step: int, steps: int) -> None:
        """Say what the run is doing now: sampling, update, evaluation, checkpoint, finished, interrupted or failed."""
        state = {"step": step, "steps": steps, "phase": name, "time": round(time.time(), 3), "pid": os.getpid()}
        os.pwrite(self._phase, dumps(state).ljust(PHASE_WIDTH - 1).encode() + b"\n", 0)

    def summary(self, content: Mapping[str, Any]) -> None:
        """Write the outcome."""
        with _explained(self.folder, f"continue it with --resume {self.folder}"):
            write_json(self.folder / "summary.json", content)

    def sizes(self) -> dict[str, int]:
        """Bytes of each file of lines."""
        return {name: os.fstat(file).st_size for name, file in self._files.items()}

    def sync(self) -> None:
        """Have everything on the disk, safe from a loss of power too."""
        for file in self._files.values():
            os.fsync(file)

    def close(self) -> None:
        """Close the files and let others write."""
        for file in (*self._files.values(), self._phase, self._lock):
            os.close(file)

    def _append(self, name: str, *rows: Mapping[str, Any]) -> None:
        text = "".join(dumps(row) + "\n" for row in rows).encode()
        file = self._files[name]
        before = os.fstat(file).st_size
        with _explained(self._paths[name], f"continue it with --resume {self.folder}"):
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
    """Turn what the file system refuses into one line that names the place and the remedy."""
    try:
        yield
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{path} is a file, not a folder; {remedy}") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; {remedy}") from None


def _locked(folder: Path) -> int:
    """Hold the folder for this process; the lock goes with it, however it ends."""
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(lock, 20).decode() or "unknown"
            os.close(lock)
            raise UserError(
                f"{folder} is being written by another process (pid {owner}); wait for it, or choose another --out"
            ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock
