"""The per-rollout gradients of one parameter, kept as factors: S_i = Σ_t rows_{i,t} columns_{i,t}ᵀ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.workers import Rows

BLOCK = 4 * 2**20
"""Bytes of per-rollout matrices built at a time on a CPU: few enough to stay in the cache."""

GPU_BLOCK = 256 * 2**20
"""The same on a GPU: many enough that its work, not the start of its kernels, takes the time."""

LARGE = 2**24
"""Entries from which a parameter is processed by all threads, or all processes, together."""


def block_bytes(device: torch.device) -> int:
    """Bytes of per-rollout matrices that are built at a time on this device."""
    return BLOCK if device.type == "cpu" else GPU_BLOCK


def is_large(entries: int) -> bool:
    """Whether a parameter with so many entries is processed by all threads, or all processes, together."""
    return entries >= LARGE


@dataclass(frozen=True)
class Use:
    """One use of a matrix in the forward pass, oriented so that S_i = Σ_t rows_{i,t} columns_{i,t}ᵀ.

    rows (B, L, R), or for an embedding its ids (B, L), each standing for a unit vector; columns (B, L, C).
    padding: id without a gradient, as in nn.Embedding; -1 for none.
    """

    rows: Tensor
    columns: Tensor
    padding: int = -1

    @property
    def lookup(self) -> bool:
        """Whether `rows` are the ids of an embedding."""
        return not self.rows.is_floating_point()


@dataclass(frozen=True)
class Score:
    """The per-rollout gradients of one parameter, S (B, R, C); a vector has R = 1.

    name: as in `model.named_parameters()`. kind: "linear", "embedding", "experts" or "vector"; a parameter that was
    measured without factors is a vector, whatever its shape.
    shape: (R, C). uses: its factors; empty for a vector, whose gradients (B, C) are `direct`.
    part: where these are some rows of the parameter only, which rows of how many; `shape` is that of these rows.
    expert: of a stack (E, R, C) the number of the expert that this is the score of, and E.
    """

    name: str
    kind: str
    shape: tuple[int, int]
    uses: tuple[Use, ...] = ()
    direct: Tensor | None = None
    part: Rows | None = None
    expert: tuple[int, int] | None = None

    @property
    def large(self) -> bool:
        """Whether all threads work on it together."""
        return is_large(self.shape[0] * self.shape[1])

    @property
    def rollouts(self) -> int:
        """Number of rollouts B."""
        return len(self.direct) if self.direct is not None else len(self.uses[0].columns)

    @property
    def dtype(self) -> torch.dtype:
        """Data type of S."""
        return self.direct.dtype if self.direct is not None else self.uses[0].columns.dtype

    @property
    def device(self) -> torch.device:
        """Device of the factors."""
        return self.direct.device if self.direct is not None else self.uses[0].columns.device

    def pieces(self, limit: int | None = None) -> list[slice]:
        """Ranges of rows, R in all, so that all S_i together have about `limit` bytes in each range.

        By default `block_bytes` of the device.
        """
        rows, columns = self.shape
        limit = block_bytes(self.device) if limit is None else limit
        step = max(1, min(rows, limit // (4 * self.rollouts * columns)))
        return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]

    def piece(self, piece: slice) -> Tensor:
        """The rows `piece` of every S_i, (B, rows, C)."""
        if self.direct is not None:
            return self.direct[:, None]
        total: Tensor | None = None
        for use in self.uses:  # dense ones first, so that look-ups can be added in place
            if not use.lookup:
                product = torch.bmm(use.rows[..., piece].mT, use.columns)
                total = product if total is None else total.add_(product)
        for use in self.uses:
            if use.lookup:
                if total is None:
                    total = use.columns.new_zeros(self.rollouts, piece.stop - piece.start, self.shape[1])
                inside = (use.rows >= piece.start) & (use.rows < piece.stop) & (use.rows != use.padding)
                which = inside.nonzero(as_tuple=True)
                total.index_put_((which[0], use.rows[which] - piece.start), use.columns[which], accumulate=True)
        assert total is not None
        return total

    def times(self, directions: Tensor, coefficients: Tensor) -> Tensor:
        """Σ u_i S_i times directions (C, k), with coefficients u (B,): (R, k), without building S."""
        if self.direct is not None:
            return (coefficients @ self.direct)[None] @ directions
        total = directions.new_zeros(self.shape[0], directions.shape[1])
        for use in self.uses:
            turned = (coefficients[:, None, None] * use.columns).flatten(0, 1) @ directions
            if use.lookup:
                ids = use.rows.flatten()
                total.index_add_(0, ids[ids != use.padding], turned[ids != use.padding])
            else:
                total.addmm_(use.rows.flatten(0, 1).mT, turned)
        return total

    def check_finite(self) -> None:
        """UserError that names the layer where a factor is NaN or infinite."""
        arrays = [self.direct] if self.direct is not None else []
        arrays += [a for use in self.uses for a in ((use.columns,) if use.lookup else (use.columns, use.rows))]
        if not all(bool(torch.isfinite(array.sum())) for array in arrays):
            raise UserError(
                f"layer {self.name}: the activations or gradients are not finite; "
                "load the model in float32, or look at the checkpoint for NaN"
            )

    def dense(self) -> Tensor:
        """S as a whole, (B, R, C): for tests and small models."""
        return torch.cat([self.piece(piece) for piece in self.pieces()], 1)


Visitor = Callable[[Score], object]
"""Receives every parameter of a backward pass."""
