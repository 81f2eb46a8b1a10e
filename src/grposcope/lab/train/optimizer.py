"""The optimiser and its learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


def _sgd(parameters: list[nn.Parameter], lr: float, settings: Any) -> torch.optim.SGD:
    """SGD with heavy-ball momentum: v ← βv + g, θ ← θ − lr·v."""
    return torch.optim.SGD(parameters, lr=lr, momentum=settings.momentum, weight_decay=settings.weight_decay)


def _adam(parameters: list[nn.Parameter], lr: float, settings: Any) -> torch.optim.Adam:
    return torch.optim.Adam(parameters, lr=lr, fused=True, **_moments(settings))


def _adamw(parameters: list[nn.Parameter], lr: float, settings: Any) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters, lr=lr, fused=True, **_moments(settings))


def _moments(settings: Any) -> dict[str, Any]:
    return {"betas": (settings.momentum, settings.beta2), "weight_decay": settings.weight_decay}


OPTIMIZERS: dict[str, tuple[Callable[[list[nn.Parameter], float, Any], torch.optim.Optimizer], int]] = {
    "adamw": (_adamw, 2),
    "adam": (_adam, 2),
    "sgd": (_sgd, 1),
}
"""Name of a setting -> what builds the optimiser from the parameters, the peak learning rate and the settings of the
run, a `TrainConfig`; and how many numbers it keeps per parameter, which a checkpoint must hold. `dynamics` has the
effective learning rate of each."""

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
"""Name of a setting -> factor of the peak learning rate after the share `done` of the steps that follow warm-up."""


def build(parameters: Iterable[nn.Parameter], lr: float, settings: Any) -> torch.optim.Optimizer:
    """The optimiser of the settings, a `TrainConfig`, on those parameters that require a gradient."""
    return OPTIMIZERS[settings.optimizer][0]([p for p in parameters if p.requires_grad], lr, settings)


def learning_rate(step: int, peak: float, schedule: str, warmup: int, steps: int) -> float:
    """Learning rate of optimiser step `step` of `steps`, counted from 0: linear warm-up, then the schedule's decay."""
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    done = (step - warmup) / max(steps - warmup, 1)
    return peak * SCHEDULES[schedule](done)
