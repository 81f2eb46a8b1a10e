"""Metrics of a batch that another policy drew: how far it is, what a correction keeps, how stale its weights are.

ρ = π_old/μ of the trainer's policy, when the batch comes to it, to the one that drew. The definitions of the columns
are in `core.metrics`.
"""

from __future__ import annotations

from torch import Tensor

from grposcope.lab.objectives import corrections
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.maths.corrections import Correction
from grposcope.maths.importance import effective, exp


def metrics(
    old: Tensor, rollouts: RolloutBatch, correction: Correction | None, advantages: Tensor | None
) -> dict[str, float]:
    """`mismatch/…` and `importance/…` of a batch; none where it has no tokens.

    old (B, T): log-probabilities of the trainer. correction: None where there is none. advantages (B,):
    for one that needs them.
    """
    ratios = corrections.ratios(old, rollouts.logp, rollouts.mask, advantages)
    if ratios is None:
        return {}
    rho = exp(ratios.log)
    found = {
        "mismatch/k1": float(-ratios.log.mean()),
        "mismatch/k3": float((rho - 1 - ratios.log).mean()),
        "importance/ratio": float(rho.mean()),
        "importance/ess_raw": effective(exp(ratios.sequence)),
    }
    if correction is None:
        return found
    kept = correction.coefficients(ratios)
    units = kept if correction.level == "token" else ratios.means(kept)
    return found | {"importance/weight": float(units.mean()), "importance/masked": float((kept == 0).mean())}


def staleness(rollouts: RolloutBatch, step: int) -> dict[str, float]:
    """`staleness/…` of the batch at optimiser step `step`: steps since the weights that drew it; none if not known."""
    if rollouts.versions is None:
        return {}
    lags = step - 1 - rollouts.versions.double()
    return {"staleness/mean": float(lags.mean()), "staleness/max": float(lags.max())}
