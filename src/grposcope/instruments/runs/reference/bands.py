"""The test of a run against n others of its kind, over all metrics and blocks at once.

x_{rmb}, of run r, metric m and block b, is its mean in units of the noise within runs (`gate`). Under the null
hypothesis the run is one more draw from what made the references, so that

    t_{mb} = (x_{mb} − x̄_{mb}) / (s_{mb} √(1 + 1/n))

is a Student t with n − 1 degrees of freedom, which with four references says next to nothing. The variance is
therefore borrowed, as Smyth (2004, doi:10.2202/1544-6115.1027) does for genes: that of a block from the other blocks of
its metric, and this from the geometric mean over metrics. Seeds drift apart as a run goes on, in all metrics alike, so
that blocks have a profile f_b in common, the geometric mean over metrics of s²_{mb}, of mean 1 over blocks:

    s²_m = mean_b s²_{mb}/f_b,    s²_m ← (D₀ s²_0 + 2(n − 1) s²_m) / (D₀ + 2(n − 1)),
    s²_{mb} ← (D₁ s²_m f_b + (n − 1) s²_{mb}) / (D₁ + n − 1)

The run has left where max |t| exceeds what it does in 5 % of draws of n + 1 runs with these variances, whose metrics
are each Student t with TAILS degrees of freedom, since some seeds go astray. In the draws, metrics are independent,
which makes their maximum the largest (Šidák), and the blocks of a metric correlated by CORRELATION^|b − c|: more than
ours are, since that leaves fewer degrees of freedom. Rows of a run may hang together as they like: the run is the unit.
Wrong where runs of one setting scatter with much heavier tails. The constants were chosen on the first two sets of
seeds of experiments/reference_gate.py.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from grposcope.core.run import Floats

PRIOR_METRIC = 3.0
"""D₀, degrees of freedom of the variance over all metrics."""

PRIOR_BLOCK = 6.0
"""D₁, degrees of freedom of the variance over the blocks of a metric."""

INDEPENDENT = 2.0
"""Blocks of a metric that are counted as independent."""

CORRELATION = 0.9
"""Correlation of successive blocks of a run in the draws."""

TAILS = 12.0
"""Degrees of freedom of a metric of a run in the draws."""

DRAWS = 2000
"""Draws of the null distribution."""


def _variances(references: Floats) -> Floats:
    """Variances (…, M, B) between runs, borrowed as above, of references (…, n, M, B); n >= 2."""
    own = references.var(-3, ddof=1)
    freedom = references.shape[-3] - 1
    profile = np.exp(np.log(own).mean(-2, keepdims=True))
    profile /= profile.mean(-1, keepdims=True)
    of_metric = (own / profile).mean(-1)
    overall = np.exp(np.log(of_metric).mean(-1, keepdims=True))
    metric = PRIOR_METRIC * overall + INDEPENDENT * freedom * of_metric
    metric /= PRIOR_METRIC + INDEPENDENT * freedom
    borrowed: Floats = (PRIOR_BLOCK * metric[..., None] * profile + freedom * own) / (PRIOR_BLOCK + freedom)
    return borrowed


def errors(references: Floats) -> Floats:
    """Standard errors (…, M, B) of a further run's distance to the mean of the references (…, n, M, B)."""
    error: Floats = np.sqrt(_variances(references) * (1 + 1 / references.shape[-3]))
    return error


def distances(references: Floats, run: Floats) -> Floats:
    """t (…, M, B) of a run (…, M, B) against references (…, n, M, B)."""
    distance: Floats = (run - references.mean(-3)) / errors(references)
    return distance


def largest_by_chance(references: Floats) -> Floats:
    """Largest |t| of each of DRAWS runs that are like the references (n, M, B), sorted."""
    return _largest(len(references), np.ascontiguousarray(_variances(references)).tobytes(), references.shape[-1])


@lru_cache(maxsize=64)
def _largest(count: int, of_runs: bytes, blocks: int) -> Floats:
    """The same from the bytes of the variances (M, B) between runs; count: references."""
    spread = np.sqrt(np.frombuffer(of_runs).reshape(-1, blocks))
    lag = np.abs(np.subtract.outer(np.arange(blocks), np.arange(blocks)))
    root = np.linalg.cholesky(CORRELATION**lag)
    random = np.random.default_rng(0)
    drawn = random.standard_normal((DRAWS, count + 1, len(spread), blocks)) @ root.T * spread
    drawn *= np.sqrt(TAILS / random.chisquare(TAILS, (DRAWS, count + 1, len(spread), 1)))
    largest: Floats = np.sort(np.abs(distances(drawn[:, :-1], drawn[:, -1])).max((-1, -2)))
    largest.flags.writeable = False
    return largest


def p_value(largest: float, by_chance: Floats) -> float:
    """Share of draws, the run counted among them, whose largest |t| is as large as `largest`."""
    beyond = len(by_chance) - int(np.searchsorted(by_chance, largest, side="left"))
    return (1 + beyond) / (1 + len(by_chance))
