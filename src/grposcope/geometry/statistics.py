"""Further statistics of a probe: a function each, registered in one line.

A statistic takes a `Probe` and gives estimates by name. It then stands in probe.json, in what `grposcope probe`
prints and on the page of `grposcope report`, under its name here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from grposcope.geometry.probe import Probe
from grposcope.records import Estimate


def stable_rank_by_block(probe: Probe) -> dict[str, Estimate]:
    """Mean stable rank Σσ²/σ₁² of the recipe's gradient over the weight matrices of each block.

    It rises when whatever dominates is taken out, almost by construction; compare with taking out another direction
    (experiments/geometry_directions.py).
    """
    ranks: dict[int, list[float]] = {}
    for layer in probe.layers:
        if layer.depth is not None and probe.recipe in layer.spectra:
            ranks.setdefault(layer.depth, []).append(layer.spectra[probe.recipe].ranks()["stable"])
    return {str(depth): Estimate.mean(values) for depth, values in sorted(ranks.items())}


STATISTICS: dict[str, Callable[[Probe], Mapping[str, Estimate]]] = {
    "stable_rank_by_block": stable_rank_by_block,
}
"""Name in probe.json -> statistic."""
