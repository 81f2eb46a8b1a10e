"""Ranks of a spectrum, each by its name, and the singular values they are taken from.

With σ₁ ≥ σ₂ ≥ … the singular values and x = σ² the energies:

    stable          Σx / x₁
    participation   (Σx)² / Σx²
    entropy         exp(−Σ p ln p), p = σ/Σσ      (Roy & Vetterli 2007, the effective rank)
    entropy_sq      exp(−Σ p ln p), p = x/Σx
    energy_q        least k whose leading energies reach q % of Σx (q = 90, 95, 99)
    threshold_τ     #{σ_i ≥ τ σ₁} (τ = 0.1, 0.01)

All but the threshold ranks fall when energy moves from small to large singular values. So the ranks of a
spectrum known in part are enclosed (`bounds`; method of this project, no publication): in the order of
majorisation the true spectrum lies between "the rest of the energy is spread evenly" and "the rest is as
concentrated as the known values allow". A matrix of zeros, or one that is not finite, has rank NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from grposcope.lab.workers import ALONE, Rows

SMALL = 160
"""Shorter side up to which all singular values are computed: cheaper than an iteration, and exact."""
PIECE = 16 * 2**20
"""Bytes of a matrix converted to float64 at a time."""
ENERGIES = (90, 95, 99)
THRESHOLDS = (0.1, 0.01)
NAMES = (
    "stable",
    "participation",
    "entropy",
    "entropy_sq",
    *(f"energy_{q}" for q in ENERGIES),
    *(f"threshold_{t}" for t in THRESHOLDS),
)
"""Every rank of `ranks`, in its order."""


@dataclass(frozen=True)
class Spectrum:
    """Singular values of one matrix, all of them or the leading ones.

    values:    in decreasing order, float64.
    slack:     how far each true value may lie above the one given; 0 where the spectrum is complete.
    size:      how many singular values the matrix has, the smaller of its sides.
    frobenius: ‖·‖_F, exact.
    """

    values: NDArray[np.float64]
    slack: NDArray[np.float64]
    size: int
    frobenius: float

    @property
    def complete(self) -> bool:
        """Whether all singular values are known."""
        return len(self.values) == self.size

    @property
    def left_out(self) -> float:
        """Share of the squared Frobenius norm that the values do not account for."""
        if not self.frobenius:
            return math.nan
        return max(0.0, 1 - float((self.values**2).sum()) / self.frobenius**2)

    def times(self, factor: float) -> Spectrum:
        """Spectrum of the matrix scaled by `factor` > 0."""
        return Spectrum(self.values * factor, self.slack * factor, self.size, self.frobenius * factor)

    def ranks(self) -> dict[str, float]:
        """Every rank by name; the middle of its bounds where the spectrum is known in part."""
        if self.complete:
            return ranks(self.values)
        return {name: (low + high) / 2 for name, (low, high) in self.bounds().items()}

    def bounds(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest value that each rank can have, given what is known; equal for a complete spectrum."""
        if self.complete:
            return {name: (value, value) for name, value in ranks(self.values).items()}
        return _bounds(self.values, self.slack, self.size, self.frobenius)


def ranks(singular_values: ArrayLike | Tensor) -> dict[str, float]:
    """Every rank by name, from all singular values of a matrix, in any order; NaN for empty or all-zero input."""
    given = singular_values.detach().cpu().double().numpy() if isinstance(singular_values, Tensor) else singular_values
    values = np.sort(np.asarray(given, dtype=np.float64).ravel())[::-1]
    if not len(values) or not np.isfinite(values).all() or values[0] <= 0:
        return dict.fromkeys(NAMES, math.nan)
    sigma = values / values[0]  # no overflow in the fourth powers
    energy = sigma**2
    total = energy.sum()
    by_name = {
        "stable": total,
        "participation": total**2 / (energy**2).sum(),
        "entropy": _perplexity(sigma),
        "entropy_sq": _perplexity(energy),
    }
    reached = energy.cumsum()
    for q in ENERGIES:  # 1e-12 keeps rounding in the sum from requiring one more
        by_name[f"energy_{q}"] = 1 + int((reached < (q / 100 - 1e-12) * total).sum())
    for threshold in THRESHOLDS:
        by_name[f"threshold_{threshold}"] = int((sigma >= threshold).sum())
    return {name: float(value) for name, value in by_name.items()}


