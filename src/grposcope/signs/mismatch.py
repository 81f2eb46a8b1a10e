"""How the policy that sampled comes to differ from the one that trains: the signatures that a log can tell apart.

Method of this project; no publication. Sizes (n,) of the mismatch are put beside the staleness and beside
learning rate × steps, both where they are logged.

- A floor is there from the first step: numerics, FP8, a temperature other than 1 where the settings have one, other
  inputs where it is more than these make, or a truncated sampler. A sampler that draws from the share m of
  the trainer's mass, with probabilities divided by m, has ρ = π_trainer/π_sampler = m on every token, so that
  mean log ρ = log of mean ρ = log m; otherwise the mean of ρ is 1. Of mean ρ, k1 and k3 two give the third, as
  mean ρ = 1 + k3 − k1 exactly.
- With staleness it grows where the staleness grows, and they rise and fall together.
- A jump fits the logarithm of the sizes better as two levels than as any growth, and most of it is made at one step.
- Where the learning rate is 0 in every row no weight moves: what grows is in the rows that the trainer scores, or in
  the sampler.
- A sampler whose weights are never renewed is at the distance that training has gone: a power of Σ learning rate, from
  the first row on.
  So it is too where the trained policy goes far while what is sampled stays as it was, and where there is none before
  the first update and it then follows the KL to the start.
- Any other growth is not explained.
"""

from __future__ import annotations

import math

import numpy as np

from grposcope.core.finding import Finding, Interval, at
from grposcope.core.text import number
from grposcope.maths.timeseries.change import EARLY, EDGE, LATE
from grposcope.maths.timeseries.level import rows
from grposcope.maths.timeseries.noise import Array
from grposcope.signs import onset, run_outcome
from grposcope.signs.moves_alone import distance, moves_alone
from grposcope.signs.quantities import LEAST, SHORT, MetricSeries, Quantities

INPUTS = "inputs differ"
NUMERICS, TRUNCATED, LAG = "sampler numerics differ", "truncated sampler", "growing lag"
HEATED = "sampler temperature differs"
REPLACED, NEVER, UNEXPLAINED = "wrong weights at the sampler", "weights never arrived", "sampler mismatch"
"""The faults that the course of the mismatch tells apart."""

GREW = 3.0
"""Late over early size above which mismatch grew; below, it is a floor."""

SMALLEST = 1e-3
"""Share of the limit below which sizes are taken as this share, so that logarithms exist."""

ONE_SIDED = 0.5
"""Share of the mean log ratio that the log of the mean ratio makes up in a truncated sampler: 1 where the mass cut off
is the same for every token, 0 where the sampler can draw all that the trainer can."""

WARM = 0.02
"""Distance of a temperature from 1 at which log-probabilities before it are others than those after it."""

PROCESSED = (
    "have the sampler return log-probabilities after its temperature (vLLM: logprobs_mode processed_logprobs), and "
    "divide the trainer's logits by the same; then draw one batch at a temperature of 1: what is left is numerics"
)
"""What to do about a mismatch from the first step at another temperature than 1."""

CUT = 0.02
"""Mass that a truncated sampler cuts off, at least, to be named."""

LAGS = 0.5
"""Versions of lag, on average, from which rollouts are those of older weights."""

OF_LAG = (
    "draw one batch with the trainer's own weights: mismatch that is gone then is of the lag; allow less of it, lower "
    "the learning rate, or take a loss that bounds the ratio (clipped, or truncated importance weights) in place of "
    "one that does not; mismatch that stays is of numerics: sample that batch in the trainer's own precision"
)
"""What to do about mismatch that grows at a lag that stays."""

LONGER = 1.5
"""Late over early length of completions from which the sampler's numbers may go wrong with the length."""

OF_TURNS = (
    "score a rollout of several turns token by token in the trainer, and see which tokens differ from the sampler's: "
    "those of tools and of the template are no actions and have to be masked in the loss; where the policy's own "
    "differ behind the first turn, the turns were encoded anew: keep the token ids that were sampled"
)
"""What to do about mismatch that grows with the turns of a rollout."""

