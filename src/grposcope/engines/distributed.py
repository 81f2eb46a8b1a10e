"""A probe shared by the processes of a training run: torch.distributed, gloo on CPUs and NCCL on GPUs.

    measured = distributed.probe(model, own_rollouts, recipes.GRPO, groups=ids)     # on every rank under torchrun

The model is replicated (plain or DistributedDataParallel) or sharded with FSDP2 (`fully_shard`). Each rank makes one
forward and one backward pass over its share of the rollouts. The factors of a layer, its inputs and the gradients at
its outputs, then go to one rank, which measures the layer for all rollouts; of a layer that holds a large share of
the weights each rank measures some rows. Gram matrices, leading singular values and samples are gathered in the end. A
gradient of a whole rollout is never sent, nor that of the batch. Results equal those of one process, up to rounding.

How the processes of torch.distributed exchange what a probe needs: factors of layers, sums and small results.

Every wait looks for other processes that failed, so that a failure ends all of them within seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.distributed_c10d import _get_default_store
from torch.nn.parallel import DistributedDataParallel

from grposcope.core.errors import UserError
from grposcope.instruments.gradient import probe as of_one_process
from grposcope.instruments.gradient import without_hook
from grposcope.instruments.gradient.backward import Refusal
from grposcope.instruments.gradient.probe import Probe
from grposcope.instruments.gradient.score import Score, Use, is_large
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.rollouts import joined
from grposcope.lab.workers import ALONE, Rows, Workers

PATIENCE = 1800.0
"""Seconds to wait for another rank before giving up."""


def probe(
    model: Any,
    rollouts: RolloutBatch,
    recipe: Objective,
    *,
    groups: Tensor | None = None,
    pad: int = 0,
    **settings: Any,
) -> Probe:
    """Measure the gradients that the rollouts of all ranks give; every rank calls this, and gets the same result.

    model: the bare model, or wrapped in DistributedDataParallel, or sharded by FSDP2. rollouts: those of this rank, any
    number of rows. groups (B,): number of the prompt of each row; rows with the same number form a group, whichever
    rank holds them, and all groups must be of one size. None: the rank's rollouts are whole groups. The result has the
    groups in the order of their numbers, and within a group the rows in the order of ranks. pad: the token id that
    fills shorter rows. settings: see `instruments.gradient.probe.probe`; the same on every rank.

    Without torch.distributed this is the probe of one process. UserError as there, and where there are fewer rollouts
    than ranks, where groups differ in size, and where another rank has failed.
    """
    with sharing(rollouts.mask.device) as workers, reducing(model):
        every = _gather_rollouts(rollouts, groups, pad, workers)
        return of_one_process.probe(bare(model), every, recipe, workers=workers, **settings)


@contextmanager
def sharing(device: torch.device) -> Iterator[Workers]:
    """The ranks of torch.distributed, to share a probe's work inside the `with` block; all ranks enter it together.

    When the block of one rank ends with an exception, the other ranks get a UserError instead of waiting.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        yield ALONE
        return
    group = dist.new_group(timeout=timedelta(seconds=PATIENCE))
    workers = _Processes(group, device)
    try:
        yield workers
    except BaseException as error:
        workers.fail(error)
        raise
    dist.destroy_process_group(group)


