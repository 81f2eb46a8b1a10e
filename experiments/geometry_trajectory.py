"""Spectrum of a trajectory: a matrix whose rows are the gradients of successive steps, sketched to bound memory.

Each gradient x ∈ R^D is kept as y ∈ R^d with y_j = Σ_{i ≡ j + shift (mod d)} ε_i x_i, ε_i = ±1 at random
and the same at every step (a count sketch, Charikar et al. 2002, with buckets assigned in turn). Then
E⟨y, y'⟩ = ⟨x, x'⟩ exactly, with an error of about ‖x‖‖x'‖ √(2/d). Singular values are those of the Gram
matrix of the last `window` sketches; values below about σ₁/√d are noise.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable

import torch
from torch import Tensor

from grposcope.instruments.gradient.spectrum import Spectrum, from_gram


class Trajectory:
    """Keeps the last `window` gradients as sketches of `size` numbers each."""

    def __init__(self, window: int = 64, size: int = 8192, seed: int = 0):
        self.size, self.seed = size, seed
        self.rows: deque[Tensor] = deque(maxlen=window)

    def add(self, gradient: Iterable[tuple[str, Tensor]]) -> None:
        """Append a step's gradient, given as named tensors; the names seed the random signs: keep them the same."""
        total = torch.zeros(self.size, dtype=torch.float64)
        for name, array in gradient:
            total += self.sketch(name, array)
        self.rows.append(total)

    def sketch(self, name: str, array: Tensor) -> Tensor:
        """The sketch (size,) of one tensor, in float64."""
        digest = hashlib.sha256(f"{self.seed}:{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        flat, piece = array.detach().reshape(-1).cpu(), 256 * self.size
        total = torch.zeros(self.size, dtype=torch.float64)
        for start in range(0, len(flat), piece):
            part = flat[start : start + piece].to(torch.float32 if flat.dtype != torch.float64 else flat.dtype)
            signs = torch.randint(0, 2, part.shape, generator=generator, dtype=torch.int8) * 2 - 1
            signed = torch.nn.functional.pad(part * signs, (0, -len(part) % self.size))
            total += signed.reshape(-1, self.size).sum(0).double()
        return total.roll(int(digest[8]) * self.size // 256)

    def gram(self) -> Tensor:
        """Inner products (n, n) of the gradients kept, oldest first."""
        rows = torch.stack(tuple(self.rows))
        return rows @ rows.mT

    def spectrum(self, unit: bool = False) -> Spectrum:
        """Singular values of the matrix whose rows are the gradients kept; `unit` gives each row norm 1."""
        gram = self.gram()
        if unit:
            scale = gram.diagonal().clamp(min=1e-300).rsqrt()
            gram = gram * scale[:, None] * scale
        return from_gram(gram)