def _bounds(
    values: NDArray[np.float64], slack: NDArray[np.float64], size: int, frobenius: float
) -> dict[str, tuple[float, float]]:
    """Lowest and highest value of each rank, from the leading singular values and the Frobenius norm.

    values: k leading ones, decreasing, each at most the true one, as Rayleigh-Ritz gives them.
    slack: how far the true ones may lie above (k,). size: how many there are. The bounds of
    `entropy`, which is not a function of the energies alone, hold while the rest are small
    (σ exp(H)/Σσ < e for them); the others hold always.
    """
    if not len(values) or values[0] <= 0 or not math.isfinite(frobenius):
        return dict.fromkeys(NAMES, (math.nan, math.nan))
    spread, dense = _spread(values, size, frobenius), _concentrated(values + slack, size, frobenius)
    high, low = ranks(spread), ranks(dense)
    by_name = {name: (min(low[name], high[name]), max(low[name], high[name])) for name in NAMES}
    rest = max(frobenius**2 - float((values**2).sum()), 0.0)
    for threshold in THRESHOLDS:
        surely = int((values >= threshold * (values[0] + slack[0])).sum())
        possibly = int((values + slack >= threshold * values[0]).sum())
        if possibly == len(values):
            possibly += min(size - len(values), math.floor(rest / (threshold * values[0]) ** 2))
        by_name[f"threshold_{threshold}"] = (float(surely), float(possibly))
    return by_name


