"""What the backward pass hands over is worked on beside it, in other threads; results come back in order.

Singular values, sums and small products gain little from several threads, and a backward pass waits for
its slowest one. So half of the threads go on with the pass, and the others each work on a parameter by
themselves; when too many parameters wait for them, the pass stops and works on one as well. Large
parameters are done in between, their pieces by all threads. On a GPU, and with one thread, everything is done in turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from grposcope.geometry.score import Score, Visitor

T = TypeVar("T")

LARGE = 2**24
"""Parameters of at least so many entries are worked on with all threads."""


AHEAD = 5
"""So many parameters may wait: enough that nobody waits for work, and few enough to hold their factors."""

MANY = 8
"""Pieces per thread from which they are spread over threads."""


def held(device: torch.device) -> int:
    """How many parameters of less than LARGE entries are worked on or wait at a time."""
    threads = torch.get_num_threads()
    return 1 if device.type != "cpu" or threads == 1 else 1 + threads - threads // 2 + AHEAD


@contextmanager
def beside(work: Callable[[Score], T], keep: Callable[[T], None], device: torch.device) -> Iterator[Visitor]:
    """A visitor that has `work` done on each score, in any thread, and gives `keep` what it returns, here, in order.

    What goes wrong in `work` is raised here, at one of the next scores or in the end.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield lambda score: keep(work(score))
        return
    own = threads // 2
    others = threads - own
    results: deque[Future[T]] = deque()

    @torch.no_grad()
    def without_graph(score: Score) -> T:
        return work(score)

    def keep_first(*, wait: bool) -> None:
        while results and (wait or results[0].done()):
            keep(results.popleft().result())

    def visit(score: Score) -> None:
        if score.shape[0] * score.shape[1] >= LARGE:
            keep_first(wait=True)
            torch.set_num_threads(threads)
            keep(work(score))
            return
        torch.set_num_threads(own)  # not before there is something to do beside
        if sum(not one.done() for one in results) < others + AHEAD:
            results.append(pool.submit(without_graph, score))
        else:
            here: Future[T] = Future()
            here.set_result(without_graph(score))
            results.append(here)
        keep_first(wait=False)

    try:
        with ThreadPoolExecutor(others, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield visit
            keep_first(wait=True)
    finally:
        torch.set_num_threads(threads)


def spread(work: Callable[[slice], T], pieces: Sequence[slice], device: torch.device) -> list[T]:
    """What `work` gives for each piece, in order; of many pieces several threads each do some."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or len(pieces) < MANY * threads:
        return [work(piece) for piece in pieces]
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return list(pool.map(torch.no_grad()(work), pieces))
