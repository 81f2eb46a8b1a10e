"""What a probe measures, besides its settings: a function of the `Probe` each, registered in one line.

A statistic whose name is a field of `ProbeRecord` fills that field, with its type. Any other gives estimates by name:
it stands in probe.json, in what `grposcope probe` prints and on the page of `grposcope report`, under its name here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grposcope.core.estimate import Estimate
from grposcope.instruments.gradient.probe import Probe
from grposcope.instruments.gradient.probe_record import (
    CreditShares,
    DeadGroupShares,
    Estimates,
    Measures,
    WeightingRanks,
)
from grposcope.maths import dead_groups

SIZES = (2, 4, 8, 16)
"""Group sizes for which the share of dead groups is told, where they are smaller than the probe's."""


def _ranks_by_weighting(probe: Probe) -> dict[str, WeightingRanks]:
    """Every rank of the gradient under each weighting: of layers, of rollouts, and of tokens where they were taken."""
    return {
        name: WeightingRanks(
            Estimates(probe.mean_ranks(name)),
            Measures(probe.rollout_spectrum(name).ranks()),
            Measures(probe.token_spectra[name].ranks()) if name in probe.token_spectra else None,
        )
        for name in probe.weightings
        if name in probe.rollout_grams
    }


def _dead_group_shares(probe: Probe) -> DeadGroupShares:
    """Share of dead groups, by chance if all prompts were alike, and in smaller groups."""
    group = probe.rewards.shape[1]
    return DeadGroupShares(
        dead_groups.share(probe.rewards),
        dead_groups.chance_if_alike(probe.rewards),
        {size: dead_groups.share_in_subsets(probe.rewards, size) for size in SIZES if size < group},
    )


def _credit_shares(probe: Probe) -> CreditShares:
    """Shares of the credit that cancels, that is shared, and that is common."""
    return CreditShares(probe.credit.cancelled, probe.credit.shared, probe.credit.common)


def _stable_rank_by_block(probe: Probe) -> dict[str, Estimate]:
    """Mean stable rank Σσ²/σ₁² of the recipe's gradient over the weight matrices of each block.

    It rises when whatever dominates is taken out, almost by construction; compare with taking out another direction
    (experiments/geometry_directions.py).
    """
    ranks: dict[int, list[float]] = {}
    for layer in probe.layers:
        if layer.depth is not None and probe.recipe in layer.spectra:
            ranks.setdefault(layer.depth, []).append(layer.spectra[probe.recipe].ranks()["stable"])
    return {str(depth): Estimate.mean(values) for depth, values in sorted(ranks.items())}


def _group_rank_by_role(probe: Probe) -> dict[str, Estimate]:
    """r_eff of the rows A_i ψ_i by role of the matrix, such as q_proj: mean over blocks, then over live groups."""
    layers, ranks = probe.matrices, probe.group_ranks().rank
    rows: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        if layer.depth is not None:
            rows.setdefault(layer.role, []).append(number)
    return {role: Estimate.mean(list(map(float, ranks[numbers].mean(0)))) for role, numbers in sorted(rows.items())}


STATISTICS: dict[str, Callable[[Probe], Any]] = {
    "tokens": lambda probe: int(probe.mask.sum()),
    "truncated": lambda probe: float(probe.truncated.mean()),
    "solved": lambda probe: float(probe.rewards.mean()),
    "weightings": _ranks_by_weighting,
    "groups": _dead_group_shares,
    "class_means": Probe.class_means,
    "group_rank": lambda probe: probe.group_ranks().summary(),
    "baseline": lambda probe: probe.baseline()[0],
    "baselines": lambda probe: probe.baseline()[1],
    "credit": _credit_shares,
    "token_sparsity": lambda probe: Measures(probe.token_sparsity()),
    "parameter_sparsity": lambda probe: Estimates(probe.parameters),
    "stable_rank_by_block": _stable_rank_by_block,
    "_group_rank_by_role": _group_rank_by_role,
}
"""Field of `ProbeRecord`, or name among its further statistics -> statistic."""
