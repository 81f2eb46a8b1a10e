"""The optimiser and its learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from grposcope.training.config import TrainConfig


def build(parameters: Iterable[nn.Parameter], config: TrainConfig, lr: float) -> torch.optim.Optimizer:
    """SGD with heavy-ball momentum, Adam or AdamW, as configured."""
    trained = [p for p in parameters if p.requires_grad]
    if config.optimizer == "sgd":
        return torch.optim.SGD(trained, lr=lr, momentum=config.momentum, weight_decay=config.weight_decay)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    betas = (config.momentum, config.beta2)
    return kind(trained, lr=lr, betas=betas, weight_decay=config.weight_decay, fused=True)


def rate(config: TrainConfig, lr: float, step: int) -> float:
    """Learning rate of optimiser step `step`, counted from 0: linear warm-up, then the schedule's decay to 0."""
    if step < config.warmup:
        return lr * (step + 1) / (config.warmup + 1)
    done = (step - config.warmup) / max(config.steps - config.warmup, 1)
    factor = {"constant": 1.0, "linear": 1.0 - done, "cosine": 0.5 * (1.0 + math.cos(math.pi * done))}
    return lr * factor[config.schedule]
