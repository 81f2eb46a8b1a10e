"""Sampler mismatch: the policy that sampled is far from the one that trains, or ever farther, or little weight is left.

Each column is held to a limit of its own definition; those that are logged after a cap or mask can show that much is
lost, and never that nothing is.

An update goes ever farther from the policy that drew its batch, while the reward stands still: that policy is old.

A sound trainer draws each batch with the weights of the step before, so that the KL between both is of one step, from
the first batch to the last. Where the sampler keeps its first weights it is of the whole way: it grows by orders of
magnitude, tokens are clipped and norms grow with it, and rewards stay those of the first policy. A learning rate that
is too high does the first too, but moves the reward. (Reported so: verl-omni #552, verl #7495.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact, measured
from grposcope.core.metrics import metric
from grposcope.core.run import Run
from grposcope.core.text import number
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.maths.timeseries.onset import at_once
from grposcope.signs import onset, run_outcome
from grposcope.signs.mismatch import (
    HEATED,
    INPUTS,
    LAG,
    NEVER,
    NUMERICS,
    OF_TURNS,
    TRUNCATED,
    UNEXPLAINED,
    logs,
    signature,
    spearman,
)
from grposcope.signs.moves_alone import stands
from grposcope.signs.quantities import LEAST, SHORT, MetricSeries, Quantities
from grposcope.signs.tests import any_of, least_of

KL_FAR = 0.1
"""|mean log ρ| in nats per token that is too far: the alert of verl's documentation."""

K3_FAR = 0.01
"""k3 (or k2) in nats per token that is too far: above it verl's preset rejects a sequence; ten times what NeMo-RL's
documentation accepts, and what a mean |log ρ| of ABS_FAR is for normal log ratios (0.008)."""

ABS_FAR = 0.1
"""Mean |log ρ| in nats per token that is too far: slime's tests stop there, and 0.2 to 0.4 was reported as broken."""

ERROR_FAR = 0.05
"""Multiplicative error of probabilities, less 1, that NeMo-RL's documentation calls an issue of the framework."""

CHI2_FAR = 1.0
"""χ² of tokens that is too far: the alert of verl's documentation."""

DIFFERENCE_FAR = 0.03
"""Mean difference of the probabilities of drawn tokens that is too far: noise in the logits that makes a mean |log ρ|
of ABS_FAR makes 0.012 to 0.025 of it, at entropies of 2.3 to 1 nats (simulated)."""

FAR: Mapping[str, float] = {
    "mismatch/k3": K3_FAR, "mismatch/k1": KL_FAR, "mismatch/abs": ABS_FAR, "mismatch/mult_error": ERROR_FAR,
    "mismatch/k2": K3_FAR, "mismatch/log_ratio": KL_FAR, "mismatch/chi2_token": CHI2_FAR,
    "mismatch/prob_diff": DIFFERENCE_FAR,
}  # fmt: skip
"""Limit of the size of each column of mismatch; a KL or log ratio counts whichever sign it has."""

CORRELATED = 0.9
"""Correlation of the probabilities of sampler and trainer below which they are too far apart; chosen by this project: a
sound one is above 0.99 (MiniMax-M1, arXiv:2506.13585, after its head was computed in float32)."""

GROWN = 10.0
"""Late over early mismatch that is too much growth: a sampler whose weights were never renewed grew by 36; healthy
mismatch grows by a small factor as a policy sharpens."""

MATTERS = 0.1
"""Share of its limit that mismatch that has grown must have reached, to matter."""

LOW, HIGH = 0.5, 2.0
"""Mean importance weight outside of which too much weight is lost or gained: the alert of verl's documentation."""

EFFECTIVE = 0.3
"""Effective share of the samples below which too few count: the alert of verl's documentation."""

LOST = 0.5
"""Share of tokens or sequences masked that is too much: the same as a mean weight of LOW."""

SPIKE, FEW_SPIKES, RARE = 10.0, 3, 0.03
"""Mismatch over its median in a row that is a spike, how many of them apart and what share of the rows are worth
a word."""

