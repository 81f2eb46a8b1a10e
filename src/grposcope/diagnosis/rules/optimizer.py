"""Rules about the update: oscillation, gradients, clipping, settings that cannot work, and a loss of zero."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.ndimage import median_filter

from grposcope.diagnosis.findings import Evidence, Rule, Verdict, unknown
from grposcope.diagnosis.quantities import LEAST, SHORT, View
from grposcope.timeseries import level as levels
from grposcope.timeseries import periodogram, spectral_peak
from grposcope.timeseries.change import EARLY, LATE
from grposcope.timeseries.noise import Array
from grposcope.timeseries.oscillation import Oscillation
from grposcope.timeseries.periodogram import SEEN

WEIGHTY = 0.2
"""An oscillation that explains less of the detrended variance is let pass."""

SURE = 0.01
"""Posterior chance of γ ≤ 0 below which swings grow, and of γ ≥ 0 below which they fade."""

GROWN = 5.0
"""Late over early gradient norm that is an explosion."""

SPIKE = 3.0
"""A spike is at least this multiple of the running median."""

TAILS = 5
"""Degrees of freedom of Student's t that log gradient norms are judged by: heavier tails than normal."""

HELD = 0.3
"""Share of tokens held by the clip that is too much."""

NEAR_ZERO = 1e-3
"""A loss of which the median is smaller than this is called zero."""


def oscillation(view: View) -> Verdict:
    """Reward swings, and the swings stay or grow; multipliers e^{γ ± iω} near or outside the unit circle.

    Two looks: at a sinusoid, and at swings that keep no time. The first says more where it is sure.
    """
    reward = view.get("reward")
    if reward is None:
        return unknown(view.lacks("reward"), "reward")
    steady, any_shape = periodogram.oscillation(reward.values), spectral_peak.oscillation(reward.values)
    if steady is None or any_shape is None:
        return unknown("the reward is constant or its rows are too few to show an oscillation")
    found = steady if lasting(steady) <= max(lasting(any_shape), SEEN) else any_shape
    per_row = float(np.median(np.diff(reward.steps))) if len(reward) > 1 else 1.0
    growing, fading = found.growing < SURE, found.fading < SURE
    evidence = (
        Evidence("period in steps", found.period * per_row),
        Evidence("amplitude at the end", found.amplitude),
        Evidence("share of the detrended variance", found.share, limit=f"counts from {WEIGHTY:g}"),
        Evidence("modulus of the multiplier per row", found.root.value, found.root.se, "grows above 1"),
    )
    p = min(1.0, 2 * lasting(steady), 2 * lasting(any_shape))
    because = (
        f"reward swings with a period of {found.period * per_row:.3g} steps and an amplitude of {found.amplitude:.2g}, "
        f"{'growing' if growing else 'fading' if fading else 'not dying out'}"
    )
    if p > 0.5:
        because = "reward shows no lasting oscillation"
    onset = int(reward.steps[found.first]) if p < 0.5 else None
    return Verdict(p, because, evidence, onset, "growing oscillation" if growing else "")


def lasting(found: Oscillation) -> float:
    """Its p-value, 1 where the swings explain little or fade."""
    return found.p if found.share >= WEIGHTY and found.fading >= SURE else 1.0


def gradients(view: View) -> Verdict:
    """Spikes of the gradient norm above its running median, or late GROWN × early."""
    found = view.get("grad_norm")
    if found is None:
        return unknown(view.lacks("grad_norm"), "grad_norm")
    positive = found.values > 0
    if positive.sum() < LEAST:
        return unknown("the gradient norm is 0 on nearly all rows")
    p, spikes, rows = _spikes(found.values[positive])
    steps = found.steps[positive][rows]
    logs = np.log(found.values[positive])
    early, late = (math.exp(levels.level(logs, span).value) for span in (EARLY, LATE))
    grown = levels.change(logs, EARLY, LATE, minus=math.log(GROWN))
    if view.run.window > 1:
        note = f"each row is the mean of {view.run.window} steps, which damps spikes"
    else:
        note = f"counts from {SPIKE:g} ×"
    evidence = (
        Evidence("largest gradient norm over its running median", spikes[0] if len(spikes) else 1.0, limit=note),
        Evidence("spikes", float(len(spikes))),
        Evidence(f"grad_norm, last {1 - LATE[0]:.0%} over first {EARLY[1]:.0%}",
                 late / early, limit=f"explosion from {GROWN:g} ×"),
    )  # fmt: skip
    if grown.p_up < p:
        because = f"the gradient norm grew from {early:.3g} to {late:.3g}"
        return Verdict(min(1.0, 2 * grown.p_up), because, evidence, found.onset(), "gradient explosion")
    p = min(1.0, 2 * p)
    if p >= 0.5:
        return Verdict(p, "gradient norms have no spikes out of the ordinary", evidence)
    because = f"{len(spikes)} gradient spikes, the largest {spikes[0]:.3g} × the running median"
    return Verdict(p, because, evidence, int(steps.min()) if len(steps) else None)


