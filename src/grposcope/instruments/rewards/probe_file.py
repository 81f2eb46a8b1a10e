"""Probes of a run with several rewards, RUN/components/step-NNNNNN.npz: the one module that knows the format.

Arrays of a file, with P prompts and K parts of the advantage, rewards first and then constraints:

    format, step          whole numbers: of the format; of the optimiser step that trains on the rollouts
    names (K,) text; constraints (K,) true for a constraint
    products (K, K, P, P) ⟨g_pj, g_qk⟩ of the gradients of part j on prompt p, `maths.component_gradients`
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grposcope.logs.native import step_arrays
from grposcope.maths.aggregation import Floats

FORMAT = 1
"""The version that this module writes, and the newest that it reads."""

FOLDER = "components"
"""Subfolder of a run with its probes of several rewards."""


@dataclass(frozen=True)
class RewardProbe:
    """Products (K, K, P, P) of what each part moves on each prompt, at the weights before `step`.

    names (K,): of the rewards, then of the constraints. constraints: how many of them.
    """

    step: int
    names: tuple[str, ...]
    constraints: int
    products: Floats


def write(run: Path, probe: RewardProbe) -> Path:
    """Write a probe into the folder of a run; returns its file. UserError where that fails."""
    rewards = len(probe.names) - probe.constraints
    arrays = {
        "format": FORMAT, "step": probe.step, "names": np.array(probe.names, np.str_), "products": probe.products,
        "constraints": np.arange(len(probe.names)) >= rewards,
    }  # fmt: skip
    return step_arrays.write(run / FOLDER, probe.step, arrays)


def in_folder(run: Path) -> list[RewardProbe]:
    """The probes in the folder of a run, or of the record in its subfolder `grposcope`, by step.

    UserError for a file that is damaged.
    """
    return sorted(map(read, step_arrays.in_run(run, FOLDER)), key=lambda one: one.step)


def read(path: Path) -> RewardProbe:
    """The probe in a file; UserError where it is damaged or of a newer format."""
    return step_arrays.read(path, FORMAT, _checked)


def _checked(arrays: dict[str, NDArray[Any]]) -> RewardProbe:
    """The probe of these arrays; ValueError where they do not fit together."""
    names, products = tuple(str(array) for array in arrays["names"]), arrays["products"].astype(np.float64)
    constraints = arrays["constraints"].astype(bool)
    size = len(names)
    if products.ndim != 4 or products.shape != (size, size, *[products.shape[-1]] * 2) or products.shape[-1] < 2:
        raise ValueError(f"products have shape {products.shape}")
    if constraints.shape != (size,) or (np.diff(constraints.astype(int)) < 0).any():
        raise ValueError("constraints are not the last parts")
    if not np.isfinite(products).all():
        raise ValueError("products hold values that are not finite")
    return RewardProbe(int(arrays["step"]), names, int(constraints.sum()), products)
