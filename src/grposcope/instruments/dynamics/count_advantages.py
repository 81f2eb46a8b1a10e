"""The advantage formulas of `grposcope.lab.objectives.advantages` for groups given as counts of outcomes, without
torch.

A group of G rollouts over O outcomes is a vector of counts n (Σn = G) and the values v of the outcomes, so
means and variances are weighted sums and a rollout's advantage depends on its outcome only. Shapes:
values and counts broadcast to (C, O, R), contexts × outcomes × runs; results are per outcome. `batch_…` and
`whitened` pool the contexts of a run. Definitions, ddof, ε and groups of equal values are those of the
formulas by the same name; tests hold them equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError

Array = NDArray[np.float64]


def _none(values: Array, counts: Array, group: int) -> Array:
    """A = v."""
    return np.broadcast_to(values, np.broadcast_shapes(values.shape, counts.shape))


def _centered(values: Array, counts: Array, group: int) -> Array:
    """A = v − mean of the group, exactly 0 where all values of the group are equal."""
    _needs_group(group)
    return _less_mean(values, counts, group)[0]


def _leave_one_out(values: Array, counts: Array, group: int) -> Array:
    """A = G/(G−1) (v − mean of the group)."""
    return _centered(values, counts, group) * (group / (group - 1))


def _standardized(values: Array, counts: Array, group: int, ddof: int = 1, eps: float = 1e-4) -> Array:
    """A = (v − mean)/(σ + ε), σ that of the group."""
    _needs_group(group)
    residual, scatter = _less_mean(values, counts, group)
    return residual * _inverse(np.sqrt(scatter / (group - ddof)) + eps)


def _batch_standardized(values: Array, counts: Array, group: int, ddof: int = 1, eps: float = 1e-4) -> Array:
    """A = (v − mean of the group)/(σ + ε), σ that of all contexts together."""
    _needs_group(group)
    residual, _ = _less_mean(values, counts, group)
    _, scatter = _pooled(values, counts, group)
    return residual * _inverse(np.sqrt(scatter / (group * counts.shape[0] - ddof)) + eps)


def _mean_normalized(values: Array, counts: Array, group: int, eps: float = 1e-6) -> Array:
    """A = (v − mean)/(mean + ε), for values ≥ 0."""
    _needs_group(group)
    if (values < 0).any():
        raise UserError("mean-normalised advantages need rewards ≥ 0; shift the rewards or use another formula")
    residual, _ = _less_mean(values, counts, group)
    return residual * _inverse((counts * values).sum(-2, keepdims=True) / group + eps)


def _whitened(values: Array, counts: Array, group: int, ddof: int = 1, eps: float = 1e-4) -> Array:
    """A = (v − mean)/(σ + ε), both of all contexts together; any G."""
    size = group * counts.shape[0]
    residual, scatter = _pooled(values, counts, group)
    return residual * _inverse(np.sqrt(scatter / (size - ddof) if size > ddof else 0 * scatter) + eps)


@dataclass(frozen=True)
class _Formula:
    """An advantage formula, and whether its advantages add up to 0 over every group."""

    advantages: Callable[..., Array]
    sums_to_zero: bool = True


FORMULAS: dict[str, _Formula] = {
    "none": _Formula(_none, sums_to_zero=False),
    "centered": _Formula(_centered),
    "leave_one_out": _Formula(_leave_one_out),
    "standardized": _Formula(_standardized),
    "batch_standardized": _Formula(_batch_standardized),
    "mean_normalized": _Formula(_mean_normalized),
    "whitened": _Formula(_whitened, sums_to_zero=False),
}
"""Formulas by the names that `grposcope.lab.objectives.advantages` gives them."""


def formula(name: str, **settings: float) -> Callable[[Array, Array, int], Array]:
    """A formula by name, with ddof and eps where it takes them."""
    if name not in FORMULAS:
        raise UserError(f"unknown advantage {name!r}; use one of {', '.join(FORMULAS)}")
    return partial(FORMULAS[name].advantages, **settings)


def _less_mean(values: Array, counts: Array, group: int) -> tuple[Array, Array]:
    """v − mean and Σ n (v − mean)² of each group; both exactly 0 where a group has one value only."""
    residual = values - np.einsum("...or,...or->...r", counts, values)[..., None, :] / group
    scatter = np.einsum("...or,...or,...or->...r", counts, residual, residual)[..., None, :]
    return _without_rounding(residual, scatter, group, values)


def _pooled(values: Array, counts: Array, group: int) -> tuple[Array, Array]:
    """v − mean and Σ n (v − mean)² of all contexts of a run together; both exactly 0 where all values are equal."""
    size = group * counts.shape[0]
    residual = values - (counts * values).sum((-3, -2), keepdims=True) / size
    return _without_rounding(residual, (counts * residual * residual).sum((-3, -2), keepdims=True), size, values)


def _without_rounding(residual: Array, scatter: Array, size: int, values: Array) -> tuple[Array, Array]:
    """Residuals and scatter set to 0 where they are no more than the rounding of a mean of equal values."""
    rounding = (8 * math.ulp(1.0) * float(np.abs(values).max())) ** 2 * size
    live = scatter > rounding
    if not live.all():
        residual *= live
        scatter *= live
    return residual, scatter


def _inverse(scale: Array) -> Array:
    return 1 / np.where(scale != 0, scale, 1.0)


def _needs_group(group: int) -> None:
    if group < 2:
        raise UserError("a group baseline needs at least two rollouts per context, got group = 1")
