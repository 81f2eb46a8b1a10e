"""Forecast of each problem's success rate, with its uncertainty: what its features say, and its own history.

The rate of problem x before batch t is

    p_x ~ Beta(s m_x + S_x, s (1 − m_x) + F_x)

m_x is predicted from features (`_Weights`), which also serves problems never seen; S_x and F_x are the successes and
failures seen so far, each halved every h batches, for the policy drifts. As it learns, the prediction rises, and old
outcomes with it: their odds S/F are multiplied by the odds of m_x now over those predicted then. Nobody knows the
strength s of the features and the half-life h of the history: all of a grid are kept side by side, each is scored by
the probability that it gave to what then happened (recent batches count more), and the best so far makes the forecast.
Forecasts only ever use earlier batches.

Rewards are taken as successes in 0 … 1: two values, or shares of a success. Method of this project; no publication.

Success rates from features: a logistic regression that follows the run and forgets.

log odds = w·x. What is known of w is a normal distribution with mean w and precision Λ. Before each batch the precision
is drawn back towards that of the start, Λ ← Λ₀ + R(Λ − Λ₀)R with a diagonal R, so that old batches count ρ = R², ρ², …,
the level of the run, which is the first weight, fading faster than what makes problems differ; then the batch enters by
Newton's method on its binomial likelihood, which is Laplace's approximation. Rollouts of one problem are worth fewer
independent ones where its rate lies off the prediction: a group of n counts n/(1 + (n − 1)/(s + 1)), s the strength of
the Beta distribution around the prediction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln

from grposcope.core.errors import UserError
from grposcope.lab.allocation.beta import Rates

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STRENGTHS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
"""Rollouts that the features' prediction is worth, to choose from."""
HALF_LIVES = np.array([2.0, 8.0, 32.0, 128.0])
"""Batches in which a problem's history loses half of its weight, to choose from."""
EVERY = slice(None)
_DEFAULT = (3, 1)
"""Indices of the pair that forecasts before anything was seen."""
_SCORE_MEMORY = 0.98
OUTSIDE = "allocation forecasts success rates, and a reward is outside 0 … 1; scale it, or use allocate uniform"


def _features(difficulty: ArrayLike, lengths: ArrayLike) -> Floats:
    """Features (n, F) of problems: 1, and what varies of difficulty (n,), its square and the prompt's length (n,).

    Standardized over the problems. A difficulty that is NaN for some problem is left out, as is what does not vary.
    """
    hard, long = np.asarray(difficulty, np.float64), np.log1p(np.asarray(lengths, np.float64))
    columns = [np.ones(len(long))]
    for column in (hard, long):
        if np.isfinite(column).all() and np.ptp(column) > 0:
            z = (column - column.mean()) / column.std()
            columns += [z, z**2 - 1] if len(np.unique(z)) > 2 else [z]
    return np.stack(columns, -1)


