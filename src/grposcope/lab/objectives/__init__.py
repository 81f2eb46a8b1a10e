"""Objectives as pure functions with one seam: per-token weights w = ∂L/∂log π, shape (B, T).

`recipes` holds the published methods as values; `advantages`, `ratios`, `surrogates`,
`reductions`, `divergences` and `shaping` are the factors they are made of; `objective` composes them.
"""

import importlib
from typing import Any

from grposcope.lab.objectives.objective import Objective

__all__ = ["Objective", "advantages", "recipes"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
