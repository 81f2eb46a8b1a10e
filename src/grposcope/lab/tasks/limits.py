"""Limits on the grading of model-written text, which may ask a grader for 9^9^9^9.

Time limits are signals, which only the main thread of a POSIX system can use. Elsewhere nothing stops a slow
computation, so text that obviously asks for one is refused before it is graded.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 3
"""How long grading one completion may take, per step, where it can be interrupted."""

_RUNAWAY = re.compile(
    r"(?:\^|\*\*)[\s{(]*-?\d+\s*(?:\^|\*\*)[\s{(]*-?\d"  # a tower of powers of numbers
    r"|(?:\^|\*\*)[\s{(]*-?\d{5,}"  # an exponent of five digits or more
    r"|\d{5,}[\s})]*!"  # a factorial of as much
)


AGAIN = 1.0
"""Seconds after which a computation that swallowed the exception is told again that it is out of time."""


class OutOfTime(Exception):
    """A computation took longer than its limit."""


def interruptible() -> bool:
    """Whether time limits can be used here: POSIX, main thread."""
    return os.name == "posix" and threading.current_thread() is threading.main_thread()


def runaway(text: str) -> bool:
    """Whether the text asks for a number too large to be an answer."""
    return _RUNAWAY.search(text) is not None


@contextmanager
def time_limit(seconds: float = SECONDS) -> Iterator[None]:
    """Raise OutOfTime inside the block when it takes longer.

    Limits may be nested; the one that ends first holds. Without effect where not `interruptible`, and for 0 seconds.
    """
    if not seconds or not interruptible():
        yield
        return

    def stop(signum: int, frame: object) -> None:
        raise OutOfTime(f"took longer than {seconds:g} s")

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, stop)
    outer, _ = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    if 0 < outer < seconds:
        signal.setitimer(signal.ITIMER_REAL, outer, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer:
            signal.setitimer(signal.ITIMER_REAL, max(outer - (time.monotonic() - began), 1e-3), AGAIN)
