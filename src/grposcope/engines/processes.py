"""How the processes of torch.distributed exchange what a probe needs: factors of layers, sums and small results.

Every wait looks for other processes that failed, so that a failure ends all of them within seconds.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.distributed_c10d import _get_default_store

from grposcope.core.errors import UserError
from grposcope.instruments.gradient.score import Score, Use, is_large
from grposcope.lab.workers import Rows, Workers

T = TypeVar("T")

AHEAD = 4
"""Layers whose factors may be on their way: enough that ranks seldom wait, few enough to hold them in memory."""

LOOK = 0.5
"""Seconds between two looks for processes that failed."""

SOON = 0.0002
"""Seconds between two looks whether an exchange is complete."""


class Processes(Workers):
    """The processes of `group`, which has all processes of the program, with arrays on `device`."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device):
        self.group, self.device = group, device
        self.number, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", self.size)) if device.type == "cpu" else 1
        self.store, self.key = _get_default_store(), f"grposcope/{group.group_name}"
        self.order: list[str] = []
        self.owners: dict[str, int] = {}
        self.load = [0] * self.size

    # What a probe asks for

    def join(self, own: Tensor, ranges: tuple[slice, ...]) -> Tensor:
        """The rows of all processes, in order, on every process; `own` has those of `ranges[number]`."""
        counts = [rows_.stop - rows_.start for rows_ in ranges]
        longest = max(counts)
        whole = own.new_empty(self.size, longest, *own.shape[1:])
        padded = own.contiguous()
        if len(own) < longest:
            padded = torch.cat((own, own.new_zeros(longest - len(own), *own.shape[1:])))
        self.wait(dist.all_gather(list(whole.unbind(0)), padded, group=self.group, async_op=True))
        if min(counts) == longest:
            return whole.flatten(0, 1)
        return torch.cat([gathered[:count] for gathered, count in zip(whole, counts, strict=True)])

    def sum(self, own: Tensor) -> Tensor:
        """Sum over the processes, on every process; may overwrite `own`."""
        total = own.to(self.device).contiguous()  # NCCL takes arrays of its GPU alone
        self.wait(dist.all_reduce(total, group=self.group, async_op=True))
        return total.to(own.device)

    def gathered(self, own: T) -> list[T]:
        """The objects of all processes, on every process."""
        self.sum(torch.zeros(1, device=self.device))  # once all are here, nobody waits for long
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, own, group=self.group)
        return every

    def merged(self, own: dict[str, T]) -> dict[str, list[T]]:
        """What the processes have of each parameter, by name in the order of the backward pass, on every process."""
        orders, parts = zip(*self.gathered((self.order, own)), strict=True)
        if any(order != self.order for order in orders):
            raise UserError(
                "the layers of this model have a different order on another process, so a probe cannot be shared; run "
                "it in one process"
            )
        return {name: [tensors[name] for tensors in parts if name in tensors] for name in self.order}

    def split(self, shape: tuple[int, int], entries: int) -> Rows | None:
        """A parameter that holds much of all weights is shared by rows; others are measured by one process each."""
        size = shape[0] * shape[1]
        large = is_large(size) and 8 * self.size * size > entries and shape[0] >= self.size
        return self.rows(shape[0]) if large else None

    @contextmanager
    def assembling(
        self, visit: Callable[[Score], object], rollouts: Rows, entries: int
    ) -> Iterator[Callable[[Score], object]]:
        """A visitor for scores of this process's rollouts; it gives `visit` the scores that this process measures."""
        order: list[str] = []
        waiting: deque[tuple[list[Any], Score | None]] = deque()

        def first_done() -> None:
            works, score = waiting.popleft()
            for work in works:
                self.wait(work)
            if score is not None:
                visit(score)

        def take(score: Score) -> None:
            if score.name not in order[-1:]:  # the experts of a stack come one after the other
                order.append(score.name)
            if score.expert is not None:
                score = self._of_one_length(score)
            pieces = self.split(score.shape, entries) if score.uses and score.expert is None else None
            if pieces is not None:
                visit(self._rows_of(score, pieces, rollouts))
                return
            waiting.append(self._whole(score, self._owner(score), rollouts))
            if len(waiting) > AHEAD:
                first_done()

        yield take
        while waiting:
            first_done()
        self.order = self.order or order

    # How it is done

    def _owner(self, score: Score) -> int:
        """The process that measures this parameter: the one with the least to do when it first comes."""
        if score.name not in self.owners:
            owner = min(range(self.size), key=self.load.__getitem__)
            self.load[owner] += score.shape[0] * score.shape[1]
            self.owners[score.name] = owner
        return self.owners[score.name]

    def _whole(self, score: Score, owner: int, rollouts: Rows) -> tuple[list[Any], Score | None]:
        """Transfers under way of a parameter's factors to its owner; there, also the score that they complete."""
        works: list[Any] = []

        def brought(array: Tensor) -> Tensor:
            nothing = array[:0]
            parts = [array if rank == owner else nothing for rank in range(self.size)]
            whole = array.new_empty(rollouts.total if owner == self.number else 0, *array.shape[1:])
            works.append(self._exchange(parts, whole, rollouts))
            return whole

        uses = tuple(Use(brought(use.rows), brought(use.columns), use.padding) for use in score.uses)
        direct = None if score.direct is None else brought(score.direct)
        whole = replace(score, uses=uses, direct=direct) if owner == self.number else None
        return works, whole

    def _of_one_length(self, score: Score) -> Score:
        """The score of an expert with as many places for tokens of a rollout as on every other process."""
        uses = []
        for use in score.uses:
            more = max(self.gathered(use.columns.shape[1])) - use.columns.shape[1]
            rows, columns = (F.pad(array, (0, 0, 0, more)) for array in (use.rows, use.columns))
            uses.append(replace(use, rows=rows, columns=columns))
        return replace(score, uses=tuple(uses))

    def _rows_of(self, score: Score, part: Rows, rollouts: Rows) -> Score:
        """The rows of a parameter that this process measures, of the rollouts of all processes."""
        uses = []
        for use in score.uses:
            columns = rollouts.join(use.columns)
            if use.lookup:
                ids = rollouts.join(use.rows)
                inside = (ids >= part.mine.start) & (ids < part.mine.stop) & (ids != use.padding)
                uses.append(Use((ids - part.mine.start).masked_fill(~inside, -1), columns))
            else:
                parts = [use.rows[..., span] for span in part.ranges]
                rows = use.rows.new_empty(rollouts.total, *parts[self.number].shape[1:])
                self.wait(self._exchange(parts, rows, rollouts))
                uses.append(Use(rows, columns))
        shape = (part.mine.stop - part.mine.start, score.shape[1])
        return Score(score.name, score.kind, shape, tuple(uses), part=part)

    def _exchange(self, parts: list[Tensor], whole: Tensor, rollouts: Rows) -> Any:
        """Send `parts[rank]` to each process, and receive into `whole` (B, …) what they have for this one."""
        sent = [piece for piece in parts if piece.numel()]
        flat = sent[0].reshape(-1) if len(sent) == 1 else torch.cat([piece.reshape(-1) for piece in sent])
        each = whole.numel() // rollouts.total
        received = [(span.stop - span.start) * each for span in rollouts.ranges]
        sizes = [piece.numel() for piece in parts]
        return dist.all_to_all_single(whole.view(-1), flat, received, sizes, group=self.group, async_op=True)

    # Failures

    def wait(self, work: Any) -> None:
        """Wait for an exchange; UserError when another process has failed meanwhile."""
        looked = time.monotonic()
        try:
            while not work.is_completed():
                time.sleep(SOON)
                now = time.monotonic()
                if now - looked > LOOK:
                    self.look()
                    looked = now
            work.wait()
        except RuntimeError as error:
            self.look()
            reason = str(error).strip().splitlines()[0]
            raise UserError(f"another process of this probe ended or does not answer ({reason})") from error

    def look(self) -> None:
        """UserError with the reason, when another process has failed."""
        if self.store.check([self.key]):
            raise UserError(self.store.get(self.key).decode(errors="replace"))

    def fail(self, error: BaseException) -> None:
        """Tell the other processes that this one cannot go on."""
        reason = (str(error).strip().splitlines() or [""])[0]
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        try:
            if not self.store.check([self.key]):
                self.store.set(self.key, f"process {self.number} of {self.size} ended this probe: {kind}{reason}")
        except RuntimeError:  # the process that keeps the store is gone: nobody is left to be told
            pass
