"""What the backward pass hands over is worked on beside it, in other threads; results come back in order.

Singular values, sums and small products gain little from several threads, and a backward pass waits for
its slowest one. So half of the threads go on with the pass, and as many others, with one more, each work
on a parameter by themselves. Large parameters are done in between, with all threads. On a GPU, and with
one thread, everything is done in turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from grposcope.geometry.scores import Score, Visitor

T = TypeVar("T")

LARGE = 2**24
"""Parameters of at least so many entries are worked on with all threads."""


def shares(threads: int) -> tuple[int, int]:
    """How many threads the backward pass keeps, and how many others work beside it, one thread each."""
    return threads // 2, threads - threads // 2 + 1


@contextmanager
def beside(work: Callable[[Score], T], keep: Callable[[T], None], device: torch.device) -> Iterator[Visitor]:
    """A visitor that has `work` done on each score, in any thread, and gives `keep` what it returns, here, in order.

    What goes wrong in `work` is raised here, at one of the next scores or in the end.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield lambda score: keep(work(score))
        return
    own, others = shares(threads)
    waiting: deque[Future[T]] = deque()

    @torch.no_grad()
    def without_graph(score: Score) -> T:
        return work(score)

    def keep_first(most: int) -> None:
        while len(waiting) > most:
            keep(waiting.popleft().result())

    def visit(score: Score) -> None:
        if score.shape[0] * score.shape[1] < LARGE:
            keep_first(2 * others)  # enough that nobody waits for work, and few enough to hold their factors
            waiting.append(pool.submit(without_graph, score))
            return
        keep_first(0)
        torch.set_num_threads(threads)
        keep(work(score))
        torch.set_num_threads(own)

    try:
        with ThreadPoolExecutor(others, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            torch.set_num_threads(own)
            yield visit
            keep_first(0)
    finally:
        torch.set_num_threads(threads)
