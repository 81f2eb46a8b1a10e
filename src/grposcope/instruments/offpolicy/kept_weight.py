"""What a correction keeps of the weight, of how many rollouts, and of which lengths.

The mean of uncut coefficients over the sampler's rollouts is 1 (`corrections`), so that the mean of c_t, first over a
rollout's tokens, then over rollouts, is the share of weight that a correction keeps. The share of *rollouts* that it
keeps says little: those that are dropped have the largest weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.estimate import Estimate
from grposcope.instruments.offpolicy.khat import khat
from grposcope.maths import resampling
from grposcope.maths.corrections import Correction
from grposcope.maths.importance import Floats, Ratios, effective


@dataclass(frozen=True)
class KeptWeight:
    """What a correction keeps.

    weight: mean coefficient. ess: (Σc)²/(nΣc²), over tokens for corrections of token level, else over rollouts; 0 where
    nothing is kept. tail: k̂ of the ratio before it is cut. thirds: mean coefficient in the shortest, the middle and the
    longest third of the rollouts; shares: their share of all that is kept; None where all lengths are equal.
    """

    weight: Estimate
    ess: float
    tail: float
    thirds: tuple[float, float, float] | None
    shares: tuple[float, float, float] | None


def of(correction: Correction, ratios: Ratios, prompts: NDArray[np.int64]) -> KeptWeight:
    """What a correction keeps of these rollouts; prompts (B,): the number of the prompt of each."""
    coefficients = correction.coefficients(ratios)
    means = ratios.means(coefficients)
    thirds, shares = _by_length(means, ratios.lengths)
    units = coefficients if correction.level == "token" else means
    return KeptWeight(mean(means, prompts), effective(units), khat(_uncut(correction, ratios)), thirds, shares)


@dataclass(frozen=True)
class _TokenClasses:
    """The tokens (N,) in classes. names: of the classes; number (N,): the class of each token."""

    names: tuple[str, ...]
    number: NDArray[np.int64]

    def means(self, values: Floats) -> tuple[float, ...]:
        """Mean of values (N,) in each class; NaN for an empty one."""
        counts, sums = (np.bincount(self.number, weights, len(self.names)) for weights in (None, values))
        return tuple(np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0).tolist())


PROBABILITIES = (0.1, 0.9)
"""Bounds between improbable, middling and probable tokens."""


SHOWN = 6
"""Environments, the most frequent ones, that are classes of their own; the others are one together."""


def classes(
    ratios: Ratios, lags: Floats | None = None, environments: Sequence[str] | None = None
) -> dict[str, _TokenClasses]:
    """Ways to class the tokens that are known, by title.

    lags (B,): versions by which the sampler was behind. environments (B,): of each rollout.
    """
    position = np.arange(len(ratios.log)) - ratios.spread(ratios.starts)
    thirds = 3 * position // ratios.spread(ratios.lengths)
    classes = {"position": _TokenClasses(("first third", "middle", "last third"), thirds)}
    if ratios.advantages is not None:
        sign = np.sign(ratios.advantages).astype(np.int64) + 1
        classes["advantage"] = _TokenClasses(("below 0", "0", "above 0"), ratios.spread(sign))
    if ratios.sampler is not None:
        names = tuple(f"{text} {bound:g}" for text, bound in zip(("up to", "above"), PROBABILITIES, strict=True))
        number = np.digitize(np.exp(ratios.sampler), PROBABILITIES, right=True)
        classes["probability"] = _TokenClasses((names[0], "between", names[1]), number)
    if lags is not None:
        distinct, number = np.unique(lags, return_inverse=True)
        if len(distinct) > 1:
            classes["lag"] = _TokenClasses(tuple(f"{value:g}" for value in distinct), ratios.spread(number.reshape(-1)))
    if environments is not None:
        frequent = [name for name, _ in Counter(environments).most_common()]
        first = frequent if len(frequent) <= SHOWN + 1 else frequent[:SHOWN]
        position = np.array(
            [first.index(environment) if environment in first else len(first) for environment in environments]
        )
        others = () if len(first) == len(frequent) else (f"{len(frequent) - len(first)} others",)
        classes["environment"] = _TokenClasses((*first, *others), ratios.spread(position))
    return classes


def _uncut(correction: Correction, ratios: Ratios) -> Floats:
    """Logarithms of the ratios that a correction cuts: of tokens (N,), or of rollouts (B,)."""
    return ratios.log if correction.level == "token" else ratios.sequence


def _by_length(
    means: Floats, lengths: NDArray[np.int64]
) -> tuple[tuple[float, float, float] | None, tuple[float, float, float] | None]:
    """Means of values (B,) in thirds by length, and the share of the sum that lies in each; None for equal lengths.

    Rollouts of one length stay together: where a third share the greatest, as at a limit of tokens, they are the long
    ones. NaN in the middle where no rollout is left for it.
    """
    low, high = np.quantile(lengths, [1 / 3, 2 / 3])
    long = lengths > high if (lengths > high).any() else lengths >= high
    short = (lengths <= low) & ~long
    inside, total = (short, ~short & ~long, long), means.sum()
    if not (short.any() and total > 0):
        return None, None
    thirds = [float(means[third].mean()) if third.any() else float("nan") for third in inside]
    shares = [float(means[third].sum() / total) for third in inside]
    return (thirds[0], thirds[1], thirds[2]), (shares[0], shares[1], shares[2])


def mean(values: Floats, prompts: NDArray[np.int64]) -> Estimate:
    """Mean of values (B,), its standard error by jackknife over prompts."""
    return ratio(values, np.ones(len(values)), prompts)


def ratio(numerators: Floats, denominators: Floats, prompts: NDArray[np.int64]) -> Estimate:
    """Σ numerators / Σ denominators (B,), its standard error by jackknife over prompts."""
    above, below = np.bincount(prompts, numerators), np.bincount(prompts, denominators)
    total = below.sum()
    if len(above) < 2:
        return Estimate(float(above.sum() / total), float("nan"), len(above), "one prompt: no standard error")
    return resampling.estimate(float(above.sum() / total), (above.sum() - above) / (total - below))
