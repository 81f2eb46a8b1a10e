"""The learning rate and the weight decay that a step of Adam really took, from weights before and after it.

A step of AdamW makes of weights w, with the state m, v that it leaves after t updates,

    Δw = −η u − η λ w,        u = m̂ / (√v̂ + ε),   m̂ = m / (1 − β₁ᵗ),   v̂ = v / (1 − β₂ᵗ),

so that η and ηλ are the two coefficients of a regression of Δw on u and w, whose errors are rounding. Nothing of it is
what a scheduler or a setting says (Loshchilov and Hutter, arXiv:1711.05101). Only weights in float32 can show it; of
Adam without W, whose decay is in the gradient, the decay is not told.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

SAMPLE, EACH = 16, 2048
"""Parameters that are looked at, and weights of each."""

LEAST = 64
"""Weights that moved, at least."""

RESIDUAL = 0.02
"""Share of Δw, root mean square, that the regression may leave: more, and the step was not Adam's."""

SURE = 0.01
"""Largest standard error with which a decay is told."""

NAN = math.nan


class StepMeter:
    """Measures each step of an optimiser, through hooks of torch that change nothing.

    rate, decay: those of the last step, NaN where they cannot be told. scheduled: what `due` said then.
    """

    def __init__(self, optimizer: Any, due: Callable[[], float]):
        """due: the rate that the scheduler has for the coming step."""
        self.rate = self.decay = self.scheduled = NAN
        self._due, self._before = due, list[tuple[Any, torch.Tensor]]()
        optimizer.register_step_pre_hook(self._begin)
        optimizer.register_step_post_hook(self._end)

    def _begin(self, optimizer: Any, *_: Any) -> None:
        self.rate = self.decay = self.scheduled = NAN
        self._before = [(weight, _some(weight)) for weight in _sampled(optimizer)]
        self.scheduled = float(self._due())

    def _end(self, optimizer: Any, *_: Any) -> None:
        group, changes, pushes, sizes = optimizer.param_groups[0], [], [], []
        for weight, before in self._before:
            state = optimizer.state.get(weight, {})
            if "exp_avg" in state and "exp_avg_sq" in state and "step" in state:
                changes.append((_some(weight) - before).cpu().numpy())
                pushes.append(_push(state, group))
                sizes.append(before.cpu().numpy())
        self._before = []
        if changes:
            decoupled = isinstance(optimizer, torch.optim.AdamW) or bool(group.get("decoupled_weight_decay"))
            both = _fitted(*(np.concatenate(each).astype(np.float64) for each in (changes, pushes, sizes)))
            self.rate, self.decay = both if decoupled or not group.get("weight_decay") else (both[0], NAN)


def _fitted(change: np.ndarray, push: np.ndarray, size: np.ndarray) -> tuple[float, float]:
    """(η, λ) of Δw (n,) by u (n,) and w (n,) before the step; NaN where they do not explain it, or not surely."""
    moved = np.isfinite(change) & np.isfinite(push) & (push != 0)
    change, push, size = change[moved], push[moved], size[moved]
    if len(change) < LEAST or not push.any():
        return NAN, NAN
    if not change.any():
        return 0.0, NAN
    columns = np.stack([-push, -size], 1)
    (rate, both), _, rank, _ = np.linalg.lstsq(columns, change, rcond=None)
    rest = change - columns @ np.array([rate, both])
    if np.sqrt((rest**2).mean()) > RESIDUAL * np.sqrt((change**2).mean()) or rate <= 0:
        return NAN, NAN
    if rank < 2:  # weights that are all 0, as adapters before their first step, or all along the step
        return (NAN, NAN) if size.any() else (float(rate), NAN)
    inverse = np.linalg.pinv(columns.T @ columns)
    error = math.sqrt((rest**2).sum() / (len(rest) - 2) * inverse[1, 1]) / rate
    return float(rate), float(both / rate) if error < SURE else NAN


def _sampled(optimizer: Any) -> list[Any]:
    """Weights in float32 of the first group, which has the decay where groups differ in it."""
    weights = [weight for weight in optimizer.param_groups[0]["params"] if weight.requires_grad]
    return [weight for weight in weights if weight.dtype == torch.float32][:SAMPLE]


def _some(weight: torch.Tensor) -> torch.Tensor:
    """A copy of some values of a tensor, evenly over it."""
    flat = weight.detach().reshape(-1)
    return flat[:: max(1, len(flat) // EACH)].clone()


def _push(state: Any, group: Any) -> np.ndarray:
    """u of the values that `_some` takes."""
    (beta1, beta2), count = group["betas"], float(state["step"])
    mean, square = (_some(state[name]).double().cpu().numpy() for name in ("exp_avg", "exp_avg_sq"))
    return np.asarray(mean / (1 - beta1**count) / (np.sqrt(square / (1 - beta2**count)) + group["eps"]))