STEPPED, SPREADS = 1.4, 6.0
"""Mismatch after one step over that before it, and spreads between them, from which a level within its limit is
another."""

STRETCH, DROPS, RISEN = 6, 2, 3.0
"""Rows of a stretch in which mismatch grows, how many times it is back at its level, and how much it grows in each."""

ORDERED = 0.8
"""Rank correlation of mismatch with the rows of a stretch, at least; 0.8 in six rows by chance is 1 in 19, and there
are two stretches at least, each with a fall of RISEN × behind it."""

_BEHIND, _VERSIONS = 2.0, 2.0
"""Staleness in the last quarter of the rows over that in the second, and versions more, from which it grows."""

_BOUND = "rollout.max_head_offpolicyness"
"""AReaL's setting of the most updates that rollouts may be old."""

_OF_BEHIND = (
    "hold it beside the bound that was set (AReaL max_head_offpolicyness, prime-rl max_async_level, SkyRL "
    "max_staleness_steps, NeMo-RL max_trajectory_age_steps): beyond it the bound is not in force, as where a run is "
    "recovered and its counter of accepted rollouts starts from none (AReaL has mended that); until then draw fewer "
    "rollouts at a time, or start anew from the weights alone"
)
"""What to do about staleness that grows."""

OF_STRETCHES = (
    "find what ends each stretch (a restart of the engine, a checkpoint, an evaluation) and is not done at every "
    "update of the weights: first of all emptying the cache of prefixes, whose keys and values are of earlier weights "
    "(vLLM: reset_prefix_cache; NeMo-RL: recompute_kv_cache_after_weight_updates); one job without prefix caching "
    "shows it"
)
"""What to do about mismatch that grows in stretches."""

OF_STEP = (
    "find what changed at that step: a restart with another version, kernel, precision or engine; score one recorded "
    "batch under both. Within the limit no learning is lost by it, and an importance correction evens it out"
)
"""What to do where the mismatch is at another level from one step on, within its limit."""

OF_SPIKES = (
    "find the rollouts of such a row whose tokens differ most, and score them with the trainer's fused kernels off "
    "(Megatron: apply_rope_fusion and bias_activation_fusion false) or in float32; until then leave out rollouts whose "
    "mean error is beyond the limit"
)
"""What to do about spikes of the mismatch."""

_WITHOUT_SIGN = ("mismatch/k3", "mismatch/abs", "mismatch/prob_diff")
"""Distances that are read on the first few rows."""

_FEWEST = 4
"""Rows from which they are."""

_OF_FIRST_ROW = (
    "take one rollout of the first step: compare its token ids and its log-probabilities in sampler and trainer, both "
    "at the temperature that the loss uses; equal ids with other probabilities are a temperature or precision"
)
"""What to do about mismatch that is there before any update."""

AFTER = {
    "importance/weight": "it is logged after the cap, so the largest ratios are missing",
    "importance/ess": "it is computed from capped weights; raw weights are worse",
    "mismatch/log_ratio": "it covers only tokens below the cap; the others are worse",
}
"""What cannot be concluded from columns that are logged after a cap or mask."""

FOLLOWS = (
    "entropy collapse", "entropy explosion", "gradient explosion", "gradient spikes", "reward decline",
    "held-out decline", "kl blow-up", "length", "constant reward", "starved", "dead after a fall", "never paid",
)  # fmt: skip
"""Modes that may follow from mismatch where they do not begin before it."""

OF_OTHERS_ROLLOUTS = (
    *FOLLOWS, "empty steps", "no learning", "outage",
)  # fmt: skip
"""Modes that follow where every batch is another policy's from the first step on: what it earned is taught to a policy
that would not have written it."""


@dataclass(frozen=True)
class _Measure:
    """A column that was held to its limit: the series as logged, its sizes (n,), their limit, and the result.

    grew: whether its growth says more than its level.
    """

    series: MetricSeries
    sizes: MetricSeries
    limit: float
    p: float
    grew: bool = False