def _spikes(norms: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """p-value of the second largest deviation of log norms, the spikes' multiples (largest first), and their rows.

    Two spikes are needed: one batch in a run is bad luck. P(at least 2 of n exceed z) under Student's t.
    """
    logs = np.log(norms)
    apart = logs - median_filter(logs, 31, mode="nearest")
    scale = max(1.4826 * float(np.median(np.abs(apart))), 1e-3)
    order = np.argsort(-apart)
    if apart[order[1]] < math.log(SPIKE):
        return 1.0, np.empty(0), np.empty(0, np.int64)
    tail = stats.t.sf(apart[order] / scale, TAILS)
    p = float(stats.binom.sf(1, len(logs), tail[1]))
    rows = order[(apart[order] > math.log(SPIKE)) & (tail <= max(tail[1], 1e-4))]
    return p, np.exp(apart[rows]), rows


def nonfinite(view: View) -> Verdict:
    """Infinite values anywhere; a loss or gradient norm that is missing from a row that has all the rest."""
    table = view.run.table
    whole = _whole_rows(table)
    bad = []
    for name, column in table.items():
        wrong = np.isinf(column)
        if name in ("loss", "policy_loss", "grad_norm"):
            wrong = wrong | (np.isnan(column) & whole & _due(column))
        if wrong.any():
            bad.append((int(np.flatnonzero(wrong)[0]), int(wrong.sum()), name))
    if not bad:
        return Verdict(1.0, "all values are finite")
    evidence = tuple(Evidence(f"values of {name} that are not finite", float(count)) for _, count, name in bad)
    what = ", ".join(f"{name} on {count} rows" for _, count, name in bad)
    return Verdict(0.0, f"not finite: {what}", evidence, int(table["step"][min(bad)[0]]))


def _whole_rows(table: Mapping[str, Array]) -> NDArray[np.bool_]:
    """Rows that have all but the loss and gradient of what is usually there: not cut short by the log."""
    usual = [np.isfinite(c) for name, c in table.items() if name not in ("loss", "policy_loss", "grad_norm")]
    usual = [there for there in usual if there.mean() >= 0.75]
    return np.all(usual, axis=0) if usual else np.zeros(len(table["step"]), bool)


def _due(column: Array) -> NDArray[np.bool_]:
    """Rows where a value is due: all from the first one on, if half of them have one and they have no rhythm."""
    there = np.flatnonzero(np.isfinite(column))
    due = np.zeros(len(column), bool)
    gaps = np.diff(there)
    if len(there) >= 2 and 2 * len(there) >= len(column) - there[0] and ((gaps == 1).all() or np.ptp(gaps) > 0):
        due[there[0] :] = True
    return due


def clipping(view: View) -> Verdict:
    """Share of tokens held by the clip, both sides, above HELD."""
    whole = view.get("clip_fraction", SHORT)
    low, high = view.run.table.get("clip_low"), view.run.table.get("clip_high")
    values = whole.values if whole is not None else low + high if low is not None and high is not None else None
    values = values[np.isfinite(values)] if values is not None else None
    if values is None or len(values) < SHORT:
        return unknown("no clip fraction is logged", "clip_fraction")
    over = levels.level(values, LATE, HELD)
    level = over.value + HELD
    evidence = (Evidence(f"clip fraction, last {1 - LATE[0]:.0%}", level, over.se, f"limit {HELD:g}"),)
    return Verdict(over.p_up, f"{level:.1%} of tokens are held by the clip", evidence)


def misconfigured(view: View) -> Verdict:
    """Settings that cannot work, as far as the record proves them."""
    table, found = view.run.table, []
    group = view.group
    if group == 1 or (len(view.run.groups) and int(view.run.groups.sizes.max()) == 1):
        found.append(("groups have one rollout, so there is nothing to compare it with",
                      "set num_generations, rollout.n or n_samples_per_prompt to 4 or more"))  # fmt: skip
    elif _advantages_are_rewards(table):
        found.append(("advantages equal rewards: groups of one, or no baseline",
                      "set rollout.n (the group size) to 4 or more and adv_estimator to grpo"))  # fmt: skip
    for name, what, advice in (
        ("lr", "the learning rate is 0", "set a learning rate; check the warm-up and the schedule's length"),
        ("grad_norm", "the gradient is exactly 0", "check that parameters require gradients and rewards differ"),
    ):
        series = view.exact(name)
        if series is not None and len(series) >= LEAST and not series.values.any():
            if name == "grad_norm" and (view.dead is None or view.dead.values.mean() > 0.99):
                continue  # dead groups explain it
            found.append((f"{what} on all {len(series)} rows", advice))
    if not found:
        return Verdict(1.0, "no setting is proved wrong by the record")
    because, advice = ("; ".join(part) for part in zip(*found, strict=True))
    return Verdict(
        0.0, because, (Evidence("settings proved wrong", float(len(found))),), int(table["step"][0]), advice=advice
    )


def _advantages_are_rewards(table: Mapping[str, Array]) -> bool:
    names = [(f"advantage_{end}", f"reward_{end}") for end in ("max", "min")]
    if any(name not in table for pair in names for name in pair):
        return False
    pairs = [(table[a], table[b]) for a, b in names]
    rows = np.all([np.isfinite(a) & np.isfinite(b) for a, b in pairs], axis=0)
    if rows.sum() < 5 or not any(np.ptp(b[rows]) > 0 or b[rows].any() for _, b in pairs):
        return False
    return all(bool(np.allclose(a[rows], b[rows], rtol=1e-4, atol=1e-6)) for a, b in pairs)


def zero_loss(view: View) -> Verdict:
    """Why is my loss 0? By construction while the gradient is not 0; for want of a signal if it is."""
    loss, norms = view.get("loss", SHORT), view.get("grad_norm", SHORT)
    if loss is None:
        return unknown(view.lacks("loss", SHORT), "loss")
    middle = float(np.median(np.abs(loss.values)))
    evidence = [Evidence("median |loss|", middle, limit=f"zero below {NEAR_ZERO:g}")]
    if middle >= NEAR_ZERO:
        return Verdict(
            1.0, f"the loss is not 0 (median {middle:.2g}); its size says little all the same", tuple(evidence)
        )
    if norms is None:
        return unknown("the loss is near 0, and without gradient norms its reason is open", "grad_norm")
    zero = levels.level((norms.values == 0).astype(np.float64), LATE, 0.9)
    typical = float(np.median(norms.values))
    evidence.append(Evidence("median gradient norm", typical))
    if zero.p_up < 0.5:
        because = f"the loss is 0 because there is no signal: {zero.value + 0.9:.0%} of late gradients are exactly 0"
        return Verdict(zero.p_up, because, tuple(evidence))
    because = (
        f"the loss is near 0 by construction (advantages of a group sum to 0, and on policy the ratio is 1), while the "
        f"gradient is not (median norm {typical:.2g}): the run does train"
    )
    return Verdict(1.0, because, tuple(evidence))


RULES = (
    Rule(
        "misconfiguration", (), "facts of the record: group size, lr, gradients, advantages equal to rewards",
        "proof, no noise involved", "ours", "mend the setting", misconfigured, proof=True,
    ),
    Rule(
        "non-finite", (), "infinite values; NaN where a value is due", "one is enough", "ours",
        "lower the learning rate, clip the gradient, check for log(0) and for float16 overflow", nonfinite, proof=True,
    ),
    Rule(
        "oscillation", ("reward",),
        "F test of a sinusoid with exponential envelope above AR(1) + white noise, least p × frequencies × windows; "
        "likelihood of a broad peak in the spectrum over the largest of such noises, × windows; × 2",
        f"p < α and {WEIGHTY:g} of the detrended variance; growing: P(γ ≤ 0) < {SURE:g}; from 40 rows, 3 cycles",
        "theory: multipliers near the unit circle, refresh interval near N*; test ours (after Mann & Lees 1996)",
        "refresh rollouts more often (fewer updates per batch), lower the learning rate or the momentum", oscillation,
    ),
    Rule(
        "gradient spikes", ("grad_norm",),
        "second largest log norm above the running median of 31 rows in robust σ; late − ρ × early norm",
        f"P(2 of n exceed it under Student's t, {TAILS} df) and {SPIKE:g} ×, growing with log n; explosion {GROWN:g} ×",
        "ours", "clip the gradient (max_grad_norm), lower the learning rate, look at these steps' batches", gradients,
    ),
    Rule(
        "clip saturation", ("clip_fraction",), "late clip fraction − limit", f"> {HELD:g} of tokens", "ours",
        "take fewer updates per batch or a lower learning rate; check that sampler and trainer agree", clipping,
    ),
    Rule(
        "zero loss", ("loss", "grad_norm"), "late share of gradients that are exactly 0, where the loss is near 0",
        "> 0.9", "theory: centred advantages sum to zero", "see starved, saturated and misconfiguration", zero_loss,
    ),
)  # fmt: skip
