"""The C library gives large arrays back to the system at once while a probe measures.

glibc raises the size from which it does so to 32 MiB as soon as it frees an array as large. Arrays below it come from a
heap, in which a few small long-lived ones keep gigabytes of gaps: a probe of a deep model took twice what it used. And
every thread has a heap of its own, whose gaps the others cannot use, unless it is told to share one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

RETURNED = 4 * 2**20
"""Bytes from which an array is given back at once: below, the time to ask the system again is felt."""

_THRESHOLD, _USUAL = -3, 32 * 2**20  # M_MMAP_THRESHOLD of mallopt, and what glibc raises it to by itself
_HEAPS, _ANY = -8, 0  # M_ARENA_MAX, and no limit


@cache
def _library() -> ctypes.CDLL | None:
    """The C library, if it is glibc."""
    try:
        loaded = ctypes.CDLL("libc.so.6")
        return loaded if hasattr(loaded, "mallopt") and hasattr(loaded, "malloc_trim") else None
    except OSError:
        return None


@contextmanager
def returning() -> Iterator[None]:
    """Inside the `with` block, arrays of RETURNED bytes and more go back to the system when they are freed.

    Threads that begin inside it share the heap of the others.
    """
    library = _library()
    if library is None:
        yield
        return
    library.malloc_trim(0)
    library.mallopt(_THRESHOLD, RETURNED)
    library.mallopt(_HEAPS, 1)
    try:
        yield
    finally:
        library.mallopt(_THRESHOLD, _USUAL)
        library.mallopt(_HEAPS, _ANY)
        library.malloc_trim(0)