def _check(quantities: Quantities) -> Finding:
    """The worst of mismatch, mean weight, effective samples and share masked, with the signature of the mismatch."""
    distances = [_distance(series, FAR[series.name]) for series in _logged(quantities, tuple(FAR))]
    weights = _weights(quantities)
    behind = _falls_behind(quantities)
    if not distances and not weights:
        few = behind or _of_few_rows(quantities)
        return few or _departs(quantities, NEVER) or _not_logged(quantities)
    families = [any_of([_result(quantities, measure) for measure in distances])] if distances else []
    worst = least_of([*families, *(_result(quantities, measure) for measure in weights)])
    if (found := _in_stretches(quantities, distances) or _spikes(quantities, distances)) is not None:
        return found
    if worst.p >= 0.5 and (stepped := _stepped(quantities, distances)) is not None:
        return stepped
    if worst.p >= 0.5 and behind is not None:
        return behind
    if worst.p >= 0.5:
        return _departs(quantities, NEVER) or _fine(quantities, distances, worst)
    measures = {measure.series.name: measure for measure in (*distances, *weights)}
    measure = measures[worst.evidence[0].column]
    seen = _best_for_signature(distances, measure)
    told = _explanation(quantities, measure, seen)
    hidden = AFTER.get(measure.series.name, "")
    because = f"{worst.because}{f' ({hidden})' if hidden else ''}; {told.because}"
    when = (
        None
        if told.fault in (HEATED, INPUTS, NUMERICS, TRUNCATED)
        else told.since or onset.since(logs(seen.sizes, seen.limit), 1)
    )
    explains: tuple[str, ...] = FOLLOWS if when is not None else ()
    if told.remedy == OF_TURNS:  # it grows with them, whichever is seen first
        explains, when = (*FOLLOWS, "looping"), None
    if told.fault in (INPUTS, NEVER):
        explains, when = OF_OTHERS_ROLLOUTS, told.since
    return measured(
        worst.p, because, worst.evidence, told.fault, explains=explains, brief=worst.brief, since=when,
        remedy=told.remedy,
    )  # fmt: skip


def _explanation(quantities: Quantities, measure: _Measure, seen: _Measure) -> Finding:
    """What explains the mismatch that `measure` shows; seen: what its course is read off."""
    return _dropped_by_length(quantities, measure.series.name) or signature(quantities, seen.sizes, seen.limit)


def _dropped_by_length(quantities: Quantities, name: str) -> Finding | None:
    """That a correction drops more as completions grow, while the mismatch of a token stays; None where it is not."""
    length = quantities.get("length", SHORT)
    sizes = next((series for each in _WITHOUT_SIGN if (series := quantities.column(each)) is not None), None)
    if not name.startswith("importance/") or length is None or sizes is None or len(sizes) < SHORT:
        return None
    early, late = (sizes.level(span).value for span in (EARLY, LATE))
    first, last = (length.level(span).value for span in (EARLY, LATE))
    if late > _STAYS * early or last < _LONGER * first:
        return None
    because = (
        f"the mismatch of a token stays ({quantities.went(sizes.name, early, late)}) while completions grow "
        f"({quantities.went(length.name, first, last)} tokens), as where the ratios of all tokens of a completion are "
        "multiplied, so that long ones are dropped"
    )
    return Finding("correction drops most", "possible", because=because, remedy=_OF_LENGTH)


_STAYS, _LONGER = 1.5, 1.5
"""Late over early mismatch of a token that stays, at most, and length of completions that grew, at least."""

_OF_LENGTH = (
    "correct by token, or by the geometric mean over a completion: neither falls with its length, as the product of "
    "all ratios of a completion does"
)
"""What to do where a correction drops long completions."""


