"""Runs of a sweep as processes of this machine, some at a time, the cores divided among them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

POLL = 0.2
"""Seconds between looks at the processes."""


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalProcesses:
    """A process per run; `jobs` at a time, each with its share of the cores, or with a GPU of its own."""

    def __init__(self, jobs: int | None, runs: int, gpus: int = 0):
        self.slots = max(1, min(jobs or (gpus or _cores()), runs))
        self.threads = max(1, _cores() // self.slots)
        self.gpus = gpus
        self._running: dict[int, tuple[subprocess.Popen[bytes], int]] = {}

    def start(self, number: int, settings: Path, log: Path) -> None:
        """Start run `number`, whose settings are in a file; what it prints is added to `log`."""
        taken = {slot for _, slot in self._running.values()}
        slot = next(slot for slot in range(self.slots) if slot not in taken)
        command = [sys.executable, "-m", "grposcope.lab.sweeps.worker", str(settings)]
        with log.open("ab") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env={**os.environ, **self._environment(slot)},
                start_new_session=True,  # Ctrl-C reaches the driver alone, which then asks each run to end
            )
        self._running[number] = process, slot

    def ended(self) -> list[tuple[int, int]]:
        """Wait a little; (run, exit status) of those that have ended, a negative status for a signal."""
        over = [(number, code) for number, (p, _) in self._running.items() if (code := p.poll()) is not None]
        for number, _ in over:
            process, _ = self._running.pop(number)
            if process.stdin is not None:
                process.stdin.close()
        if not over:
            time.sleep(POLL)
        return over

    def stop(self, grace: float = 30.0) -> None:
        """Ask all runs to end with a checkpoint, and kill those that have not after `grace` seconds."""
        for process, _ in self._running.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        until = time.monotonic() + grace
        for process, _ in self._running.values():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def _environment(self, slot: int) -> Mapping[str, str]:
        threads = {name: str(self.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        threads |= {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
        return threads | ({"CUDA_VISIBLE_DEVICES": _visible(slot, self.gpus)} if self.gpus else {})


def _visible(slot: int, gpus: int) -> str:
    """The GPU of a slot, of those that this process sees."""
    seen: Sequence[str] = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (seen or [str(index) for index in range(gpus)])[slot % gpus]
