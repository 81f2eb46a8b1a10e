"""Rivals of the closed forms of [D] for reward curves, in the notation of
`grposcope.instruments.dynamics.curves`.

    logistic     middle, slope   f = 1/(1 + (middle/s)^slope), a sigmoid in log steps (as in ScaleRL, arXiv:2510.13786)
    power        τ, exponent     f = 1 − (1 + s/τ)^{−exponent}

A power law with a large exponent is an exponential, so those two hardly separate. `FAMILIES` has them beside the closed
forms, for `grposcope.instruments.dynamics.fit.fit(steps, reward, FAMILIES[name])`.
"""

from __future__ import annotations

import numpy as np

from grposcope.instruments.dynamics.curves import MODELS, _Model
from grposcope.maths.timeseries.noise import Array


def logistic(psi: Array, s: Array) -> tuple[Array, Array]:
    """1/(1 + (middle/s)^slope); 0 at s = 0."""
    slope = np.exp(psi[:, 1:])
    with np.errstate(divide="ignore"):
        logs = np.log(s)
    distance = np.where(s > 0, logs, 0.0) - psi[:, :1]
    f = np.where(s > 0, 1 / (1 + np.exp(np.clip(-slope * distance, -700, 700))), 0.0)
    steep = f * (1 - f) * slope
    return f, np.stack([-steep, steep * distance], 1)


def power(psi: Array, s: Array) -> tuple[Array, Array]:
    """1 − (1 + s/τ)^{−exponent}."""
    ratio, exponent = s * np.exp(-psi[:, :1]), np.exp(psi[:, 1:])
    logs = np.log1p(ratio)
    left = np.exp(-exponent * logs)
    return 1 - left, np.stack([-exponent * left * ratio / (1 + ratio), exponent * logs * left], 1)


FAMILIES: dict[str, _Model] = {
    **MODELS,
    "logistic": _Model("logistic", logistic, ("middle", "slope"), ("middle",), (0.005, 0.3), (10.0, 40.0),
                      ((0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 2.0), (0.6, 1.0, 2.0, 4.0, 8.0, 16.0))),
    "power": _Model("power", power, ("time_constant", "exponent"), ("time_constant",), (0.001, 0.05), (20.0, 20.0),
                   ((0.01, 0.05, 0.2, 1.0, 4.0), (0.1, 0.3, 1.0, 3.0, 8.0))),
}  # fmt: skip
"""All families by name."""
