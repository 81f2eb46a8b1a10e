"""Constraints on means of rollouts and their multipliers: projected dual ascent, plain or damped.

A constraint is J = E c ≤ d for a cost c of each rollout: NAME<=X has c = NAME; NAME>=X has c = −NAME and d = −X;
share(NAME>Y)<=X has c = 1[NAME > Y]; q95(NAME)<=Y asks that at most 5 % of the rollouts lie above Y, so c = 1[NAME > Y]
and d = 0.05. With the violation v = (Ĵ − d)/s of a batch, s = |d| or 1 where d is 0,

    integral ← [integral + η v]₊        multiplier = [integral + κ v]₊

with the rate η, and the damping κ (0 for plain dual ascent), which answers a violation at once and so takes the swing
out of what the integral does late (Stooke et al. 2020, arXiv:2007.03964). The multiplier weighs the standardized cost:
A = A_reward − Σ_k multiplier_k Z_k (arXiv:2602.05863). As Z_k forgets the scale of the cost, it is a controller's
output and no multiplier of the Lagrangian in units of the reward.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.text import visible
from grposcope.maths import resampling
from grposcope.maths.aggregation import Floats

LENGTH = "length"
"""Name of the completion's length in tokens, which every run has."""

FORM = "write NAME<=X, NAME>=X, share(NAME>X)<=Y or q95(NAME)<=X"

_SIDE = re.compile(r"(?P<what>.+?)\s*(?P<sign><=|>=)\s*(?P<limit>[^<>=]+)")
_SHARE = re.compile(r"share\(\s*(?P<name>.+?)\s*(?P<sign>>=|<=|>|<)\s*(?P<at>[^<>=]+?)\s*\)")
_QUANTILE = re.compile(r"q(?P<q>\d{1,2}(?:\.\d+)?)\(\s*(?P<name>.+?)\s*\)")


@dataclass(frozen=True)
class Constraint:
    """A constraint J ≤ d. text: as it was given; name: of the reward or LENGTH; sign: +1 where large values cost.

    at: the value beyond which a rollout costs 1; None where the value itself is the cost. limit: d.
    """

    text: str
    name: str
    sign: int
    at: float | None
    limit: float

    def costs(self, values: Floats) -> Floats:
        """Cost of each value; NaN stays."""
        signed = self.sign * values
        if self.at is None:
            return signed
        return np.where(np.isnan(values), np.nan, (signed > self.sign * self.at).astype(np.float64))

    @property
    def scale(self) -> float:
        """What a violation is measured by."""
        return abs(self.limit) or 1.0


def _parse(text: str) -> Constraint:
    """A constraint from its text; UserError that says what is wrong with it."""
    match = _SIDE.fullmatch(text.strip())
    if match is None:
        raise UserError(f"constraint {visible(text, 60)!r} cannot be read; {FORM}")
    what, sign, limit = match["what"].strip(), 1 if match["sign"] == "<=" else -1, _number(match["limit"], text)
    if share := _SHARE.fullmatch(what):
        if not 0 <= limit <= 1:
            raise UserError(f"constraint {visible(text, 60)!r}: a share lies between 0 and 1")
        above = 1 if share["sign"].startswith(">") else -1
        at = _number(share["at"], text)
        if sign < 0:  # at least a share beyond is at most the rest on the other side
            return Constraint(text.strip(), share["name"], -above, at, 1 - limit)
        return Constraint(text.strip(), share["name"], above, at, limit)
    if quantile := _QUANTILE.fullmatch(what):
        q = float(quantile["q"]) / 100
        if not 0 < q < 1:
            raise UserError(f"constraint {visible(text, 60)!r}: a quantile lies between q1 and q99")
        return Constraint(text.strip(), quantile["name"], sign, limit, 1 - q if sign > 0 else q)
    if re.search(r"[<>]=|^\w+\(.*\)$", what):
        raise UserError(f"constraint {visible(text, 60)!r} cannot be read; {FORM}")
    return Constraint(text.strip(), what, sign, None, sign * limit)


def parse_all(texts: Sequence[str]) -> tuple[Constraint, ...]:
    """All constraints; UserError for two that contradict each other, and for one that is given twice."""
    constraints = tuple(_parse(text) for text in texts)
    for i, first in enumerate(constraints):
        for second in constraints[:i]:
            if (first.name, first.at, first.sign) == (second.name, second.at, second.sign):
                raise UserError(f"constraints {second.text} and {first.text} say the same; leave the wider one out")
            both = first.name == second.name and first.at is None and second.at is None
            if both and first.limit + second.limit < 0:  # ≥ a and ≤ b with b < a
                raise UserError(f"constraints {second.text} and {first.text} cannot both hold; change one of them")
    return constraints


def _number(text: str, whole: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(
            f"constraint {visible(whole, 60)!r}: {visible(text.strip(), 20)!r} is not a finite number; {FORM}"
        )
    return value


@dataclass(frozen=True)
class _Measured:
    """A constraint on a batch. cost: Ĵ with its standard error over groups; violation: (Ĵ − d)/s, above 0 where it is
    violated; flat: whether the cost is the same on all rollouts of every group, so that no advantage comes of it."""

    cost: float
    se: float
    violation: float
    flat: bool


def measure(constraint: Constraint, values: Floats) -> _Measured:
    """What a batch says of a constraint; values (P, G), NaN for rollouts that are absent."""
    costs = constraint.costs(values)
    logged = ~np.isnan(costs)
    if not logged.any():
        return _Measured(math.nan, math.nan, 0.0, True)
    total, count = np.where(logged, costs, 0.0).sum(1), logged.sum(1)
    mean = float(total.sum() / count.sum())
    rest = count.sum() - count
    without_each = np.divide(total.sum() - total, rest, out=np.full(len(rest), mean), where=rest > 0)
    se = resampling.standard_error(without_each) if len(without_each) > 1 else math.nan
    high, low = np.where(logged, costs, -np.inf).max(1), np.where(logged, costs, np.inf).min(1)
    return _Measured(mean, se, (mean - constraint.limit) / constraint.scale, not bool((high > low).any()))


class Dual:
    """The multipliers of the constraints of a run. rate: η; damping: κ."""

    def __init__(self, constraints: Sequence[Constraint], rate: float, damping: float = 0.0):
        self.constraints, self.rate, self.damping = tuple(constraints), rate, damping
        self.integral = [0.0] * len(constraints)
        self.multipliers = [0.0] * len(constraints)

    def learn(self, measured: Sequence[_Measured]) -> None:
        """Take the violations of a batch."""
        for k, measure in enumerate(measured):
            self.integral[k] = max(self.integral[k] + self.rate * measure.violation, 0.0)
            self.multipliers[k] = max(self.integral[k] + self.damping * measure.violation, 0.0)

    def state(self) -> dict[str, list[float]]:
        """What a checkpoint keeps, as JSON."""
        return {"integral": list(self.integral), "multipliers": list(self.multipliers)}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from what `state` returned; ValueError where it is of other constraints."""
        if len(state["integral"]) != len(self.constraints) or len(state["multipliers"]) != len(self.constraints):
            raise ValueError("the multipliers are of other constraints")
        self.integral, self.multipliers = list(state["integral"]), list(state["multipliers"])