OF_LONG_TEXTS = (
    "sample one batch in the trainer's own precision and compare short completions with long ones: mismatch of the "
    "long ones alone is of the sampler's attention (vLLM, where its cascade attention is wrong on long prefixes: "
    "disable_cascade_attn); mismatch of all that is gone in that precision is of numerics, which training makes worse: "
    "weigh by a capped ratio (truncated importance sampling)"
)
"""What to do about mismatch that grows beside the length."""

STALER = 1.5
"""Late over early staleness above which the staleness grew."""

COMPARE = (
    "compare what the sampler was given before that step and after it: temperature and top-p, precision, the template "
    "of the prompts, and a checksum of its weights"
)
"""What to do about a jump that stays."""

AT_ONCE, BESIDE = 1 / 3, 3
"""Share of the rise between two levels that a jump makes at one step, at least, by means of so many rows on either side
of it; of a rise that takes 25 rows it is a seventh."""

SCORED = (
    "see that every log-probability of the sampler stands beside the tokens that it is of: compare one rollout's ids "
    "and both its log-probabilities, early and late"
)
"""What to do about mismatch that grows although no weight moves."""

STAYS = 1.5
"""Later over earlier size after a jump up to which it stays at its level."""

TOGETHER = 0.5
"""Rank correlation of mismatch and staleness above which they move together."""

BEYOND = {
    "mismatch/k3": 0.1, "mismatch/k2": 0.1, "mismatch/k1": 0.2, "mismatch/abs": 0.4, "mismatch/mult_error": 0.5,
    "mismatch/prob_diff": 0.1, "mismatch/correlation": 0.1,
}  # fmt: skip
"""Nats per token from which a distance is more than numerics make: FP8 was seen to reach a mean |log ρ| of 0.27, of
which k3 is 0.06 where log ratios are normal. Of the multiplicative error, less 1, what a |log ρ| of 0.4 makes. Of the
mean difference of probabilities, and of their correlation below 1, more than it makes: noise in the logits that makes
it leaves a correlation of 0.93 to 0.97 and a difference of 0.04 to 0.08, at entropies of 1 to 2.3 nats (simulated)."""

POWERS = (0.3, 3.0)
"""Exponents of Σ learning rate with which the mismatch to frozen weights may grow: 1/2 to 1 for log ratios, 1 to 2 for
KL, with room for noise."""

EVENLY, BENT, TREND = 0.95, 0.03, 3.0
"""Share of the variance of the sizes that a level and a line from one row on explain, where the sampler stays as it was
there; by how much one line explains less; and the t value of a slope of what is sampled."""

PLACES = 200
"""Rows, at most, from which on the mismatch may grow that are tried."""

OF_STOPPED = (
    "find what happened at that step (a server that was restarted, a transfer that failed without a word, a lock that "
    "stayed), and check that new weights reach the sampler: compare checksums of the weights, or greedy samples"
)
"""What to do where weights no longer reach the sampler."""

AT_START, WITH_DISTANCE = 0.05, 0.4
"""First over median mismatch up to which there was none before the first update, where numerics would make as much;
and the rank correlation with the KL to the start from which the sampler stays behind at that start."""

FOLLOWS = 0.7
"""Share of the variance of the log sizes that such a power explains, at least."""


