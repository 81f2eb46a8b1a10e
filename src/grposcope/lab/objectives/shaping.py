"""Reward shaping that recipes apply before advantages are taken."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor


def overlong(lengths: Int[Tensor, " B"], limit: int, buffer: int) -> Float[Tensor, " B"]:
    """Soft punishment for completions that near the limit (DAPO, arXiv:2503.14476, eq. 13).

    0 up to limit − buffer tokens, then falling linearly to −1 at the limit and staying there.
    """
    return ((limit - buffer - lengths).double() / max(buffer, 1)).clamp(-1.0, 0.0)
