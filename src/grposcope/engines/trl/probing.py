"""A probe of a TRL run: its own rollouts, model, adapters and advantages, measured before they are trained on.

The probe is a plain forward pass of its own, since TRL's loss uses the weights of the head without calling it. It
draws no random number and leaves weights, gradients and modes as they were, so that the run stays the same. Several
processes share it: every one has all rollouts, and passes over some of them, whichever group they belong to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from grposcope.engines.trl import scored_batch
from grposcope.instruments import has
from grposcope.lab.objectives import Objective
from grposcope.lab.rollout_batch import RolloutBatch, rows_of_groups
from grposcope.lab.tasks.base import Problem
from grposcope.maths.aggregation import Aggregation

if TYPE_CHECKING:
    from grposcope.instruments.gradient.probe import Probe

CHECKED = 10
"""One probe in CHECKED, beginning with the first, compares its gradient with autograd's."""

TASK = "rollouts of the trainer"
"""What a probe's record says of the task."""


@dataclass(frozen=True)
class Asked:
    """How to probe: every how many optimiser steps, and how many prompts."""

    every: int
    prompts: int

    def due(self, step: int, interval: int) -> bool:
        """Whether a batch that is fresh at `step`, for `interval` steps, is used at one of the steps 1, 1 + every, …"""
        return bool(self.every) and (1 - step) % self.every < interval


def interval(args: Any) -> int:
    """Optimiser steps that a batch of rollouts is used for, at least 1."""
    rounds = getattr(args, "steps_per_generation", None) or args.gradient_accumulation_steps
    return max(1, rounds * getattr(args, "num_iterations", 1) // args.gradient_accumulation_steps)


@contextmanager
def plain(model: nn.Module) -> Iterator[None]:
    """Inside the `with` block the model has no dropout and does not checkpoint its activations, which a probe does.

    It also computes in the precision of its weights, without the autocast that accelerate puts around its forward.
    """
    from grposcope.instruments.gradient.checkpointing import replaced_forward

    modes = {module: module.training for module in model.modules()}
    checkpointing: list[Any] = [
        module for module in model.modules() if getattr(module, "gradient_checkpointing", False)
    ]
    model.eval()
    for module in checkpointing:
        module.gradient_checkpointing = False
    bare = getattr(model, "_original_forward", None)
    try:
        with nullcontext() if bare is None else replaced_forward(model, bare):
            yield
    finally:
        for module, training in modes.items():
            module.training = training
        for module in checkpointing:
            module.gradient_checkpointing = True


def measure(
    model: nn.Module,
    every: RolloutBatch,
    objective: Objective,
    credit: Tensor,
    prompts: int,
    args: Any,
    learning_rate: float,
    check: bool,
) -> tuple[dict[str, float], Probe | None, RolloutBatch]:
    """Metrics `geometry/…` of a batch, the probe behind them, and its rollouts; all processes call this alike.

    The probe is None where none of its advantages differs from 0. It takes the first `prompts` groups, dead ones among
    them, since leaving those out would make the moments look better than they are. credit (B, T): the advantages that
    the trainer uses. args: those of the trainer, whose learning rate is that of the coming step. UserError as from
    `probe`.
    """
    from grposcope.engines import distributed
    from grposcope.instruments.gradient import per_step
    from grposcope.instruments.gradient.probe import probe

    began = time.perf_counter()
    few = every.take(torch.arange(min(prompts, len(every.rewards)), device=every.mask.device))
    weights = credit[: len(few.mask)]
    live = int(weights.reshape(len(few.rewards), -1).any(-1).sum())
    measured = None
    if live:
        with distributed.sharing(few.mask.device) as workers, distributed.reducing(model), plain(model):
            distributed.check_shareable(len(few.mask), workers)
            measured = probe(
                distributed.bare(model), few, objective, credit=weights, temperature=args.temperature,
                leading=8, learning_rate=learning_rate, seed=args.seed, check=check, workers=workers,
            )  # fmt: skip
        if not measured.complete:
            raise KeyboardInterrupt
    metrics = per_step.metrics(every.rewards.cpu().numpy(), measured, live)
    return metrics | {"seconds_probe": time.perf_counter() - began}, measured, few


def components(
    trainer: Any,
    step: int,
    every: RolloutBatch,
    credit: Tensor,
    penalties: Mapping[str, Tensor],
    measured: Probe,
    folder: Path,
) -> None:
    """Write what each reward and constraint moves, where a trainer has several.

    every: the batch of all processes, with the advantages `credit` (B,) or (B, T), in which the penalties of the
    constraints are contained; measured: a probe of its first whole groups.
    """
    rewards = list(zip(trainer.reward_func_names, trainer.reward_weights.tolist(), strict=True))
    if not has("rewards") or len(rewards) + len(penalties) < 2:
        return
    from grposcope.instruments.rewards import probe_file, probing

    objective: Objective = trainer._scope_objective
    normalized = getattr(trainer.args, "multi_objective_aggregation", "") == "normalize_then_sum"
    if objective.aggregation is None and normalized:
        objective = replace(objective, aggregation=Aggregation("normalize_then_sum"))
    good = scored_batch.scorable(every).nonzero()[:, 0][: len(measured.rewards)]
    rows = rows_of_groups(good, every.groups[1])
    probe = probing.measure(step, every, objective, rewards, credit, penalties, measured.gram, rows)
    if probe is not None:
        probe_file.write(folder, probe)


def write(folder: Path, measured: Probe, few: RolloutBatch, model: str, step: int, seed: int, tokenizer: Any) -> None:
    """Write a probe into probes/step-… of the record in `folder`, without the Gram matrices of single layers.

    step: of the model, so that of the optimiser before the rollouts are trained on.
    """
    from grposcope.instruments.gradient import probe_record as probes
    from grposcope.instruments.gradient import recording as records

    record = records.record(measured, model, TASK, seed, step)
    group = few.groups[1]
    texts = [_text(tokenizer, ids, inside) for ids, inside in zip(few.prompt_ids, few.prompt_mask, strict=True)][
        ::group
    ]
    problems = [Problem(f"prompt {number}", text) for number, text in enumerate(texts)]
    ids = [tokens[inside].tolist() for tokens, inside in zip(few.tokens, few.mask, strict=True)]
    written = [str(tokenizer.decode(row, skip_special_tokens=True)) for row in ids]
    spelled: Sequence[Sequence[str]] = [[str(tokenizer.decode([token])) for token in row] for row in ids]
    gram = replace(records.gram(measured), layers=None, layer_names=())
    folder_of_step = folder / probes.FOLDER / f"step-{step:06d}"
    probes.write(folder_of_step, record, gram, records.rollouts(measured, problems, written, spelled))


def _text(tokenizer: Any, ids: Tensor, inside: Tensor) -> str:
    return str(tokenizer.decode(ids[inside].tolist()))
