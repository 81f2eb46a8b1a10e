"""The off-policy probes of a run, pooled: one answer for the training, and what changed in the course of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.estimate import Estimate
from grposcope.instruments.offpolicy import answer, distance, error, probe_file
from grposcope.instruments.offpolicy.answer import Errors, OffPolicyFound, PooledProbes, ProbeOfStep
from grposcope.instruments.offpolicy.probe_file import OffPolicyProbe
from grposcope.instruments.offpolicy.read import MismatchedRollouts
from grposcope.maths.importance import Floats

FEWEST = 4
"""Probes from which on a change in the course of the run is told."""


def measure(probes: Sequence[OffPolicyProbe]) -> tuple[MismatchedRollouts, OffPolicyFound]:
    """What the probes of a run say together; of several kinds of probes the most frequent are taken.

    UserError for no probe, and where no prompt of any has unequal rewards.
    """
    if not probes:
        raise UserError("the run has no off-policy probes; train with probe_every, and staleness, a correction, or an "
                        "interval above 1")  # fmt: skip
    used = _alike(probes)
    if not any(step.live for step in used):
        raise UserError(
            f"in all {len(used)} probes the rewards of every group are equal, so there is no gradient; use more prompts"
        )
    drawn = probe_file.joined([step.rollouts for step in used])
    rows = tuple(map(_of_step, used))
    halves = _halves(np.array([row.k3 for row in rows]))
    later = used[len(used) - len(used) // 2 :]
    pooled = PooledProbes(
        rows,
        len(probes) - len(used),
        used[0].source,
        halves is not None and _drifts(*halves),
        halves,
        _choice(later) if halves is not None else None,
    )
    return drawn, answer.found(drawn, _errors(used, drawn), pooled)


def _of_step(probe: OffPolicyProbe) -> ProbeOfStep:
    drawn = probe.rollouts
    far = distance.measure(drawn.ratios, drawn.prompts)
    lag = math.nan if drawn.behind is None else float(drawn.behind.mean())
    return ProbeOfStep(probe.step, lag, probe.shape[0], probe.live, far.k3.value, far.ess.value)


def _errors(probes: Sequence[OffPolicyProbe], drawn: MismatchedRollouts) -> Errors:
    norms = np.concatenate([probe.norms for probe in probes])
    return answer.errors_of(drawn, probe_file.products(probes), norms, probes[0].batch)


def _choice(probes: Sequence[OffPolicyProbe]) -> error.CorrectionChoice:
    """What these probes alone would choose."""
    k, errors = _errors(probes, probe_file.joined([probe.rollouts for probe in probes]))
    return error.choose(errors, k)


def _alike(probes: Sequence[OffPolicyProbe]) -> list[OffPolicyProbe]:
    """The probes with the most frequent numbers of prompts and rollouts, of the batch, and source of rollouts."""
    kinds = Counter((probe.shape, probe.batch, probe.source) for probe in probes)
    most = kinds.most_common(1)[0][0]
    return [probe for probe in probes if (probe.shape, probe.batch, probe.source) == most]


def _drifts(before: Estimate, after: Estimate) -> bool:
    """Whether the two differ beyond chance: by more than three of their standard errors."""
    reach = math.hypot(before.se, after.se)
    return math.isfinite(reach) and abs(after.value - before.value) > 3 * reach


def _halves(values: Floats) -> tuple[Estimate, Estimate] | None:
    """Means of a quantity (n,) over the earlier and the later half of the probes, with their errors over probes."""
    if len(values) < FEWEST:
        return None
    half = len(values) // 2
    before, after = (Estimate.mean(part.tolist()) for part in (values[:half], values[len(values) - half :]))
    return before, after
