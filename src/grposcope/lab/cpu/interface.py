"""Types that callers of the CPU engine see: decoders, as the sampler uses them, and what they draw."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

PRECISIONS = ("float32", "bfloat16", "int8")
"""Number formats in which a decoder that `DrawsAhead` multiplies, by their number in C."""


class Draws(NamedTuple):
    """Tokens drawn one after the other, their log-probabilities and the entropies, each (n, B)."""

    tokens: Tensor
    logp: Tensor
    entropy: Tensor


class Decoder(Protocol):
    """A decoder as the sampler uses it. Rows are prompt-major, `group` completions per prompt."""

    logits: Tensor
    """(B, V) logits that follow the prompt."""
    light: bool
    """Whether `keep` moves nothing for rows that it drops."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token per row, (B,), and return the next logits (B, V), valid until the next step."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows (indices into the current ones, ascending); one that is repeated becomes several.

        There are never more rows of a prompt than its group had.
        """
        ...


@runtime_checkable
class DrawsAhead(Protocol):
    """A decoder that also draws several tokens in one call, and multiplies in the number format asked for."""

    def generate(
        self, logits: Tensor, steps: int, temperature: float, uniforms: Tensor, ends: Tensor, going: Tensor, few: int
    ) -> Draws | None:
        """Draw from logits (B, V), append, and so on, for at most `steps` tokens, the last of which is not appended.

        It is over as soon as at most `few` rows go on. uniforms (steps, B): numbers in (0, 1] that choose the tokens;
        ends: tokens that end a row, whose entry in `going` (B,) becomes False. None where logits are not finite.
        """
        ...
