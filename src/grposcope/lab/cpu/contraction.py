"""Gradients, Gram matrix and norms of one parameter from its factors, in one pass of C where a compiler is installed.

The same in torch writes every rollout's matrix S_i to memory and reads it three times; `c/contraction.c` does not. It
takes float32 factors of linear layers and of an embedding tied to the head, of few rollouts, on processors with
AVX-512; `takes` says which. Results are those of torch to round-off.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from grposcope.lab.cpu import c_library, threads

FEW = 32
"""Rollouts that are taken at most: torch multiplies the matrices of more of them well."""
PANEL = 48
"""Columns that are taken together."""
ROWS = 1024
"""Rows that a thread takes at a time, of a parameter that all threads work on."""

_Pointer, _Whole = ctypes.c_void_p, ctypes.c_int64


class Lookups(NamedTuple):
    """Rows that are looked up: columns (B, L, C) are added to the rows ids (B, L) of S_i, but for the id `padding`."""

    ids: Tensor
    columns: Tensor
    padding: int


class Contraction(NamedTuple):
    """Results of `contract`.

    gradients (K, R, C). gram (B, B) in float64, None where it was not asked for. norms (n, 3), None without a main
    gradient: its largest absolute value, sum of absolute values and sum of squares, by piece.
    """

    gradients: Tensor
    gram: Tensor | None
    norms: Tensor | None


class _Lookups(ctypes.Structure):
    _fields_ = [("count", _Whole), *((name, _Pointer) for name in ("row", "rollout", "at", "columns"))]


@cache
def _library() -> ctypes.CDLL | None:
    """The compiled functions; None where they cannot be made, which is said once, or would be slow."""
    loaded = c_library.library("contraction.c", "contraction", "the probe")
    if loaded is None or not loaded.fast():
        return None
    factors, results = (_Pointer, _Pointer, *6 * [_Whole]), (_Pointer, _Whole, _Pointer, _Pointer, _Whole, _Pointer)
    for name, arguments, result in (
        ("panels", (_Whole,), _Whole),
        ("pack_columns", (_Pointer, _Whole, _Whole, _Pointer), None),
        ("room_floats", (_Whole, _Whole), _Whole),
        ("contract", (*factors, *results, _Pointer, _Pointer), None),
    ):
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, result
    return loaded


def takes(rows: Tensor, columns: Tensor, lookups: Lookups | None) -> bool:
    """Whether `contract` computes a parameter with these factors: few rollouts, in float32."""
    floats = (rows, columns) if lookups is None else (rows, columns, lookups.columns)
    return (
        len(rows) <= FEW
        and rows.device.type == "cpu"
        and all(array.dtype == torch.float32 for array in floats)
        and _library() is not None
    )


def contract(
    rows: Tensor,
    columns: Tensor,
    lookups: Lookups | None,
    weights: Tensor,
    main: int | None,
    *,
    with_gram: bool,
    in_pieces: bool,
) -> Contraction:
    """Σ u_i S_i (K, R, C) for each row u of weights (K, B), the Gram matrix (B, B) if asked for, norms of the main one.

    rows (B, L, R), columns (B, L, C); main: which of the gradients is measured; in_pieces: over all threads. Only for
    factors that `takes` says yes to.
    """
    loaded = _library()
    assert loaded is not None
    rows, columns = rows.contiguous(), columns.contiguous()
    (count, length, height), width = rows.shape, columns.shape[-1]
    weights = weights.to(rows).contiguous()
    gradients = torch.empty(len(weights), height, width)
    packed = torch.empty(loaded.panels(width), count * length, PANEL)
    loaded.pack_columns(columns.data_ptr(), count * length, width, packed.data_ptr())
    looked_up, ordered = _sorted(lookups, height)

    def work(piece: slice) -> tuple[Tensor, Tensor]:
        inner, norms = torch.zeros(count, count, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
        room = torch.empty(loaded.room_floats(count, length))
        loaded.contract(
            rows.data_ptr(), packed.data_ptr(), count, length, height, width, piece.start, piece.stop,
            weights.data_ptr(), len(weights), gradients.data_ptr(), inner.data_ptr() if with_gram else None,
            -1 if main is None else main, norms.data_ptr(), ctypes.byref(looked_up), room.data_ptr(),
        )  # fmt: skip
        return inner, norms

    step = ROWS if in_pieces else height
    pieces = [slice(start, min(start + step, height)) for start in range(0, height, step)]
    products, norms = zip(*threads.map_pieces(work, pieces, rows.device), strict=True)
    del ordered
    inner = torch.stack(products).sum(0) if with_gram else None
    return Contraction(gradients, inner, None if main is None else torch.stack(norms))


def _sorted(lookups: Lookups | None, height: int) -> tuple[_Lookups, list[Tensor]]:
    """The look-ups of rows below `height`, sorted by row, and the arrays that must outlive them."""
    if lookups is None:
        return _Lookups(0, None, None, None, None), []
    rows = lookups.ids
    inside = (rows >= 0) & (rows < height) & (rows != lookups.padding)
    at = inside.flatten().nonzero()[:, 0]
    ids = rows.flatten()[at]
    order = ids.argsort(stable=True)
    ordered = [ids[order], at[order] // rows.shape[1], at[order], lookups.columns.contiguous()]
    return _Lookups(len(at), *(array.data_ptr() for array in ordered)), ordered
