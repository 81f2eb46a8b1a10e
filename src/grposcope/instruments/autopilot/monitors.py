"""Monitors of a run that may be looked at after every batch, with their chance of ever being wrong.

**A fall.** Let b be a lower limit of the best level so far: over some batches in a row, the mean of the values of
prompts, less three standard errors. Whenever b has risen, a new null hypothesis begins, fixed by what was seen until
then: *from here on the mean of each batch, given all before it, is at least b − δ*. Bets against it (`maths.betting`)
are summed over all these hypotheses with weights 1/(k(k + 1)), so that under all of them the sum ever reaches 1/α with
a probability of at most α, however long the run. δ is the policy's share of the range of values, or 30 % of what has
been reached above its lower end, if that is less. Values are clipped to the range seen before the hypothesis began.
That is a theorem for prompts that are drawn alike and independently in each batch. A run whose true level wanders by
more than δ is not such a run: how often a sound training is called back is measured, in experiments/autopilot.md.

**Held-out accuracy.** Each evaluation is tested against b − δ of the ones before, and its evidence has the weight
1/(k(k + 1)). The problems are mostly the same each time, which makes a fall by chance rarer than by new ones.

**Completions cut, groups dead.** *In each batch at most half of the completions are expected to be cut at the limit*,
and *at most 94 % of the groups to have equal rewards below the highest seen*. A diagnosis looks at the end of a run,
these at all of it: on its way a sound run passes through shares that would be too much at its end. So each limit has
ODDS times the odds of the limit of the fault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import Estimate
from grposcope.faults.length import length
from grposcope.faults.record.non_finite import LASTING
from grposcope.maths import betting
from grposcope.maths.betting import FRACTIONS, Bets
from grposcope.signs import dead_groups, onset

Floats = NDArray[np.float64]

WINDOW = 8
"""Batches in a row whose mean is a level, more where they hold fewer than ENOUGH values, up to LONGEST."""

LONGEST, ENOUGH, LEAST = 24, 48, 24
"""Most batches of a level; values that are enough for one; values it needs."""

SURE = 3.0
"""Standard errors that the best level is lowered by."""

REACHED = 0.3
"""Largest δ as a share of what was reached."""

WANDERS, PAST = 2.0, 48
"""Standard deviations of the wandering of the last PAST batches that a level may fall by beside δ."""

RISE = 0.02
"""Share of the range that the best level has to rise by before another hypothesis begins."""

KEPT = 1000
"""Batches whose means are kept, to say when a fall began."""

ODDS = 3.0
"""Odds of a share that a bet allows in each batch, over those of the share that is too much at the end of a run."""


def _in_each_batch(share: float) -> float:
    """The share that is allowed in each batch, where at the end of a run `share` is too much: ODDS times its odds."""
    return ODDS * share / (1 - share + ODDS * share)


CUT, DEAD = _in_each_batch(length.CUT), _in_each_batch(dead_groups.DEAD)
"""Shares of cut completions and of dead groups that are not yet too many: 1/2 and 0.944."""


NOT_FINITE = LASTING
"""Optimiser steps in a row whose gradient is not finite."""


@dataclass
class Hypothesis:
    """From after `step` on the mean is at least `limit`: `level` less what it may fall.

    low, high: range that values are clipped to. bets: against it.
    """

    step: int
    level: float
    limit: float
    low: float
    high: float
    bets: Bets = field(default_factory=Bets)

    def take(self, values: Floats) -> None:
        """Bet on further values."""
        scale = self.high - self.low
        shares = np.clip((values - self.low) / scale, 0, 1)
        self.bets.take(shares, (self.limit - self.low) / scale)

    @property
    def log_e(self) -> float:
        """Evidence against it."""
        return self.bets.log_e


@dataclass
class Fall:
    """Whether the mean of batches has fallen. fall: δ as a share of the range.

    batches: step, number of values, mean, and variance of the values, of each. low, high: range seen.
    """

    fall: float
    batches: list[tuple[int, int, float, float]] = field(default_factory=list)
    low: float = math.inf
    high: float = -math.inf
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def take(self, step: int, values: Floats) -> float:
        """Look at the values (P,) of a batch; the evidence log e so far. Values that are not finite are left out."""
        values = values[np.isfinite(values)]
        if len(values):
            for hypothesis in self.hypotheses:
                hypothesis.take(values)
            self.batches = [*self.batches, (step, len(values), float(values.mean()), float(values.var()))][-KEPT:]
            self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
            self._begin(step)
        return self.log_e

    @property
    def log_e(self) -> float:
        """Logarithm of the evidence that the mean fell below one of the limits."""
        count = len(self.hypotheses)
        logs = [hypothesis.log_e for hypothesis in self.hypotheses]
        weights = [betting.share(number) for number in range(1, count + 1)]
        return betting.log_average(np.array([*logs, 0.0]), np.array([*weights, 1 / (count + 1)]))

    @property
    def worst(self) -> Hypothesis | None:
        """The hypothesis that most speaks against; None before the first."""
        return max(self.hypotheses, key=lambda hypothesis: hypothesis.log_e, default=None)

    def _begin(self, step: int) -> None:
        level = _lower_limit(_recent(self.batches))
        scale = self.high - self.low
        if math.isnan(level) or scale <= 0:
            return
        drop = min(self.fall * scale, REACHED * (level - self.low))
        limit = level - drop - WANDERS * _wandering(self.batches[-PAST:])
        least = self.hypotheses[-1].limit + RISE * scale if self.hypotheses else self.low
        if self.low < limit < self.high and limit >= least:
            self.hypotheses.append(Hypothesis(step, level, limit, self.low, self.high))

    def onset(self) -> int:
        """The step of the batch with which the fall began; -1 where nothing speaks for one."""
        hypothesis = self.worst
        if hypothesis is None or not self.batches or self.batches[-1][0] <= hypothesis.step:
            return -1
        steps, _, means, _ = (np.array(column, np.float64) for column in zip(*self.batches, strict=True))
        since = onset.between(steps, means, -1)
        return -1 if since is None else since.step

    def mean(self, first: int, last: float = math.inf) -> Estimate:
        """The mean over the batches from step `first` to `last`, both included."""
        return level_of([batch for batch in self.batches if first <= batch[0] <= last])


def level_of(batches: Sequence[tuple[int, int, float, float]]) -> Estimate:
    """The mean of the values of these batches, with its standard error."""
    total = sum(count for _, count, _, _ in batches)
    if total < 2:
        return Estimate(math.nan, math.nan, total)
    mean = sum(count * value for _, count, value, _ in batches) / total
    spread = sum(count * (own + (value - mean) ** 2) for _, count, value, own in batches) / total
    return Estimate(mean, math.sqrt(spread / (total - 1)), total)


def _wandering(batches: Sequence[tuple[int, int, float, float]]) -> float:
    """Standard deviation with which the level of batches wanders around a straight line, beyond what the prompts of a
    batch make; 0 for fewer than WINDOW batches, and where none is left."""
    if len(batches) < 2 * WINDOW:
        return 0.0
    _, counts, means, variances = (np.array(column, np.float64) for column in zip(*batches, strict=True))
    places = np.arange(len(means)) - (len(means) - 1) / 2
    rest = means - means.mean() - places * float(places @ means) / float(places @ places)
    own = float((rest**2).sum()) / (len(rest) - 2)
    return math.sqrt(max(0.0, own - float((variances / np.maximum(counts - 1, 1)).mean())))


def _recent(batches: Sequence[tuple[int, int, float, float]]) -> Sequence[tuple[int, int, float, float]]:
    """The last batches that make a level."""
    count = min(WINDOW, len(batches))
    while count < min(LONGEST, len(batches)) and sum(n for _, n, _, _ in batches[-count:]) < ENOUGH:
        count += 1
    return batches[-count:] if count else []


def _lower_limit(batches: Sequence[tuple[int, int, float, float]]) -> float:
    """The level of these batches less SURE standard errors; NaN for fewer than LEAST values."""
    level = level_of(batches)
    return level.value - SURE * level.se if level.n >= LEAST else math.nan


@dataclass
class HeldoutFall:
    """Whether held-out accuracy has fallen. fall: δ. log_e: of all evaluations so far. best: lower limit so far.

    evaluations: step, value, standard error and number of problems of each. reference: the best one of before the
    monitor began anew, None where it did not: weights that were put back have to be as good as they were.
    """

    fall: float
    log_e: float = -math.inf
    best: float = -math.inf
    best_step: int = -1
    evaluations: list[tuple[int, float, float, int]] = field(default_factory=list)
    reference: tuple[int, float, float, int] | None = None

    def anew(self) -> HeldoutFall:
        """The monitor without its evidence, against the same best level."""
        return HeldoutFall(self.fall, best=self.best, best_step=self.best_step, reference=self._highest(self._known))

    @property
    def _known(self) -> list[tuple[int, float, float, int]]:
        """All evaluations that count, the reference first."""
        return [*([self.reference] if self.reference is not None else []), *self.evaluations]

    @staticmethod
    def _highest(
        evaluations: Sequence[tuple[int, float, float, int]],
    ) -> tuple[int, float, float, int] | None:
        """The one with the highest lower limit; None of none."""
        return max(evaluations, key=lambda evaluation: evaluation[1] - SURE * evaluation[2], default=None)

    def take(self, step: int, estimate: Estimate) -> float:
        """Look at an accuracy in [0, 1]; the evidence log e so far."""
        if not (math.isfinite(estimate.value) and math.isfinite(estimate.se)) or not 0 <= estimate.value <= 1:
            return self.log_e
        limit = self.limit
        number = len(self.evaluations) + 1
        if math.isfinite(limit) and 0 < limit < 1:
            factors = _log_factors_of_mean(estimate.value, estimate.n, limit)
            own = betting.log_average(factors)
            self.log_e = float(np.logaddexp(self.log_e, math.log(betting.share(number)) + own))
        self.evaluations.append((step, estimate.value, estimate.se, estimate.n))
        lowest = estimate.value - SURE * max(estimate.se, 0.5 / max(estimate.n, 1))
        if lowest > self.best:
            self.best, self.best_step = lowest, step
        return self.log_e

    @property
    def limit(self) -> float:
        """What accuracy may not fall below; -inf before the first evaluation."""
        return self.best - min(self.fall, REACHED * self.best) if self.best > 0 else -math.inf

    @property
    def now(self) -> tuple[int, float, float, int] | None:
        """The last evaluation."""
        return self.evaluations[-1] if self.evaluations else None

    def verdict(self) -> str:
        """The last evaluation beside the best: "fell", "held", or "unknown" where there are fewer than two."""
        before = self._highest(self._known[:-1])
        if before is None or not self.evaluations:
            return "unknown"
        _, best, best_se, _ = before
        _, value, se, _ = self.evaluations[-1]
        drop, error = best - value, math.hypot(best_se, se)
        if drop >= min(self.fall, REACHED * best) / 2 and drop >= 2 * error:
            return "fell"
        return "held" if drop <= min(self.fall, REACHED * best) / 2 + error else "unknown"


def _log_factors_of_mean(mean: float, count: int, limit: float) -> Floats:
    """A lower bound of `_log_factors` of any `count` values in [0, 1] with this mean, (F,)."""
    bets = FRACTIONS / (1 - limit)
    growth: Floats = count * (mean * np.log1p(bets * (limit - 1)) + (1 - mean) * np.log1p(bets * limit))
    return growth


@dataclass
class Share:
    """Whether more of the values in [0, 1] are expected than `most`, against: at most that many, in each batch."""

    most: float
    bets: Bets = field(default_factory=Bets)

    def take(self, values: Floats) -> float:
        """Bet on further values (n,); the evidence log e so far."""
        self.bets.take(1 - values[np.isfinite(values)], 1 - self.most)
        return self.bets.log_e


def state(monitor: Any) -> dict[str, Any]:
    """A monitor as JSON has it."""
    content: dict[str, Any] = asdict(monitor)
    return content


def bets_of(content: Mapping[str, Any]) -> Bets:
    """The bets that JSON has, in which numbers that are not finite are strings."""
    return Bets(content["batches"], [float(log) for log in content["logs"]])


def hypothesis_of(content: Mapping[str, Any]) -> Hypothesis:
    """The hypothesis that `asdict` was made of."""
    return Hypothesis(**{**content, "bets": bets_of(content["bets"])})


def fall_of(content: Mapping[str, Any]) -> Fall:
    """The monitor that `state` was made of."""
    hypotheses = [hypothesis_of(document) for document in content["hypotheses"]]
    batches = [(int(s), int(n), float(m), float(v)) for s, n, m, v in content["batches"]]
    low, high = float(content["low"]), float(content["high"])
    return Fall(content["fall"], batches, low, high, hypotheses)


def heldout_of(content: Mapping[str, Any]) -> HeldoutFall:
    """The monitor that `state` was made of."""
    seen = [(int(s), float(v), float(e), int(n)) for s, v, e, n in content["evaluations"]]
    log_e, best = float(content["log_e"]), float(content["best"])
    told = content.get("reference")
    reference = None if told is None else (int(told[0]), float(told[1]), float(told[2]), int(told[3]))
    return HeldoutFall(content["fall"], log_e, best, content["best_step"], seen, reference)