@contextmanager
def launched(device: str) -> Iterator[Workers]:
    """The processes that torchrun started, of which all but the first are silent; one process without torchrun.

    device: "cpu", "cuda" or "auto". A UserError is said by the first process; the others end with status 2.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    local = torch.device("cpu")
    if device != "cpu" and torch.cuda.is_available():
        local = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(local)
    if not dist.is_initialized():
        dist.init_process_group()
    if dist.get_rank() == 0:
        with sharing(local) as workers:
            yield workers
    else:
        try:
            with (
                open(os.devnull, "w") as nowhere,
                redirect_stdout(nowhere),
                redirect_stderr(nowhere),
                sharing(local) as workers,
            ):
                yield workers
        except UserError:
            time.sleep(1)  # torchrun ends all processes with the first that fails: leave time to say why
            sys.exit(2)
    dist.destroy_process_group()


def _gather_rollouts(rollouts: RolloutBatch, groups: Tensor | None, pad: int, workers: Workers) -> RolloutBatch:
    """The rollouts of all ranks, sorted by group, on every rank; arguments as in `probe`."""
    if groups is None:
        prompts, size = rollouts.groups
        groups = (workers.number * 2**32 + torch.arange(prompts)).repeat_interleave(size)
    if len(groups) != len(rollouts.mask):
        raise UserError(f"groups has {len(groups)} numbers for {len(rollouts.mask)} rollouts; give one for each row")
    parts = workers.gathered((rollouts.rows(slice(None)).to("cpu"), groups.cpu()))
    rows = joined([block for block, _ in parts], pad)
    numbers = torch.cat([number for _, number in parts])
    order = torch.argsort(numbers, stable=True)
    sizes = torch.unique(numbers, return_counts=True)[1]
    check_shareable(len(numbers), workers)
    if len(set(sizes.tolist())) > 1:
        raise UserError(
            f"groups have {int(sizes.min())} to {int(sizes.max())} rollouts over all ranks; a probe needs groups of "
            "one size, so give every rollout the number of its prompt"
        )
    sorted_rows = rows.rows(order).to(rollouts.mask.device)
    return replace(sorted_rows, rewards=sorted_rows.rewards.reshape(len(sizes), -1))


def check_shareable(rollouts: int, workers: Workers) -> None:
    """Refusal unless there is a rollout for each of the processes."""
    if rollouts < workers.size:
        raise Refusal(
            f"{rollouts} rollouts cannot be shared by {workers.size} processes; use more prompts, larger groups or "
            "fewer processes"
        )


def bare(model: Any) -> Any:
    """The model itself, out of DistributedDataParallel; one of FSDP2 with its weights sharded.

    UserError for a model that is spread over processes in another way.
    """
    if isinstance(model, DistributedDataParallel):
        model = model.module
    parts = sharded(model)
    for module in parts:
        module.reshard()
    if not parts and any(without_hook.spread(p) for p in model.parameters()):
        raise Refusal(
            "the model's layers are computed by several processes together (tensor parallelism), which a probe does "
            "not support; replicate the model, or shard it with FSDP2"
        )
    return model


def sharded(model: Any) -> list[Any]:
    """The modules of a model that FSDP2 shards."""
    return [m for m in model.modules() if any(c.__name__ == "FSDPModule" for c in type(m).__mro__)]


@contextmanager
def reducing(model: Any) -> Iterator[None]:
    """Inside the `with` block FSDP2 adds gradients up over the processes in every backward pass.

    Trainers put this off while they accumulate gradients; what the self-check adds would then wait in the model, and
    be trained on. Refusal where gradients of an unfinished step wait there now.
    """
    groups = [group for module in sharded(model) for group in module._get_fsdp_state()._fsdp_param_groups]
    for parameter in (parameter for group in groups for parameter in group.fsdp_params):
        whole = getattr(parameter, "_unsharded_param", None)
        if parameter.unsharded_accumulated_grad is not None or (whole is not None and whole.grad is not None):
            raise Refusal(
                "the sharded model holds gradients of an unfinished step; probe between steps: let batches of "
                "rollouts begin with a step (steps_per_generation a multiple of gradient_accumulation_steps)"
            )
    before = [(group, group.reduce_grads, group.all_reduce_grads) for group in groups]
    try:
        for group in groups:
            group.reduce_grads = group.all_reduce_grads = True
        yield
    finally:
        for group, reduce, reduce_all in before:
            group.reduce_grads, group.all_reduce_grads = reduce, reduce_all


T = TypeVar("T")

AHEAD = 4
"""Layers whose factors may be on their way: enough that ranks seldom wait, few enough to hold them in memory."""

LOOK = 0.5
"""Seconds between two looks for processes that failed."""

SOON = 0.0002
"""Seconds between two looks whether an exchange is complete."""


class _Processes(Workers):
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