def _falls_behind(quantities: Quantities) -> Finding | None:
    """That the logged staleness grows through the run, by medians of its quarters; else None. What it is in the first
    rows, while a queue fills, does not count."""
    for name in ("staleness/max", "staleness/mean"):
        series = quantities.column(name)
        if series is None or len(series) < SHORT:
            continue
        medians = [float(np.median(part)) for part in np.array_split(series.values, 4)]
        before, third, last = medians[1:]
        if not (last >= _BEHIND * before and last - before >= _VERSIONS and last > third >= before):
            continue
        low = np.flatnonzero(series.values <= min(medians[:2]))
        onset_row = int(low[-1]) + 1 if len(low) else 0
        step, key = int(series.steps[onset_row]), quantities.key(name)
        because = (
            f"{key} is {number(medians[0])} in the median row of the first quarter, {number(last)} in that of the "
            f"last, and above its first level since step {step:,}: rollouts are of weights ever more updates old"
            f"{_beyond_its_bound(quantities.run, last)}"
        )
        evidence = (Sign(f"{name}, median of the last quarter", last, limit=f"{number(before)} in the second",
                         column=name),)  # fmt: skip
        return fact(True, because, evidence, step, fault=LAG, remedy=_OF_BEHIND, grades=("warning", "warning"),
                    brief=quantities.went(name, series.level(EARLY).value, series.level(LATE).value))  # fmt: skip
    return None


def _beyond_its_bound(run: Run, last: float) -> str:
    """That a staleness is beyond the bound that a file beside the run sets, a clause; empty where it is not known."""
    settings = None if run.asked is None else run.asked.settings
    bound = None if settings is None else settings.number(_BOUND) if settings.says(_BOUND) else None
    if settings is None or bound is None or last <= bound:
        return ""
    return f"; {_BOUND} of {settings.source.name} is {bound:g}, so that this bound is not in force"


def _in_stretches(quantities: Quantities, distances: list[_Measure]) -> Finding | None:
    """That the mismatch grows RISEN × in each of several stretches of rows, and is back where it began after each."""
    for measure in distances:
        sizes = measure.sizes.values
        if not sizes.min() > 0 or np.max(sizes) < MATTERS * measure.limit:
            continue
        falls = np.flatnonzero(sizes[1:] * RISEN < sizes[:-1]) + 1
        stretches = [part for part in np.split(np.arange(len(sizes)), falls) if len(part) >= STRETCH]
        if len(falls) < DROPS or sum(len(part) for part in stretches) < 0.8 * len(sizes):
            continue
        grown = [float(np.median(sizes[part[-3:]]) / np.median(sizes[part[:3]])) for part in stretches]
        if min(grown) < RISEN or min(spearman(sizes[part], part.astype(float)) for part in stretches) < ORDERED:
            continue
        key, steps = quantities.key(measure.series.name), [int(measure.series.steps[row]) for row in falls]
        back = ", ".join(f"{step:,}" for step in steps[:4]) + (" …" if len(steps) > 4 else "")
        because = (
            f"{key} grows by {min(grown):.2g} × or more in each of {len(stretches)} stretches of rows and falls back "
            f"at once at steps {back}: something of the sampler stays as it was while weights are updated, and is made "
            "anew there, as prefixes are that were cached under earlier weights"
        )
        evidence = (Sign(f"falls of {measure.series.name} by {RISEN:g} × or more", float(len(falls)),
                         column=measure.series.name),)  # fmt: skip
        return fact(True, because, evidence, fault=UNEXPLAINED, remedy=OF_STRETCHES, grades=("warning", "warning"),
                    brief=f"{key} grows in {len(stretches)} stretches and is back after each")  # fmt: skip
    return None


