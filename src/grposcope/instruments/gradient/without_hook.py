"""Parameters that no hook covers, measured exactly by a backward pass of each rollout on its own.

The passes of all rollouts cost together what one pass over the batch costs, less what batching saves, but hold each
rollout's gradient of these parameters as it is, so that they are for small ones: convolutions and step sizes of
state-space models, attention sinks, magnitudes of DoRA. What takes more than `HELD` bytes is shared out over several
passes, up to `PASSES`; what does not fit then is left out, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from grposcope.instruments.gradient.logits import weighted_logp, without_padding
from grposcope.instruments.gradient.score import Score
from grposcope.lab.policies import recomputes_activations
from grposcope.lab.rollout_batch import RolloutBatch

HELD = 2**30
"""Bytes of gradients, of all rollouts, held at a time."""

PASSES = 8
"""Most passes over all rollouts."""


def groups(entries: Mapping[str, int], rollouts: int) -> tuple[list[list[str]], list[str]]:
    """The parameters of each pass, and those that are too large, from the numbers of their entries."""
    batches: list[list[str]] = []
    too_large, room = [], 0
    for name, count in sorted(entries.items(), key=lambda pair: (pair[1], pair[0])):
        size = 4 * count * rollouts
        if size > room:
            if size > HELD or len(batches) == PASSES:
                too_large.append(name)
                continue
            batches.append([])
            room = HELD
        batches[-1].append(name)
        room -= size
    return batches, too_large


def scores(
    model: Any,
    passes: Iterable[Iterable[str]],
    rollouts: RolloutBatch,
    weights: Tensor,
    temperature: float,
    visit: Callable[[Score], object],
) -> None:
    """Give `visit` the score of each parameter named in `passes`, of Σ weights · log π with weights (B, T)."""
    parameters = dict(model.named_parameters())
    for names in passes:
        wanted = {name: parameters[name] for name in names}
        direct = {
            name: torch.zeros(len(weights), p.numel(), dtype=_precise(p), device=p.device) for name, p in wanted.items()
        }
        # a model that checkpoints its activations itself may have gradients only where all of its weights have
        others = () if recomputes_activations(model) else (n for n in parameters if n not in wanted)
        with without_gradients(model, others):
            for row in weights.any(-1).nonzero()[:, 0].tolist():
                with gradients_to(model, partial(_keep, direct, row)):
                    row_rollout, row_weights = _alone(rollouts, weights, row)
                    _, total = weighted_logp(model, row_rollout, row_weights, temperature)
                    if total.requires_grad:
                        total.backward()
        for name, gradients in direct.items():
            visit(Score(name, "vector", (1, gradients.shape[1]), direct=gradients))


def _keep(direct: dict[str, Tensor], row: int, name: str, gradient: Tensor) -> None:
    """Keep the gradient of a rollout, if it is one of those wanted."""
    if name in direct:
        direct[name][row] = gradient.reshape(-1).to(direct[name].dtype)


def _alone(rollouts: RolloutBatch, weights: Tensor, row: int) -> tuple[RolloutBatch, Tensor]:
    """One rollout and its weights, without padding."""
    row_rollouts, width = rollouts.rows(slice(row, row + 1)), int(rollouts.mask[row].nonzero().max()) + 1
    cut = replace(
        row_rollouts, tokens=row_rollouts.tokens[:, :width], mask=row_rollouts.mask[:, :width], token_annotations={}
    )
    return without_padding(cut), weights[row : row + 1, :width]


def _precise(array: Tensor) -> torch.dtype:
    return torch.promote_types(array.dtype, torch.float32)


@contextmanager
def without_gradients(model: nn.Module, names: Iterable[str]) -> Iterator[None]:
    """Inside the `with` block these parameters are frozen."""
    parameters = dict(model.named_parameters())
    frozen = [parameters[name] for name in names if parameters[name].requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)


@contextmanager
def gradients_to(model: nn.Module, visit: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Inside the `with` block, `visit` gets each gradient of autograd at once; `.grad` is restored in the end.

    Gradients of parameters that are spread over several processes are visited at the end of the block, gathered.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = {name: p.grad for name, p in trained.items()}

    def hook(name: str) -> Callable[[Tensor], None]:
        def take(parameter: Tensor) -> None:
            gradient, parameter.grad = parameter.grad, None
            if gradient is not None:
                visit(name, gradient)

        return take

    with ExitStack() as stack:
        for name, parameter in trained.items():
            parameter.grad = None
            stack.callback(setattr, parameter, "grad", before[name])
            if not spread(parameter):
                stack.callback(parameter.register_post_accumulate_grad_hook(hook(name)).remove)
        yield
        for name, parameter in trained.items():
            if parameter.grad is not None:
                gradient, parameter.grad = parameter.grad, None
                visit(name, whole(gradient))


def whole(array: Any) -> Tensor:
    """The array itself, or all of one that is spread over several processes, all of which must call this."""
    gathered: Tensor = array.full_tensor() if spread(array) else array
    return gathered


def spread(array: Tensor) -> bool:
    """Whether the array is a DTensor, of which several processes hold parts."""
    return hasattr(array, "full_tensor")
