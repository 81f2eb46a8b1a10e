"""What a log of means and deviations by function can say of weights: the deviations are over batches, not groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from grposcope.core.run import Run
from grposcope.instruments.rewards import RewardSettings, source
from grposcope.maths.aggregation import Floats, checked_weights

Row = tuple[str, float, float, tuple[float, float, float], float]
"""Of a reward: name, weight, share asked for, 5 %, 50 % and 95 % of its share, share of steps with none."""


def _rows(names: Sequence[str], weights: Floats, spreads: Floats) -> Iterator[Row]:
    """Of each reward, from the deviations (T, K) over the batch and the weights (K,)."""
    shares = _of_spreads(weights, spreads)
    asked = np.abs(weights) / np.abs(weights).sum()
    for j, name in enumerate(names):
        known = shares[:, j][np.isfinite(shares[:, j])]
        low, middle, high = np.quantile(known, [0.05, 0.5, 0.95]) if len(known) else [np.nan] * 3
        dead = float((spreads[:, j] == 0).mean())
        yield name, float(weights[j]), float(asked[j]), (float(low), float(middle), float(high)), dead


def _of_spreads(weights: Sequence[float] | Floats, spreads: Floats) -> Floats:
    """Shares |λ_j| s_j / Σ |λ| s from the deviations (T, K) of a log, over the batch: (T, K); NaN where all are 0.

    A deviation over the batch contains the differences between prompts, which no group's advantage sees: the shares
    within groups may be others. Only a deviation of 0 says the same of both.
    """
    sizes = np.abs(np.asarray(weights)) * spreads
    total = sizes.sum(1, keepdims=True)
    return np.divide(sizes, total, out=np.full(sizes.shape, np.nan), where=total > 0)


def of_run(run: Run, settings: RewardSettings) -> tuple[list[Row], list[str]] | None:
    """What the deviations of a log say of each reward, and what was assumed; None where it has those of fewer than two.

    UserError for weights that do not fit.
    """
    prefix = "component_std/"
    columns = {name.removeprefix(prefix): values for name, values in run.table.items() if name.startswith(prefix)}
    columns = {name: values for name, values in columns.items() if np.isfinite(values).any()}
    if len(columns) < 2:
        return None
    spreads = np.stack(list(columns.values()), 1)
    spreads = spreads[np.isfinite(spreads).all(1)]
    if not len(spreads):
        return None
    names = tuple(columns)
    weights, notes = np.ones(len(names)), ["The log does not have the weights of the rewards; each is taken as 1."]
    given = settings.weights or run.setting("reward_weights")
    if isinstance(given, str) and given:
        weights, notes = np.array(source.in_order(given, names)), []
    elif isinstance(given, list) and len(given) == len(names):
        weights, notes = np.array(given, np.float64), []
    how, _ = source.aggregation(run, settings, lengths=False)
    if how.method != "sum_then_normalize":
        notes.append("Each reward is standardized before the sum, so the deviations in the log do not set its weight.")
    return list(_rows(names, checked_weights(weights, names), spreads)), notes
