"""Limits on the grading of model-written text, which may ask a grader for 9^9^9^9.

Time limits are signals, which only the main thread of a POSIX system can use. Elsewhere nothing stops a slow
computation, so text that obviously asks for one is refused before it is graded.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 3
"""How long grading one completion may take, per step, where it can be interrupted."""

_RUNAWAY = re.compile(
    r"(?:\^|\*\*)[\s{(]*-?\d+\s*(?:\^|\*\*)[\s{(]*-?\d"  # a tower of powers of numbers
    r"|(?:\^|\*\*)[\s{(]*-?\d{5,}"  # an exponent of five digits or more
    r"|\d{5,}[\s})]*!"  # a factorial of as much
)


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
    """Raise OutOfTime inside the block when it takes longer; without effect where not `interruptible`."""
    if not interruptible():
        yield
        return

    def stop(signum: int, frame: object) -> None:
        raise OutOfTime(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
