"""Notes SIGTERM, with which schedulers such as SLURM end a job, so that a run can leave with a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class AskedToEnd(BaseException):
    """SIGTERM came inside of `leaving`."""


class Termination:
    """Whether the process was asked to end. at_once: whether it then leaves where it is."""

    asked = False
    at_once = False

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Raise AskedToEnd as soon as SIGTERM comes inside the block, or where it came before."""
        self.at_once = True
        try:
            if self.asked:
                raise AskedToEnd
            yield
        finally:
            self.at_once = False


@contextmanager
def noticed() -> Iterator[Termination]:
    """SIGTERM is noted inside the block instead of ending the process; without effect outside of the main thread."""
    termination = Termination()
    if threading.current_thread() is not threading.main_thread():
        yield termination
        return

    def note(signum: int, frame: object) -> None:
        termination.asked = True
        if termination.at_once:
            raise AskedToEnd

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield termination
    finally:
        signal.signal(signal.SIGTERM, before)