class Forecaster:
    """Forecasts for a fixed list of n problems, which learn from batch to batch."""

    def __init__(self, problems: Sequence[str], difficulty: ArrayLike, lengths: ArrayLike):
        """problems: their ids; difficulty (n,): as the task measures it, NaN where it does not; lengths (n,)."""
        self.problems = problems
        self._x = _features(difficulty, lengths)
        self._weights = _Weights.start(self._x.shape[1])
        # successes, failures, and successes that the features predicted, faded to the time of `_last`
        self._seen = np.zeros((len(problems), 3, len(HALF_LIVES)))
        self._last = np.full(len(problems), -1, np.int64)  # batch in which each problem was last seen
        self._scores = np.zeros((len(STRENGTHS), len(HALF_LIVES)))
        self._scores[_DEFAULT] = 1e-9
        self.batches = 0

    @property
    def strength(self) -> float:
        """Rollouts that the features' prediction is worth, as chosen so far."""
        return float(STRENGTHS[self._best[0]])

    @property
    def half_life(self) -> float:
        """Batches in which history loses half of its weight, as chosen so far."""
        return float(HALF_LIVES[self._best[1]])

    @property
    def _best(self) -> tuple[int, int]:
        i, j = np.unravel_index(int(self._scores.argmax()), self._scores.shape)
        return int(i), int(j)

    def rates(self, which: Ints) -> Rates:
        """What is known of the success rates of some problems now."""
        m = self._weights.rates(self._x[which])
        best = slice(self._best[1], self._best[1] + 1)
        successes, failures = self._history(which, m, best)[:, :, 0].T
        return Rates(self.strength * m + successes, self.strength * (1 - m) + failures)

    def learn(self, which: Ints, successes: ArrayLike, rollouts: ArrayLike) -> None:
        """Take in a batch: its groups' problems (M,), successes and rollouts. A batch without rollouts counts too.

        UserError for successes outside of 0 … rollouts.
        """
        k, n = np.asarray(successes, np.float64), np.asarray(rollouts, np.float64)
        if not ((k >= 0) & (k <= n)).all():
            raise UserError(OUTSIDE)
        which, k, n = which[n > 0], k[n > 0], n[n > 0]
        if len(which):
            m = self._weights.rates(self._x[which])
            self._score(which, k, n, m)
            self._weights = _updated(self._weights, self._x[which], k, n, self.strength)
            own = np.unique(which)
            self._seen[own] = self._faded(own)
            self._last[own] = self.batches
            np.add.at(self._seen, which, np.stack([k, n - k, n * m], -1)[:, :, None])
        self.batches += 1

    def learn_groups(self, which: Ints, rewards: ArrayLike) -> None:
        """Take in a batch by the rewards of its groups (M, G), NaN where there is none.

        UserError for a reward outside of 0 … 1, also where the sum of its group would be possible.
        """
        graded = np.asarray(rewards, np.float64)
        present = ~np.isnan(graded)
        if ((graded < 0) | (graded > 1))[present].any():
            raise UserError(OUTSIDE)
        self.learn(which, np.nansum(graded, 1), present.sum(1))

    def _faded(self, which: Ints, lives: slice = EVERY) -> Floats:
        """What was seen of some problems, faded until now, (C, 3, half-lives)."""
        age = np.where(self._last[which] < 0, 0, self.batches - self._last[which])
        return np.asarray(self._seen[which, :, lives] * 0.5 ** (age[:, None] / HALF_LIVES[lives])[:, None, :])

    def _history(self, which: Ints, m: Floats, lives: slice = EVERY) -> Floats:
        """Successes and failures of some problems, faded and carried on to the predictions m (C,): (C, 2, lives)."""
        successes, failures, predicted = self._faded(which, lives).swapaxes(0, 1)
        total = successes + failures
        with np.errstate(divide="ignore", invalid="ignore"):
            risen = np.where(total > 0, (m / (1 - m))[:, None] * (total - predicted) / predicted, 1.0)
            carried = np.where(successes > 0, total * successes * risen / (successes * risen + failures), 0.0)
        return np.stack([carried, total - carried], 1)

    def _score(self, which: Ints, k: Floats, n: Floats, m: Floats) -> None:
        """Credit every pair of strength and half-life with the log probability it gave to a batch."""
        history, s, m = self._history(which, m), STRENGTHS[:, None], m[:, None, None]
        a, b = s * m + history[:, 0][:, None, :], s * (1 - m) + history[:, 1][:, None, :]
        chances = _log_chance(k[:, None, None], n[:, None, None], a, b).sum(0)
        self._scores = _SCORE_MEMORY * self._scores + chances - chances.max()

    def state(self) -> dict[str, Any]:
        """Everything learned, as JSON that keeps every bit."""
        seen = np.flatnonzero(self._last >= 0)
        return {
            "problems": _digest(self.problems),
            "batches": self.batches,
            "scores": self._scores.tolist(),
            "weights": {"forecast": [self._weights.mean.tolist(), self._weights.precision.tolist()]},
            "seen": seen.tolist(),
            "last": self._last[seen].tolist(),
            "history": self._seen[seen].tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; UserError if it is of other problems."""
        if state["problems"] != _digest(self.problems):
            raise UserError(
                "the history of success rates is that of other problems; resume with the task of the run, unchanged"
            )
        self.batches, self._scores = int(state["batches"]), np.array(state["scores"])
        self._weights = _Weights(*(np.array(array) for array in state["weights"]["forecast"]))
        seen = np.array(state["seen"], np.int64)
        self._last[seen] = state["last"]
        if len(seen):
            self._seen[seen] = np.array(state["history"])

    def replay(self, steps: Ints, problems: Sequence[str], successes: Floats, rollouts: Floats) -> int:
        """Learn from the groups of another run, step by step; returns how many are of problems of this list.

        UserError if none is.
        """
        places = {name: i for i, name in enumerate(self.problems)}
        own = np.array([places.get(name, -1) for name in problems], np.int64)
        if not (own >= 0).any():
            raise UserError(
                f"the history is of other problems: none of its {len(set(problems)):,} is among the "
                f"{len(self.problems):,} of this task; give the record of a run on this task, or leave history out"
            )
        for step in np.unique(steps):
            now = (steps == step) & (own >= 0)
            self.learn(own[now], successes[now], rollouts[now])
        return int((own >= 0).sum())


def _log_chance(successes: Floats, rollouts: Floats, a: Floats, b: Floats) -> Floats:
    """log probability of so many successes in one given order, p ~ Beta(a, b); all arrays broadcast."""
    return np.asarray(betaln(a + successes, b + rollouts - successes) - betaln(a, b))


def _digest(problems: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(problems).encode()).hexdigest()


PRECISION = 0.25
"""Λ₀ of each weight: features are standardized, so log odds of ±4 per standard deviation are within reach."""

LEVEL_HALF_LIFE, HALF_LIFE = 2.0, 8.0
"""Batches after which a batch counts half as much: for the first weight, and for the others."""


@dataclass(frozen=True)
class _Weights:
    """Normal distribution of the weights (F,) with precision (F, F)."""

    mean: Floats
    precision: Floats

    @staticmethod
    def start(features: int) -> _Weights:
        """The weights before any batch: 0, so that every rate is ½, and hardly held there."""
        return _Weights(np.zeros(features), PRECISION * np.eye(features))

    def rates(self, x: Floats) -> Floats:
        """Predicted success rates (C,) for features (C, F), within 0.001 … 0.999."""
        return np.asarray(np.clip(1 / (1 + np.exp(-np.clip(x @ self.mean, -30, 30))), 1e-3, 1 - 1e-3))


def _updated(weights: _Weights, x: Floats, successes: Floats, rollouts: Floats, strength: float) -> _Weights:
    """The weights after a batch of groups: features (M, F), successes and rollouts (M,)."""
    first = PRECISION * np.eye(len(weights.mean))
    fading = 0.5 ** (0.5 / np.array([LEVEL_HALF_LIFE] + [HALF_LIFE] * (len(weights.mean) - 1)))
    prior = first + fading[:, None] * (weights.precision - first) * fading
    share = 1 / (1 + (rollouts - 1) / (strength + 1))
    w = weights.mean
    for _ in range(6):
        m = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        slope = x.T @ (share * (successes - rollouts * m)) - prior @ (w - weights.mean)
        curvature = prior + (x * (share * rollouts * m * (1 - m))[:, None]).T @ x
        step = np.linalg.solve(curvature, slope)
        if float(np.abs(step).max()) < 1e-9:
            break
        w = w + step / max(1.0, float(np.abs(step).max()) / 2)  # of 2 at most, against overshooting far from the top
    m = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
    return _Weights(w, prior + (x * (share * rollouts * m * (1 - m))[:, None]).T @ x)
