"""Which problems a batch draws: the policies of allocation.

All are pure: from candidates in the order of the data, what is known of their success rates and random numbers, to
`AllocationPlan`. The rewards of a batch never enter its own picks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.lab.allocation.beta import Rates

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Values = Mapping[str, Any]
"""Settings of an allocator by name."""


@dataclass(frozen=True)
class CandidateProblems:
    """What a batch is picked from: C problems, and the batch that the run asks for.

    rates: what is known of their success rates, in the order of the data. prompts, group: P and G of the run. random:
    uniform in [0, 1), (C,), anew for each batch.
    """

    rates: Rates
    prompts: int
    group: int
    random: Floats


@dataclass(frozen=True)
class AllocationPlan:
    """The P problems to draw, a group each. chosen (P,): indices into the candidates.

    live: the share of live groups that the forecast promises. passed: candidates that were looked at, from the first
    one on.
    """

    chosen: Ints
    live: float
    passed: int


def _picked(candidates: CandidateProblems, which: Ints, passed: int) -> AllocationPlan:
    """The candidates `which`, with the share of live groups that is forecast of them."""
    return AllocationPlan(which, float(1 - candidates.rates.take(which).dead(candidates.group).mean()), passed)


def _filtered(candidates: CandidateProblems, dead: float, usable: NDArray[np.bool_]) -> AllocationPlan:
    """The first P candidates, without those whose chance of a dead group is above `dead`.

    kept (C,): which of these are taken all the same, so that the history of problems left out does not end. Where too
    few are left, the others with the greatest chance of a live group fill up.
    """
    chance, prompts = candidates.rates.dead(candidates.group), candidates.prompts
    good = np.flatnonzero((chance <= dead) | usable)
    passed = int(good[prompts - 1]) + 1 if len(good) >= prompts else len(chance)
    if len(good) < prompts:
        others = np.setdiff1d(np.argsort(chance, kind="stable"), good, assume_unique=True)
        others = others[np.argsort(chance[others], kind="stable")]
        good = np.concatenate([good, others[: prompts - len(good)]])
    return _picked(candidates, good[:prompts], passed)


def without_dead(candidates: CandidateProblems, values: Values) -> AllocationPlan:
    """`filtered` with a share `explore` of the candidates taken all the same."""
    return _filtered(candidates, values["dead"], candidates.random < values["explore"])
