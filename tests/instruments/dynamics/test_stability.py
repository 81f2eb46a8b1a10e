"""Effective steps: every optimizer that training offers is known, and one that is not known is said to be so."""

from __future__ import annotations

import math

import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.instruments.dynamics import stability
from grposcope.instruments.dynamics.stability import _adam_step
from grposcope.lab.train import optimizer as optimizers
from grposcope.lab.train.config import TrainConfig

TRAINED = tuple(optimizers.OPTIMIZERS)


def test_every_optimizer_of_training_has_its_effective_step_or_is_said_to_have_none() -> None:
    assert set(stability.OPTIMIZERS) <= set(TRAINED)


@pytest.mark.parametrize("name", [name for name in TRAINED if stability.OPTIMIZERS.get(name)])
def test_steps_follow_from_what_training_does(name: str) -> None:
    """Under a constant gradient g heavy ball moves by η g/(1 − β) per step; so do the optimizers with their η."""
    weight, lr, momentum, gradient = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64)), 1e-3, 0.5, 0.02
    optimizer = optimizers.build([weight], lr, TrainConfig(optimizer=name, momentum=momentum, beta2=0.95))
    for _ in range(60):
        before = float(weight.detach())
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
    moved = before - float(weight.detach())
    step = stability.effective_step(name, lr, momentum, gradient)
    assert moved == pytest.approx(step * gradient / (1 - momentum), rel=1e-3)


def test_an_unknown_optimizer_is_no_sgd() -> None:
    with pytest.raises(UserError, match="cannot tell: the effective step of optimizer lion is unknown"):
        stability.effective_step("lion", 0.1, 0.9)
    with pytest.raises(UserError, match="optimizer is not recorded"):
        stability.effective_step("", 0.1, 0.9)
    with pytest.raises(UserError, match="root mean square gradient"):
        stability.effective_step("adamw", 0.1, 0.9, math.nan)
    assert stability.effective_step("sgd", 0.1, 0.9) == 0.1
    assert stability.effective_step("adamw", 0.1, 0.9, 0.05) == _adam_step(0.1, 0.9, 0.05)
