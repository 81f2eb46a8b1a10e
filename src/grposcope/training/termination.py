"""Notes SIGTERM, with which schedulers such as SLURM end a job, so that a run can leave with a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Termination:
    """Whether the process was asked to end."""

    asked = False


@contextmanager
def noticed() -> Iterator[Termination]:
    """SIGTERM is noted inside the block instead of ending the process; without effect outside of the main thread."""
    termination = Termination()
    if threading.current_thread() is not threading.main_thread():
        yield termination
        return

    def note(signum: int, frame: object) -> None:
        termination.asked = True

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield termination
    finally:
        signal.signal(signal.SIGTERM, before)
