"""How the processes of a probe share its work; here one process that has all of it.

Every process passes over some of the rollouts. The factors of a parameter then go to the process that measures it;
of a large one, each process measures a range of rows. `engines.distributed` implements this with
torch.distributed; in this module every exchange is the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

T = TypeVar("T")


class Workers:
    """One process; subclasses share the work among `size` processes, of which this one has number `number`.

    neighbours: how many processes share this machine's memory.
    """

    number = 0
    size = 1
    neighbours = 1

    def join(self, own: Tensor, ranges: tuple[slice, ...]) -> Tensor:
        """The rows of all processes, in order, on every process; `own` has those of `ranges[number]`."""
        return own

    def sum(self, own: Tensor) -> Tensor:
        """Sum over the processes, on every process; may overwrite `own`."""
        return own

    def gathered(self, own: T) -> list[T]:
        """The objects of all processes, on every process."""
        return [own]

    def merged(self, own: dict[str, T]) -> dict[str, list[T]]:
        """What the processes have of each parameter, by name in the order of the backward pass, on every process."""
        return {name: [value] for name, value in own.items()}

    def split(self, shape: tuple[int, int], entries: int) -> Rows | None:
        """How the rows of a parameter of this shape are shared; None where one process measures all of it.

        entries: those of all parameters.
        """
        return None

    @contextmanager
    def assembling(
        self, visit: Callable[[Any], object], rollouts: Rows, entries: int
    ) -> Iterator[Callable[[Any], object]]:
        """A visitor for scores of this process's rollouts; it gives `visit` the scores that this process measures."""
        yield visit

    def rows(self, total: int, each: int = 1) -> Rows:
        """`total` blocks of `each` rows, shared in contiguous ranges that differ by at most one block."""
        ends = [total * number // self.size * each for number in range(self.size + 1)]
        return Rows(self, tuple(map(slice, ends, ends[1:])))


@dataclass(frozen=True)
class Rows:
    """Rows of a matrix of which every process holds one of the contiguous `ranges`."""

    workers: Workers
    ranges: tuple[slice, ...]

    @property
    def mine(self) -> slice:
        """The range of this process."""
        return self.ranges[self.workers.number]

    @property
    def total(self) -> int:
        """Number of rows of all processes."""
        return int(self.ranges[-1].stop)

    def join(self, own: Tensor) -> Tensor:
        """The rows of all processes, on every process."""
        return self.workers.join(own, self.ranges)

    def sum(self, own: Tensor) -> Tensor:
        """Sum over the processes of what each took from its rows; may overwrite `own`."""
        return self.workers.sum(own)


ALONE = Workers()
"""This process by itself."""
