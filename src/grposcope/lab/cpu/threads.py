"""Process each parameter in a background thread while the backward pass goes on; results come back in order.

Singular values, sums and small products gain little from several threads, and a backward pass waits for
its slowest one. So half of the threads continue the pass, and each of the others processes a parameter alone;
when too many parameters wait, the thread of the pass processes one as well. Large parameters are processed by
all threads together, piece by piece, while the pass waits. On a GPU, and with one thread, parameters are
processed one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from grposcope.lab.no_gradient import no_gradient

S = TypeVar("S")
P = TypeVar("P")
T = TypeVar("T")

WAITING = 5
"""Items that may wait: enough that no thread runs out of work, and few enough to hold them in memory."""

MANY = 8
"""Pieces per thread from which pieces are distributed over threads."""


@contextmanager
def in_background(
    work: Callable[[S], T], keep: Callable[[T], None], device: torch.device, alone: Callable[[S], bool]
) -> Iterator[Callable[[S], None]]:
    """A visitor that calls `work` on each item, in any thread, and `keep` on each result, in the caller's thread.

    Results are kept in the order of the items; those that are `alone` are processed with all threads while the caller
    waits. An exception in `work` is raised from one of the next visits, or at the end of the block.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield lambda x: keep(work(x))
        return
    own = threads // 2
    others = threads - own
    results: deque[Future[T]] = deque()

    @no_gradient
    def without_graph(x: S) -> T:
        return work(x)

    def keep_first(*, wait: bool) -> None:
        while results and (wait or results[0].done()):
            keep(results.popleft().result())

    def visit(x: S) -> None:
        if alone(x):
            keep_first(wait=True)
            torch.set_num_threads(threads)
            keep(work(x))
            return
        torch.set_num_threads(own)  # from the first item on: before it there is nothing for the other threads
        if sum(not future.done() for future in results) < others + WAITING:
            results.append(pool.submit(without_graph, x))
        else:
            here: Future[T] = Future()
            here.set_result(without_graph(x))
            results.append(here)
        keep_first(wait=False)

    try:
        with ThreadPoolExecutor(others, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield visit
            keep_first(wait=True)
    finally:
        torch.set_num_threads(threads)


def map_pieces(work: Callable[[P], T], pieces: Sequence[P], device: torch.device) -> list[T]:
    """`work` of each piece, in order; distributed over threads where there are many pieces."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or len(pieces) < MANY * threads:
        return [work(piece) for piece in pieces]
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return list(pool.map(torch.no_grad()(work), pieces))
