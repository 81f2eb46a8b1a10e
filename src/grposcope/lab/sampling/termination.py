"""Notes SIGTERM, with which schedulers such as SLURM end a job, so that a run can leave with a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

PATIENCE = 1.5
"""Seconds after SIGTERM until a block that ends `soon` is left in the middle."""

When = Literal["later", "soon", "now"]


class AskedToEnd(BaseException):
    """SIGTERM came inside of `leaving`, or PATIENCE ago, or again, inside of `soon`."""


class Termination:
    """Whether the process was asked to end, and when what it does now is left for that.

    when: "now", where it is; "soon", after PATIENCE or at the second SIGTERM; "later", never, as `asked` is looked at.
    """

    asked = False
    when: When = "later"

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Raise AskedToEnd as soon as SIGTERM comes inside the block, or where it came before."""
        with self.during("now"):
            if self.asked:
                raise AskedToEnd
            yield

    @contextmanager
    def during(self, when: When) -> Iterator[None]:
        """Leave the block at this time, and what comes after it as before."""
        before, self.when = self.when, when
        try:
            yield
        finally:
            self.when = before


@contextmanager
def noticed() -> Iterator[Termination]:
    """SIGTERM is noted inside the block instead of ending the process; without effect outside of the main thread."""
    termination = Termination()
    if threading.current_thread() is not threading.main_thread():
        yield termination
        return

    again = threading.Timer(PATIENCE, os.kill, (os.getpid(), signal.SIGTERM))
    again.daemon = True

    def note(signum: int, frame: object) -> None:
        first, termination.asked = not termination.asked, True
        if termination.when == "now" or (termination.when == "soon" and not first):
            raise AskedToEnd
        if first:
            again.start()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield termination
    finally:
        again.cancel()
        if again.is_alive():
            again.join()
        signal.signal(signal.SIGTERM, before)