def _spikes(quantities: Quantities, distances: list[_Measure]) -> Finding | None:
    """That the mismatch is within its limit but for rows in which it is SPIKE × the usual one; else None."""
    for measure in distances:
        sizes, usual = measure.sizes.values, float(np.median(measure.sizes.values))
        high = sizes > measure.limit
        if not high.any() or sizes[high].min() < SPIKE * max(usual, 0.0):
            continue  # a level, or one that rises
        count, rows = int(high.sum()), len(sizes)
        apart = int((high & ~np.append(False, high[:-1])).sum())
        if min(high[: rows // 2].sum(), high[rows // 2 :].sum()) < count / 5:
            continue  # a level that begins in the middle of the run
        if apart < FEW_SPIKES or count >= 2 * apart or not RARE * rows <= count <= rows / 2:
            continue
        name, key = measure.series.name, quantities.key(measure.series.name)
        median, largest = (float(pick(measure.series.values)) for pick in (np.median, np.max))
        because = (
            f"{key} is {number(median)} in the median row and beyond {_as_logged(measure):g} in {count} of {rows}, up "
            f"to {number(largest)}: in these rows single tokens or rollouts have wholly other probabilities in the "
            "trainer than in the sampler; weights that never arrive would make all rows grow"
        )
        evidence = (Sign(f"rows of {name} beyond its limit", float(count), column=name),)
        return fact(True, because, evidence, int(measure.series.steps[high][0]), fault=NUMERICS, remedy=OF_SPIKES,
                    grades=("note", "warning"), brief=f"{key} beyond its limit in {count} of {rows} rows")  # fmt: skip
    return None


def _stepped(quantities: Quantities, distances: list[_Measure]) -> Finding | None:
    """That the mismatch, within its limit, is STEPPED × what it was from one row on; else None."""
    for measure in distances:
        series = measure.series
        if not measure.sizes.values.min() > 0:
            continue
        row = at_once(np.log(measure.sizes.values), 1, clear=SPREADS)
        if row is None:
            continue
        before, after = (float(np.median(rows)) for rows in (series.values[:row], series.values[row:]))
        sizes = [float(np.median(rows)) for rows in (measure.sizes.values[:row], measure.sizes.values[row:])]
        if sizes[1] < STEPPED * sizes[0]:
            continue
        step, key = int(series.steps[row]), quantities.key(series.name)
        went = f"{key} goes from {number(before)} to {number(after)} at step {step:,}"
        because = (
            f"{went} and stays there, within its limit of {_as_logged(measure):g}: weights that arrive late would "
            "make it grow further; so it is where the computation changed (a version, a kernel, another "
            "rounding of FP8)"
        )
        evidence = (Sign(f"{series.name}, median from step {step:,} on", after, column=series.name),)
        return fact(True, because, evidence, step, fault=NUMERICS, remedy=OF_STEP, grades=("note", "note"), brief=went)
    return None


def _of_few_rows(quantities: Quantities) -> Finding | None:
    """That all of the first few rows, or all but the very first, are beyond the limit, of a distance whose first row
    says whether updates make it; else None, also where staleness is logged, which may be all of it."""
    if quantities.logged("staleness"):
        return None
    for name in _WITHOUT_SIGN:
        series = quantities.column(name)
        if series is None or not _FEWEST <= len(series) < SHORT:
            continue
        first, rest, key = float(series.values[0]), series.values[1:], quantities.key(name)
        if rest.min() <= FAR[name]:
            continue
        evidence = (Sign(f"{name}, least after the first row", float(rest.min()), limit=f"limit {FAR[name]:g}",
                         column=name),)  # fmt: skip
        went = quantities.went(name, first, float(series.values[-1]))
        if abs(first) < FAR[name] / GROWN:
            because = (
                f"{key} is {number(first)} in the first row and {number(rest.min())} to {number(rest.max())} in the "
                f"{len(rest)} rows after it: sampler and trainer agree until the first update, and then other weights "
                "draw than train: new ones do not reach the sampler, not all of them, or, where training is "
                "asynchronous, late"
            )
            return fact(True, because, evidence, fault=NEVER, brief=went, grades=("warning", "warning"))
        if first > FAR[name]:
            because = (
                f"{key} is {number(series.values.min())} to {number(series.values.max())} in all of {len(series)} "
                "rows, before the first update too: so it is not the weights that are late, and the temperature, the "
                "prompt, the template or the precision of sampler and trainer differ"
            )
            return fact(True, because, evidence, fault=UNEXPLAINED, brief=went, remedy=_OF_FIRST_ROW)
    return None


def _not_logged(quantities: Quantities) -> Finding:
    """That no mismatch is logged on enough rows."""
    return cannot_tell(quantities.absence("mismatch", SHORT), "mismatch")


def _logged(quantities: Quantities, names: tuple[str, ...]) -> list[MetricSeries]:
    columns = (quantities.column(name) for name in names)
    return [series for series in columns if series is not None and len(series) >= SHORT]


def _distance(series: MetricSeries, limit: float) -> _Measure:
    """Late size above its limit, by its own noise or by that of the whole run, or both GROWN × the early one and
    MATTERS of the limit."""
    values = series.values - 1 if series.name == "mismatch/mult_error" else series.values
    sign = -1.0 if series.name in ("mismatch/k1", "mismatch/log_ratio") and series.level(LATE).value < 0 else 1.0
    sizes = MetricSeries(series.name, series.steps, np.asarray(sign * values))
    late, whole = sizes.level(LATE, limit), sizes.level((0.0, 1.0), limit)
    far = min(1.0, 2 * min(late.p_up, whole.p_up if late.value > 0 else 1.0))
    grown = max(sizes.level(LATE, MATTERS * limit).p_up, sizes.change(EARLY, LATE, GROWN).p_up)
    return _Measure(series, sizes, limit, min(1.0, 2 * min(far, grown)), grown < far)


def _weights(quantities: Quantities) -> list[_Measure]:
    """What is left of the weight: the mean weight, the effective share, the shares kept."""
    measures = []
    for series in _logged(quantities, ("importance/ratio", "importance/weight")):
        high = series.level(LATE).value > 1
        sizes = series.values - 1 if high else 1 - series.values
        limit = HIGH - 1 if high else 1 - LOW
        measures.append(_above(series, sizes, limit, tests=2))
    for series in _logged(quantities, ("importance/ess",)):
        measures.append(_above(series, 1 - series.values, 1 - EFFECTIVE))
    for series in _logged(quantities, ("mismatch/correlation",)):
        measures.append(_above(series, 1 - series.values, 1 - CORRELATED))
    for series in _logged(quantities, ("importance/masked", "importance/masked_sequences")):
        measures.append(_above(series, series.values, LOST))
    return measures


def _above(series: MetricSeries, values: np.ndarray, limit: float, tests: int = 1) -> _Measure:
    sizes = MetricSeries(series.name, series.steps, values)
    return _Measure(series, sizes, limit, min(1.0, tests * sizes.level(LATE, limit).p_up))


def _result(quantities: Quantities, measure: _Measure) -> Finding:
    """The test of one column, in its own unit and by its own key."""
    series = measure.series
    first, last = series.level(EARLY), series.level(LATE)
    brief = quantities.went(series.name, first.value, last.value)
    limit = f"limit {_as_logged(measure):g}"
    if measure.grew:
        limit = f"limit {GROWN:g} × the first rows' {number(measure.sizes.level(EARLY).value)}"
    evidence = Sign(f"{series.name}, last {1 - LATE[0]:.0%}", last.value, last.se, limit, series.name)
    described = metric(series.name)
    because = f"{described.title} went from {first.value:.3g} to {last.value:.3g}"
    because += f" {described.unit}" if described.unit else ""
    return measured(measure.p, because, (evidence,), brief=brief)


def _as_logged(measure: _Measure) -> float:
    """The limit of a measure in the unit of its column."""
    name, late = measure.series.name, measure.series.level(LATE).value
    if name == "mismatch/mult_error":
        return 1 + measure.limit
    if name == "mismatch/correlation":
        return 1 - measure.limit
    if name.startswith("importance/") and "masked" not in name:
        return 1 + measure.limit if late > 1 else 1 - measure.limit
    return math.copysign(measure.limit, late) if name in ("mismatch/k1", "mismatch/log_ratio") else measure.limit


def _best_for_signature(distances: list[_Measure], measure: _Measure) -> _Measure:
    """The measure whose course is read: the one found, but a distance in place of a weight where one was found too."""
    if measure in distances:
        return measure
    flagged = [one for one in distances if one.p < 0.5]
    return min(flagged, key=lambda one: one.p) if flagged else measure


def _fine(quantities: Quantities, distances: list[_Measure], worst: Finding) -> Finding:
    """Nothing found; it cannot be told where all that is logged comes after a cap or mask."""
    whole = [measure for measure in distances if measure.series.name not in AFTER]
    if whole or quantities.column("importance/ratio") is not None:
        return measured(worst.p, worst.because, worst.evidence)
    because = f"{worst.because}; the log has only values after a cap or mask, which hides large ratios"
    return cannot_tell(because, "mismatch")


TEST = LogTest(
    "sampler mismatch",
    _check,
    needs=("mismatch",),
    statistic="late mismatch against its limit and the early one; late mean weight, effective share and share masked",
    threshold=f"k3 > {K3_FAR:g}, |mean log ρ| or mean |log ρ| > {ABS_FAR:g}, error > {1 + ERROR_FAR:g}, difference > "
    f"{DIFFERENCE_FAR:g}, or > {GROWN:g} × early; correlation < {CORRELATED:g}; mean weight outside {LOW:g} to "
    f"{HIGH:g}, effective share < {EFFECTIVE:g}, > {LOST:g} masked; or {SPIKE:g} × the median and "
    f"beyond the limit in {RARE:.0%} of the rows, or {RISEN:g} × in each of {DROPS + 1} stretches or more, facts",
)


FARTHER = 30.0
"""Late over early KL to the policy that sampled, at least."""

FOLLOWED = 1.5
"""Late over early share of clipped tokens, at least; of gradient norms where no clipping is logged, its square."""

EXPLAINS = (
    "gradient explosion", "clip saturation", "gradient spikes", "no learning", "reward decline", "high learning rate",
)  # fmt: skip
"""Faults that follow from an update on the rollouts of an old policy."""


def _departs(quantities: Quantities, fault: str) -> Finding | None:
    """That the updates depart from the sampler while the reward stands still; None where one of these is not so."""
    kl, reward = quantities.get("kl_old", LEAST), quantities.get("reward", LEAST)
    if kl is None or reward is None or run_outcome.of_run(quantities.run).direction == "up":
        return None
    course = MetricSeries(kl.name, kl.steps, np.abs(kl.values)).logs
    followed = _followed(quantities)
    if course is None or followed is None or not stands(reward):
        return None
    p = course.change(EARLY, LATE, minus=math.log(FARTHER)).p_up
    if p >= 0.5:
        return None
    first, last = math.exp(course.level(EARLY).value), math.exp(course.level(LATE).value)
    went = quantities.went(kl.name, first, last)
    because = (
        f"{went} nats per token, and {followed}, while the reward stands still: updates go ever farther from the "
        "policy that drew their batch, as when the sampler never receives new weights"
    )
    times = f"{kl.name}, last {1 - LATE[0]:.0%} over first {EARLY[1]:.0%}"
    evidence = Sign(times, last / first, limit=f"counts from {FARTHER:g} ×", column=kl.name)
    return measured(p, because, (evidence,), fault, explains=EXPLAINS, brief=went)


def _followed(quantities: Quantities) -> str | None:
    """That clipping grew with it, or gradient norms where it is not logged, as a clause; None where it did not."""
    clipped, norm = quantities.get("clip", LEAST), quantities.get("grad_norm", LEAST)
    series, times = (clipped, FOLLOWED) if clipped is not None else (norm, FOLLOWED**2)
    if series is None or series.change(EARLY, LATE, times).p_up > 0.05:
        return None
    return quantities.went(series.name, series.level(EARLY).value, series.level(LATE).value)