def signature(quantities: Quantities, sizes: MetricSeries, limit: float) -> Finding:
    """The fault that explains mismatch of these sizes (n,), negative by noise only; limit: the size that is too far."""
    early, late = sizes.level(EARLY).value, sizes.level(LATE).value
    if quantities.get("staleness", SHORT) is None and (said := _follows_distance(quantities, sizes)):
        return _explained(NEVER, said)
    if late <= GREW * max(early, SMALLEST * limit):
        return _floor(quantities, sizes, early)
    if _stands_still(quantities):
        return _explained(
            INPUTS,
            "it grows although the learning rate is 0 in every row, so that no weight moves: the trainer scores other "
            "rows or prompts than were sampled, or the sampler itself drifts",
            remedy=SCORED,
        )
    staleness = quantities.get("staleness", SHORT)
    if staleness is not None and follows_staleness(sizes, staleness):
        first, last = staleness.level(EARLY).value, staleness.level(LATE).value
        went = quantities.went(staleness.name, first, last)
        return _explained(LAG, f"it grows with the staleness of the weights ({went} versions)")
    course = logs(sizes, limit)
    travelled = np.log(_travelled(quantities, sizes.steps))
    of_jump = two_levels(course.values)
    exponent, of_power = straight(travelled, course.values)
    of_growth = max(of_power, straight(sizes.steps, course.values)[1])
    if staleness is None and (said := moves_alone(quantities)):
        return _explained(NEVER, f"it grows from the first step, and {said}")
    if of_jump > of_growth and _jumps(course.values):
        return _jump(quantities, sizes, onset.since(course, 1))
    if of_power >= max(FOLLOWS, of_growth) and POWERS[0] < exponent < POWERS[1]:
        return _frozen(quantities, staleness, exponent)
    if staleness is None and straight(np.exp(travelled), sizes.values)[1] > FOLLOWS and _gains_nothing(quantities):
        return _explained(
            NEVER,
            "it grows in step with the learning rate × steps while the reward gains nothing, as when the sampler never "
            f"receives new weights; {_lag(quantities, staleness)}",
        )
    if staleness is None and (stopped := _stopped(quantities, sizes, travelled)) is not None:
        return stopped
    return _unexplained(quantities, staleness)


def _follows_distance(quantities: Quantities, sizes: MetricSeries) -> str:
    """That there is no mismatch (n,) before the first update, and that from there on it goes with the KL to
    the start, or is BEYOND, while the reward gains nothing, as a clause; empty where it is not so."""
    kl, rest = distance(quantities), sizes.values[1:]
    typical = float(np.median(rest))
    if sizes.values[0] > AT_START * typical or not _gains_nothing(quantities):
        return ""
    far, beside = typical > BEYOND.get(sizes.name, math.inf), ""
    if kl is not None:
        _, mine, theirs = np.intersect1d(sizes.steps[1:], kl.steps, return_indices=True)
        if len(mine) >= LEAST and spearman(rest[mine], kl.values[theirs]) > WITH_DISTANCE:
            beside = f", which go with {quantities.key(kl.name)}"
    if not (far or beside):
        return ""
    return (
        f"it is {number(float(max(sizes.values[0], 0.0)))} in the first row and {number(typical)} in the middle one of "
        f"the others{beside}, while the reward gains nothing, as when the sampler keeps its first weights; "
        f"{_lag(quantities, None)}"
    )


