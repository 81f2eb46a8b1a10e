"""Objectives as pure functions with one seam: per-token weights w = ∂L/∂log π, shape (B, T).

`recipes` holds the published methods as values; `advantages`, `ratios`, `surrogates`,
`reductions`, `divergences` and `shaping` are the factors they are made of; `objective` composes them.
"""

from grposcope.lab.objectives.objective import Objective

__all__ = ["Objective", "advantages", "recipes"]
