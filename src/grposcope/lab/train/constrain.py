"""Constraints in a run: their penalties on the credit of a batch, what the batch says of them, and what is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from grposcope.lab.objectives import advantages
from grposcope.maths import constraints
from grposcope.maths.constraints import Constraint, Dual

SURE = 3.0
"""Standard errors by which a violation at the start has to stand out before it is told."""

Values = Callable[[str], Tensor]
"""Name of a reward or `length` -> its values (P, G) in a batch, as `several.constrained_values` has them."""


class RunConstraints:
    """The constraints of a run and their multipliers; none of its methods does anything where there are none.

    The multipliers of a batch are those that the batches before it made, so that no batch chooses its own penalty.
    """

    def __init__(self, dual: Dual, state: Mapping[str, Any] | None = None):
        """dual: at its start. state: what `state` returned at the checkpoint gone on from, else None."""
        self.dual = dual
        self.added: dict[str, Tensor] = {}
        self.told = state is not None
        if state is not None:
            self.dual.restore(state)

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps; None where there are no constraints."""
        return self.dual.state() if self.dual.constraints else None

    def penalties(self, values: Values) -> Tensor:
        """What all constraints add to the advantage of each rollout, (B, 1); one 0 where none does.

        What each of them adds, (P, G), stays in `added` until the next batch.
        """
        total = torch.zeros(1, dtype=torch.float64)
        self.added = {}
        for constraint, multiplier in zip(self.dual.constraints, self.dual.multipliers, strict=True):
            if multiplier:
                found = self.added[constraint.text] = _penalty(values(constraint.name), constraint, multiplier)
                total = total.to(found) + found
        return total.reshape(-1, 1)

    def learn(self, values: Values, say: Callable[[str], None]) -> dict[str, float]:
        """Take what a fresh batch says; metrics `constraint/…`: cost and its error, violation, and the multiplier that
        this batch was trained with."""
        if not self.dual.constraints:
            return {}
        measured = [
            constraints.measure(constraint, values(constraint.name).numpy(force=True))
            for constraint in self.dual.constraints
        ]
        metrics: dict[str, float] = {}
        for constraint, found, multiplier in zip(self.dual.constraints, measured, self.dual.multipliers, strict=True):
            metrics |= {
                f"constraint/{constraint.text}/cost": found.cost,
                f"constraint/{constraint.text}/cost_se": found.se,
                f"constraint/{constraint.text}/violation": found.violation,
                f"constraint/{constraint.text}/multiplier": multiplier,
            }
            if not self.told and found.flat and found.violation > 0:
                say(
                    f"warning: constraint {constraint.text} is violated from the start, and its cost is equal on all "
                    "rollouts of every group: the policy cannot learn to meet it"
                )
            elif not self.told and math.isfinite(found.se) and found.cost - constraint.limit > SURE * found.se:
                say(
                    f"constraint {constraint.text} does not hold at the start: its cost is {found.cost:.4g} ± "
                    f"{found.se:.2g}, the limit {constraint.limit:.4g}"
                )
        self.told = True
        self.dual.learn(measured)
        return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _penalty(values: Tensor, constraint: Constraint, multiplier: float) -> Tensor:
    """−multiplier · Z of the constraint's cost, (P, G); values as `constrained_values` returns them."""
    costs = torch.from_numpy(constraint.costs(values.numpy(force=True))).to(values)
    return -multiplier * advantages.standardized(costs)