def _stopped(quantities: Quantities, sizes: MetricSeries, travelled: Array) -> Finding | None:
    """That the mismatch is level up to a row and grows from there on in step with Σ learning rate (n,), while the
    reward and the length of what is sampled stay as they were there; None where it is not so."""
    values, away, n = sizes.values, np.exp(travelled), len(sizes)
    if sizes.name in ("mismatch/k3", "mismatch/k2"):  # as the square of the distance
        values = np.sqrt(np.maximum(values, 0.0))
    total = float(((values - values.mean()) ** 2).sum())
    places = range(n // 10, n - max(n // 5, SHORT), max(n // PLACES, 1))
    if total <= 0 or not places:
        return None
    explained = [straight(np.maximum(away - away[place], 0.0), values)[1] for place in places]
    best = int(np.argmax(explained))
    row = places[best]
    before, after = values[:row], values[row:]
    if explained[best] < EVENLY or straight(away, values)[1] > explained[best] - BENT:
        return None
    if np.median(after[-SHORT:]) < GREW * np.median(before) or straight(away[row:], after)[1] < EVENLY - BENT:
        return None
    step, sampled = int(sizes.steps[row]), [quantities.get(name, SHORT) for name in ("reward", "length")]
    late = [series.values[series.steps > step] for series in sampled if series is not None]
    if len(late) < 2 or any(len(values) < SHORT or _trends(values) for values in late):
        return None
    because = (
        f"it is level up to step {step:,} and grows from there on in step with the learning rate × steps, while the "
        "reward and the length of what is sampled stay as they were there, as when new weights no longer reach the "
        f"sampler; {_lag(quantities, None)}"
    )
    return _explained(NEVER, because, at(step), OF_STOPPED)


def _trends(values: Array) -> bool:
    """Whether values (n,) have a slope beyond their noise."""
    slope, explained = straight(np.arange(float(len(values))), values)
    return bool(explained * (len(values) - 2) > TREND**2 * (1 - explained)) and slope != 0


def _gains_nothing(quantities: Quantities) -> bool:
    """Whether the training reward is flat, or at least shows no gain, and did not fall."""
    outcome = run_outcome.of_reward(quantities)
    return outcome.fate == "flat" or (bool(outcome.no_gain) and outcome.direction != "down")


def logs(sizes: MetricSeries, limit: float) -> MetricSeries:
    """Logarithms of sizes (n,), those far below the limit taken as SMALLEST of it."""
    return MetricSeries(sizes.name, sizes.steps, np.log(np.maximum(sizes.values, SMALLEST * limit)))


def follows_staleness(sizes: MetricSeries, staleness: MetricSeries) -> bool:
    """Whether the staleness grew, and mismatch and staleness rise and fall together."""
    early, late = staleness.level(EARLY), staleness.level(LATE)
    grew = late.value > STALER * early.value and staleness.change(EARLY, LATE).p_up < 0.05
    _, a, b = np.intersect1d(sizes.steps, staleness.steps, return_indices=True)
    if not grew or len(a) < SHORT:
        return False
    return spearman(sizes.values[a], staleness.values[b]) > TOGETHER


def spearman(x: Array, y: Array) -> float:
    """Correlation of the ranks of x and y (n,), ties at their mean rank; 0 where either is constant.

    As that of `scipy.stats`, whose import takes a third of a second.
    """
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(np.corrcoef(_mean_ranks(x), _mean_ranks(y))[0, 1])


def _mean_ranks(y: Array) -> Array:
    _, which, counts = np.unique(y, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[which])


def two_levels(y: Array) -> float:
    """R² of two levels for y (n,) at the best split, EDGE rows or more from the ends."""
    total = float(((y - y.mean()) ** 2).sum())
    splits = range(EDGE, len(y) - EDGE + 1)
    between = [k * (len(y) - k) / len(y) * (y[:k].mean() - y[k:].mean()) ** 2 for k in splits]
    return float(max(between)) / total if total > 0 else 0.0


def _jumps(y: Array) -> bool:
    """Whether a rise of y (n,) between two levels is made at once, by AT_ONCE or more of it at one step."""
    sums = np.convolve(y, np.ones(BESIDE), "valid") / BESIDE
    steps = sums[BESIDE:] - sums[:-BESIDE]
    early, late = y[rows(len(y), EARLY)], y[rows(len(y), LATE)]
    return bool(len(steps) and steps.max() >= AT_ONCE * (late.mean() - early.mean()))


def straight(x: Array, y: Array) -> tuple[float, float]:
    """(slope, R²) of a straight line through y (n,) over x (n,); zeros where either is constant."""
    x, y = x - x.mean(), y - y.mean()
    if not x.any() or not y.any():
        return 0.0, 0.0
    slope = float(x @ y / (x @ x))
    return slope, slope * float(x @ y) / float(y @ y)


def mean_ratio(quantities: Quantities) -> tuple[float, float] | None:
    """Late (mean ρ, size of log ρ), from two of mean ρ, k1 and k3 or from mean ρ and |log ρ|; None if not logged."""
    late = {
        name: _late(quantities, name) for name in ("importance/ratio", "mismatch/k1", "mismatch/k3", "mismatch/abs")
    }
    ratio, k1, k3, size = late.values()
    if k1 is not None and k3 is not None:
        return 1 + k3 - k1, k1
    if ratio is not None and (k1 is not None or k3 is not None):
        return ratio, k1 if k1 is not None else 1 + (k3 or 0.0) - ratio
    return (ratio, size) if ratio is not None and size is not None else None


def _late(quantities: Quantities, name: str) -> float | None:
    series = quantities.column(name)
    return float(series.values[rows(len(series), LATE)].mean()) if series is not None and len(series) >= SHORT else None


def _stands_still(quantities: Quantities) -> bool:
    """Whether the learning rate is logged and 0 in every row."""
    rate = quantities.get("lr", SHORT)
    return rate is not None and not rate.values.any()


def _travelled(quantities: Quantities, steps: Array) -> Array:
    """Σ of the learning rate up to each of the steps (n,), or the rows so far where it is not logged or always 0."""
    rate = quantities.get("lr", SHORT)
    count = np.arange(1.0, len(steps) + 1)
    if rate is None or rate.values.max() <= 0:
        return count
    total = np.interp(steps, rate.steps, np.cumsum(rate.values))
    return np.maximum(total, float(total.max()) / len(steps) ** 2)


def _explained(fault: str, because: str, since: Interval | None = None, remedy: str = "") -> Finding:
    """A fault with the reason that the course of the mismatch gives for it."""
    return Finding(fault, "possible", because=because, since=since, remedy=remedy)


def _floor(quantities: Quantities, sizes: MetricSeries, early: float) -> Finding:
    """There from the first step: a truncated sampler where mean ρ shows it; where it is beyond numerics other inputs,
    else numerics. early: the size at first, before the policy became sharp."""
    known = mean_ratio(quantities)
    sizes, early = _farthest(quantities, sizes, early)
    beyond = BEYOND.get(sizes.name)
    if beyond is not None and early > beyond and not (known is not None and _is_truncated(*known)):
        less = f"at {_size(sizes, early)}, and numerics (FP8 among them) make less than {_size(sizes, beyond)}"
        if sizes.name == "mismatch/correlation":
            less = f"at a correlation of {1 - early:.2g}, and numerics (FP8 among them) leave more than {1 - beyond:g}"
        return _explained(
            INPUTS,
            f"it is present from the first step, {less}: sampler and trainer do not read the same tokens, template or "
            "image, or hold other weights",
        )
    drawn_at = quantities.run.setting("temperature")
    heated = isinstance(drawn_at, int | float) and drawn_at > 0 and abs(drawn_at - 1) > WARM
    if heated and not (known is not None and _is_truncated(*known)):
        return _explained(
            HEATED,
            f"it is present from the first step, and rollouts are drawn at a temperature of {drawn_at:g}: so it is "
            "where the sampler's log-probabilities are those before its temperature, or the trainer leaves it out; "
            "numerics and FP8 are not excluded",
            remedy=PROCESSED,
        )
    if known is None:
        also = "" if drawn_at == 1 else ", a temperature that only one of both applies,"
        return _explained(
            NUMERICS,
            f"it is present from the first step; the log does not show whether numerics, FP8{also} or top-k/top-p "
            "sampling causes it",
        )
    ratio, size = known
    if _is_truncated(ratio, size):
        return _explained(
            TRUNCATED,
            f"it is present from the first step and always has the same sign (mean ρ {ratio:.2g}, mean |log ρ| "
            f"{size:.2g}): the sampler truncates with top-k or top-p, or returns log-probabilities computed after "
            "truncation",
        )
    return _explained(
        NUMERICS,
        f"it is present from the first step, with mean ρ {ratio:.3g}: numerics differ (FP8, other kernels, other "
        "routing)",
    )


def _farthest(quantities: Quantities, sizes: MetricSeries, early: float) -> tuple[MetricSeries, float]:
    """The sizes (n,) and the early one; those of the correlation of probabilities where it alone is beyond numerics."""
    correlation = quantities.column("mismatch/correlation")
    if early > BEYOND.get(sizes.name, math.inf) or correlation is None or len(correlation) < SHORT:
        return sizes, early
    below = MetricSeries(correlation.name, correlation.steps, 1 - correlation.values)
    first = below.level(EARLY).value
    return (below, first) if first > BEYOND[below.name] else (sizes, early)


def _size(sizes: MetricSeries, value: float) -> str:
    """A size of mismatch in its unit; a multiplicative error, of which sizes are less 1, as it is logged."""
    if sizes.name == "mismatch/prob_diff":
        return f"{value:.2g} of probability"
    return f"{value + 1:.2g}" if sizes.name == "mismatch/mult_error" else f"{value:.2g} nats per token"


def _is_truncated(ratio: float, size: float) -> bool:
    """Whether mean ρ, beside this size of log ρ, is that of a sampler that cannot draw every token."""
    return ratio < 1 - CUT and -math.log(max(ratio, 1e-9)) > ONE_SIDED * size


def _jump(quantities: Quantities, sizes: MetricSeries, since: Interval | None) -> Finding:
    """Other weights, where the trainer was restarted or the sizes grow on after the jump; a level that stays is as well
    made by another temperature, precision or prompt."""
    when = "" if since is None else f" at step {since.step:,}"
    if since is not None and not quantities.run.segments:
        after = sizes.values[sizes.steps > since.last]
        first, rest = np.median(after[: len(after) // 2 or 1]), np.median(after[len(after) // 2 :])
        if len(after) < SHORT or rest <= STAYS * first:
            return _explained(
                UNEXPLAINED,
                f"it jumped{when} and stays there, with no restart in the log: from that step on the sampler has "
                "another temperature, precision or prompt than the trainer, or other weights",
                since,
                COMPARE,
            )
    because = f"it jumped{when}, as when a resumed or restarted sampler loads the wrong weights"
    return _explained(REPLACED, because, since)


def _lag(quantities: Quantities, staleness: MetricSeries | None) -> str:
    """That the lag does not explain it, or that it is not logged."""
    if staleness is None:
        return "the log does not measure staleness, so lag is possible"
    level = staleness.level(LATE).value
    return f"{quantities.key(staleness.name)} stays at {level:.2g} versions"


def _frozen(quantities: Quantities, staleness: MetricSeries | None, exponent: float) -> Finding:
    return _explained(
        NEVER,
        f"it grows from the first step as (learning rate × steps)^{exponent:.1g}, as when the sampler "
        f"never receives new weights; {_lag(quantities, staleness)}",
    )


def _unexplained(quantities: Quantities, staleness: MetricSeries | None) -> Finding:
    if staleness is not None and staleness.level(LATE).value >= LAGS:
        return _explained(
            UNEXPLAINED,
            f"it grows, and nothing in the log explains it; {_lag(quantities, staleness)}: the same lag makes more of "
            "it the farther each step moves the policy, and numerics are not excluded",
            remedy=OF_LAG,
        )
    length, turns = quantities.get("length", SHORT), quantities.get("agent/turns", SHORT)
    because = f"it grows, and nothing in the log explains it; {_lag(quantities, staleness)}"
    if turns is not None and turns.level(LATE).value > LONGER * turns.level(EARLY).value:
        went = quantities.went(turns.name, turns.level(EARLY).value, turns.level(LATE).value)
        return _explained(UNEXPLAINED, f"{because}; turns grew meanwhile ({went})", remedy=OF_TURNS)
    if length is not None and length.level(LATE).value > LONGER * length.level(EARLY).value:
        went = quantities.went(length.name, length.level(EARLY).value, length.level(LATE).value)
        return _explained(UNEXPLAINED, f"{because}; completions grew meanwhile ({went} tokens)", remedy=OF_LONG_TEXTS)
    return _explained(UNEXPLAINED, because)
