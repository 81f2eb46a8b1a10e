"""A probe shared by the processes of a training run: torch.distributed, gloo on CPUs and NCCL on GPUs.

    measured = distributed.probe(model, own_rollouts, recipes.GRPO, groups=ids)     # on every rank under torchrun

The model is replicated (plain or DistributedDataParallel) or sharded with FSDP2 (`fully_shard`). Each rank makes one
forward and one backward pass over its share of the rollouts. The factors of a layer, its inputs and the gradients at
its outputs, then go to one rank, which measures the layer for all rollouts; of a layer that holds a large share of
the weights each rank measures some rows. Gram matrices, leading singular values and samples are gathered in the end. A
gradient of a whole rollout is never sent, nor that of the batch. Results equal those of one process, up to rounding.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from grposcope.core.errors import UserError
from grposcope.engines.processes import Processes
from grposcope.instruments.gradient import probe as of_one_process
from grposcope.instruments.gradient import without_hook
from grposcope.instruments.gradient.backward import Refusal
from grposcope.instruments.gradient.probe import Probe
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.rollouts import joined
from grposcope.lab.workers import ALONE, Workers

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
    workers = Processes(group, device)
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
