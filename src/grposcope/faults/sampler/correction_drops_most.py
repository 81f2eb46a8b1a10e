"""A correction masks most rollouts, and what is logged after it looks sound.

What it is
    Sequences whose probabilities differ too much between sampler and trainer are left out. Where most are, the mismatch
    itself is the fault: means over what is left cannot show it.
How it shows
    The share of masked sequences or tokens is above a third; errors are large before the mask and near 1 after it.
What it does to the gradient
    Only what sampler and trainer agree on is trained: often the shorter answers, and often not the right ones.
What to do
    Find what makes the largest errors (max error before the mask, by length and by prompt), rather than widen the mask.
What decides
    Log-probabilities of one masked rollout, token by token, from both sides: one token or all of them.
Sources
    NeMo-RL #4243: https://github.com/NVIDIA-NeMo/RL/issues/4243
"""

from __future__ import annotations

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.text import number
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs.quantities import SHORT, MetricSeries, Quantities

MOST = 1 / 3
"""Share of rollouts or tokens masked that is too many, at first and at last."""

COUNTS = ("num_masked_seqs_by_logprob_error", "num_valid_samples")
"""Columns of NeMo-RL: sequences masked, and those left."""


def _check(quantities: Quantities) -> Finding:
    """The share that is masked, from its column or from counts, above MOST."""
    masked = _masked(quantities)
    if masked is None:
        return cannot_tell("no share masked by a correction is logged")
    first, last = (float(masked.values[level.rows(len(masked), span)].mean()) for span in (EARLY, LATE))
    evidence = [Sign("share masked, last fifth", last, limit=f"too many from {MOST:.2g}", column=masked.name)]
    if min(first, last) < MOST:
        return fact(False, f"{last:.0%} are masked", tuple(evidence))
    because = f"the correction masks {last:.0%} of the rollouts, so that means after it are of the few that agree"
    error = quantities.column("max_seq_mult_prob_error")
    if error is not None:
        largest = float(error.level(LATE).value)
        evidence.append(Sign("largest error of a sequence before the mask", largest, column=error.name))
        because += f"; before it the largest error of a sequence is {number(largest)} ×"
    right = quantities.column("masked_correct_pct")
    if right is not None:
        because += f"; {right.level(LATE).value:.0%} of those masked are right"
    return fact(True, because, tuple(evidence), explains=("no learning",), brief=f"{last:.0%} of rollouts are masked")


def _masked(quantities: Quantities) -> MetricSeries | None:
    """The share (n,) of sequences or tokens that a correction masks; None where nothing says it."""
    for name in ("importance/masked_sequences", "importance/masked"):
        series = quantities.column(name)
        if series is not None and len(series) >= SHORT:
            return series
    masked, valid = (quantities.column(name) for name in COUNTS)
    if masked is None or valid is None or len(masked) != len(valid) or len(masked) < SHORT:
        return None
    whole = masked.values + valid.values
    return MetricSeries(masked.name, masked.steps, masked.values / whole) if whole.min() > 0 else None


FAULT = Fault(
    name="correction drops most",
    rank=213,
    remedy="find what makes the largest errors between sampler and trainer before the mask (one token or all, which "
    "lengths, which prompts), rather than widen the mask",
    effect="most of what is sampled teaches nothing",
    beside="warning",
    instead="warning",
    log=LogTest(
        "correction drops most",
        _check,
        needs=(),
        where_logged=True,
        statistic="share of rollouts or tokens that a correction masks, at first and at last",
        threshold=f"> {MOST:.2g} at both",
    ),
)
