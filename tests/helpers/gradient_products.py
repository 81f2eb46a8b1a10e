"""Products of estimates of a gradient, written plainly from the estimates themselves."""

from __future__ import annotations

from grposcope.instruments.offpolicy.error import Floats, GradientProducts


def from_estimates(corrected: Floats, full: Floats) -> GradientProducts:
    """Products of the prompts' estimates under a correction and under full weights, both (P, D)."""
    return GradientProducts(corrected @ corrected.T, corrected @ full.T, full @ full.T)
