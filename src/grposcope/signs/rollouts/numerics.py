"""What the number format of a sampler may do to log-probabilities without anything being wrong.

A sampler that computes the same weights in another number format or order draws from a policy π' that is not quite the
trainer's π. Two bounds per format widen the null hypotheses of the tests:

- `k3`: KL(π'‖π) per token in nats. Measured, SmolLM2-135M against its float32 (experiments/offpolicy.md): 4.6e-11 for
  another order of operations in float32, 2.2e-4 for bfloat16 weights, 0.012 for int8; the tolerance is about three
  times that or more, as larger models and other kernels differ more. fp8 was not measured here; it has int8's.
- `tail`: by how much the probability of a set of unlikely tokens may be off, relative to itself.

A likelihood ratio r with E_π r = 1 has E_π' r = 1 + Cov_π(π'/π, r) ≤ 1 + a √(2 KL) sd(r), with the cosine a between
the error and the ratio; 1 is the worst case. Rounding knows nothing of the alternative: on `tiny` cosines of up to
0.24 were measured over 500 rollouts, most of them below 0.1 (experiments/verify.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grposcope.core.errors import UserError

Floats = NDArray[np.float64]

ALIGNED = 0.25
"""Cosine between the sampler's numerical error and the score of an alternative that counts as chance."""


@dataclass(frozen=True)
class SamplerNumerics:
    """Tolerances of a number format; see above."""

    name: str
    k3: float
    tail: float

    def widening(self, spread: Floats) -> Floats:
        """What is taken off the logarithm of ratios with standard deviation `spread` under π, in nats."""
        return np.log1p(ALIGNED * np.sqrt(2 * self.k3) * spread)


FORMATS: Mapping[str, SamplerNumerics] = {
    number_format.name: number_format
    for number_format in (
        SamplerNumerics("float32", 1e-6, 0.002),
        SamplerNumerics("bfloat16", 1e-3, 0.05),
        SamplerNumerics("fp8", 0.04, 0.3),
        SamplerNumerics("int8", 0.04, 0.3),
    )
}
"""Number formats that a sampler may have, by name."""

ASSUMED = "bfloat16"
"""The format of a sampler whose settings do not say it."""


def of(precision: str | None) -> SamplerNumerics:
    """The tolerances of a format; those of ASSUMED for None, UserError for an unknown one."""
    name = ASSUMED if precision is None else {"float16": "bfloat16", "half": "bfloat16"}.get(precision, precision)
    if name not in FORMATS:
        raise UserError(f"the sampler's precision {precision!r} is unknown; use one of {', '.join(FORMATS)}")
    return FORMATS[name]