def exact(matrix: Tensor, scale: Tensor | None = None, rows: Rows | None = None) -> Spectrum:
    """All singular values, from the eigenvalues of the smaller Gram matrix in float64.

    scale: factors of the rows, those of all processes. rows: where several processes hold some rows of the matrix each.
    Squaring costs half the digits: values below about 1e-8 σ₁ are noise, far below what gradients in
    float32 carry.
    """
    rows = ALONE.rows(len(matrix)) if rows is None else rows
    count = rows.total if scale is None else int((scale != 0).sum())
    own = matrix if scale is None else _scaled(matrix, scale[rows.mine])
    if count >= matrix.shape[1]:
        return from_gram(rows.sum(_inner(own)))
    if rows.workers.size == 1:
        return from_gram(_inner(own.mT))
    present = torch.ones(rows.total) if scale is None else scale
    ends = [0, *accumulate(int((present[span] != 0).sum()) for span in rows.ranges)]
    nonzero_rows = Rows(rows.workers, tuple(map(slice, ends, ends[1:])))
    square = torch.zeros(count, count, dtype=torch.float64, device=matrix.device)
    for number, columns in enumerate(own.split(max(1, PIECE // (8 * count)), dim=1)):
        whole = nonzero_rows.join(columns.contiguous())
        if number % rows.workers.size == rows.workers.number:
            square += _inner(whole.mT)
    return from_gram(rows.sum(square))


def _inner(tall: Tensor) -> Tensor:
    """Inner products of the columns, in float64; those below the diagonal are copied from above it."""
    size = tall.shape[1]
    square = torch.zeros(size, size, dtype=torch.float64, device=tall.device)
    side = max(1, math.ceil(size / 4))
    for piece in tall.split(max(1, PIECE // (8 * max(size, 1)))):
        wide = piece.double()
        for at in range(0, size, side):
            square[at : at + side, at:].addmm_(wide[:, at : at + side].mT, wide[:, at:])
    return square.triu() + square.triu(1).mT


def from_gram(gram: Tensor) -> Spectrum:
    """Singular values of a matrix whose rows have these inner products, (n, n)."""
    square = gram.double()
    if not bool(torch.isfinite(square).all()):
        return _undefined(len(gram))
    energy = torch.linalg.eigvalsh(square).flip(0).clamp(min=0)
    values = energy.sqrt().cpu().numpy()
    norm = math.sqrt(max(float(square.diagonal().sum()), 0.0))
    return Spectrum(values, np.zeros_like(values), len(gram), norm)


def leading(
    matrix: Tensor,
    count: int = 24,
    rounds: int = 1,
    seed: int = 0,
    scale: Tensor | None = None,
    frobenius: float | None = None,
    rows: Rows | None = None,
) -> Spectrum:
    """The `count` largest singular values by randomized subspace iteration (Halko, Martinsson & Tropp 2011).

    scale: factors of the rows, those of all processes, so that the scaled matrix need not be built. frobenius: the
    norm of the scaled matrix, where it is known. rounds: multiplications of the basis by G Gᵀ, at least one. seed: of
    the start. rows: where several processes hold some rows of the matrix each; they call this together, and exchange
    vectors.

    The values are Ritz values, which exceed the true ones by rounding at most; `slack` is the residual ‖G v − σ u‖ of
    each, within which a singular value lies. This is the singular value of the same index unless the random
    start is orthogonal to a leading direction, which has probability 0 but is not checked.
    The basis lies on the shorter side, the only one that is orthogonalised.
    """
    rows = ALONE.rows(len(matrix)) if rows is None else rows
    length, columns = rows.total, matrix.shape[1]
    size = min(length if scale is None else int((scale != 0).sum()), columns)
    if size <= max(2 * count, SMALL):
        return exact(matrix, scale, rows)
    kind = torch.promote_types(matrix.dtype, torch.float32)  # there is no QR in 16 bits
    factor = None if scale is None else scale[rows.mine, None].to(matrix.device, kind)

    def by_row(x: Tensor) -> Tensor:
        return x if factor is None else factor * x

    if frobenius is None:
        norms = by_row(torch.linalg.vector_norm(matrix, dim=1, keepdim=True, dtype=kind))
        square = torch.linalg.vector_norm(norms, dtype=torch.float64).square()
        frobenius = float(rows.sum(square)) ** 0.5
    if not math.isfinite(frobenius) or frobenius == 0:
        return _undefined(size, frobenius)

    def right(x: Tensor) -> Tensor:
        return rows.join(by_row(_times(matrix, x)))

    def from_left(x: Tensor) -> Tensor:
        return rows.sum(_transposed_times(matrix, by_row(x[rows.mine])))

    out, back = (
        (from_left, right) if length <= columns else (right, from_left)
    )  # from the shorter side to the longer, and back
    basis = _start(min(length, columns), count + 8, seed).to(matrix.device, kind)
    for _ in range(rounds):
        basis = torch.linalg.qr(back(out(basis))).Q
    image = out(basis)  # Rayleigh-Ritz in the span of the basis
    wide = image.double()
    energy, turn = torch.linalg.eigh(wide.mT @ wide)
    values, turn = energy.flip(0)[:count].clamp(min=0).sqrt(), turn.flip(1)[:, :count].to(basis)
    # with u = basis · turn and v = Gᵀu/σ only the part of G v outside the span is left
    ends = image @ (turn / values.clamp(min=1e-12 * frobenius).to(basis))
    slack = torch.linalg.vector_norm(back(ends) - basis @ turn * values.to(basis), dim=0)
    return Spectrum(values.cpu().numpy(), slack.double().cpu().numpy(), size, frobenius)


def _times(matrix: Tensor, x: Tensor) -> Tensor:
    """matrix @ x in the precision of x; a matrix in 16 bits is converted some rows at a time."""
    if matrix.dtype == x.dtype:
        return matrix @ x
    return torch.cat([piece.to(x) @ x for piece in _parts(matrix)])


def _transposed_times(matrix: Tensor, x: Tensor) -> Tensor:
    """matrix.mT @ x in the precision of x; a matrix in 16 bits is converted some rows at a time."""
    if matrix.dtype == x.dtype:
        return matrix.mT @ x
    total = x.new_zeros(matrix.shape[1], x.shape[1])
    for piece, own in zip(_parts(matrix), x.split(_rows_at_once(matrix)), strict=True):
        total.addmm_(piece.to(x).mT, own)
    return total


def _parts(matrix: Tensor) -> tuple[Tensor, ...]:
    return matrix.split(_rows_at_once(matrix))


def _rows_at_once(matrix: Tensor) -> int:
    return max(1, PIECE // (8 * matrix.shape[1]))


@lru_cache(maxsize=32)
def _start(rows: int, columns: int, seed: int) -> Tensor:
    """Standard normal random numbers (rows, columns)."""
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def _scaled(matrix: Tensor, scale: Tensor) -> Tensor:
    """The rows of a matrix multiplied by `scale` (rows,); rows of scale 0 are left out."""
    nonzero = scale != 0
    kind = torch.promote_types(matrix.dtype, torch.float32)
    return matrix[nonzero].to(kind).mul_(scale[nonzero][:, None].to(kind))


def _undefined(size: int, frobenius: float = math.nan) -> Spectrum:
    return Spectrum(np.full(size, frobenius), np.zeros(size), size, frobenius)


def _perplexity(weights: NDArray[np.float64]) -> float:
    """exp of the entropy of weights / Σ weights, with 0 ln 0 = 0."""
    shares = weights / weights.sum()
    shares = shares[shares > 0]
    return math.exp(-float((shares * np.log(shares)).sum()))


def _spread(values: NDArray[np.float64], size: int, frobenius: float) -> NDArray[np.float64]:
    """The known values, and the rest of the energy spread evenly over the others, in decreasing order."""
    energy = values**2
    for rank in range(len(energy), 0, -1):
        rest = max(frobenius**2 - float(energy[:rank].sum()), 0.0)
        level = rest / (size - rank) if size > rank else 0.0
        if level <= energy[rank - 1]:
            return np.concatenate((values[:rank], np.full(size - rank, math.sqrt(level))))
    return np.full(size, frobenius / math.sqrt(size))


def _concentrated(caps: NDArray[np.float64], size: int, frobenius: float) -> NDArray[np.float64]:
    """The spectrum with as much energy in each leading value as its cap allows, until all of it is used."""
    caps = np.minimum.accumulate(caps)
    allowed = np.concatenate((caps, np.full(size - len(caps), caps[-1]))) ** 2
    before = np.concatenate(([0.0], allowed.cumsum()[:-1]))
    return np.sqrt(np.clip(frobenius**2 - before, 0.0, allowed))
