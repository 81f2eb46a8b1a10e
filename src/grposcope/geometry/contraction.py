"""Gradients, Gram matrix and norms of one parameter from its factors, in one pass of C where a compiler is installed.

The same in torch writes every rollout's matrix S_i to memory and reads it three times; `c/contraction.c` does not. It
takes float32 factors of linear layers and of an embedding tied to the head, of few rollouts, on processors with
AVX-512; `takes` says which. Results are those of torch to round-off.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from grposcope.geometry import background
from grposcope.geometry.gram import FEW
from grposcope.geometry.score import Score, Use
from grposcope.geometry.sparsity import EntryNorms
from grposcope.policies import compiled

SOURCES = Path(__file__).parent / "c"
PANEL = 48
"""Columns that are taken together."""
ROWS = 1024
"""Rows of a large parameter that a thread takes at a time."""

_Pointer, _Whole = ctypes.c_void_p, ctypes.c_int64


class _Lookups(ctypes.Structure):
    _fields_ = [("count", _Whole), *((name, _Pointer) for name in ("row", "rollout", "at", "columns"))]


@cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None where they cannot be made, which is said once, or would be slow."""
    loaded = compiled.library(SOURCES, "contraction.c", "contraction", "the probe")
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


def takes(score: Score) -> bool:
    """Whether `contract` computes this parameter: one dense use and at most one look-up, few rollouts, in float32."""
    dense = [use for use in score.uses if not use.lookup]
    floats = [array for use in score.uses for array in (use.columns, use.rows) if array.is_floating_point()]
    return (
        len(dense) == 1
        and len(score.uses) <= 2
        and score.rollouts <= FEW
        and score.device.type == "cpu"
        and all(array.dtype == torch.float32 for array in floats)
        and library() is not None
    )


def contract(
    score: Score, weights: Tensor, main: int | None, *, with_gram: bool
) -> tuple[Tensor, Tensor | None, EntryNorms | None]:
    """Σ u_i S_i (K, R, C) for each row u of weights (K, B), the Gram matrix (B, B) if asked for, norms of the main one.

    main: which of the gradients that is. Only for a score that `takes` says yes to.
    """
    loaded = library()
    assert loaded is not None
    (dense,), looked = ([use for use in score.uses if use.lookup == lookup] for lookup in (False, True))
    rows, columns = dense.rows.contiguous(), dense.columns.contiguous()
    (count, length, height), width = rows.shape, columns.shape[-1]
    weights = weights.to(rows).contiguous()
    gradients = torch.empty(len(weights), height, width)
    packed = torch.empty(loaded.panels(width), count * length, PANEL)
    loaded.pack_columns(columns.data_ptr(), count * length, width, packed.data_ptr())
    lookups, kept = _lookups(looked, height)

    def work(piece: slice) -> tuple[Tensor, Tensor]:
        inner, norms = torch.zeros(count, count, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
        room = torch.empty(loaded.room_floats(count, length))
        loaded.contract(
            rows.data_ptr(), packed.data_ptr(), count, length, height, width, piece.start, piece.stop,
            weights.data_ptr(), len(weights), gradients.data_ptr(), inner.data_ptr() if with_gram else None,
            -1 if main is None else main, norms.data_ptr(), ctypes.byref(lookups), room.data_ptr(),
        )  # fmt: skip
        return inner, norms

    step = ROWS if height * width >= background.LARGE else height
    pieces = [slice(start, min(start + step, height)) for start in range(0, height, step)]
    products, norms = zip(*background.map_pieces(work, pieces, score.device), strict=True)
    del kept
    together = [EntryNorms(*one.tolist()) for one in norms]
    inner = torch.stack(products).sum(0) if with_gram else None
    return gradients, inner, None if main is None else EntryNorms.together(together)


def _lookups(uses: list[Use], height: int) -> tuple[_Lookups, list[Tensor]]:
    """The look-ups of rows below `height`, sorted by row, and the arrays that must outlive them."""
    if not uses:
        return _Lookups(0, None, None, None, None), []
    (use,) = uses
    inside = (use.rows >= 0) & (use.rows < height) & (use.rows != use.padding)
    at = inside.flatten().nonzero()[:, 0]
    ids = use.rows.flatten()[at]
    order = ids.argsort(stable=True)
    kept = [ids[order], at[order] // use.rows.shape[1], at[order], use.columns.contiguous()]
    return _Lookups(len(at), *(array.data_ptr() for array in kept)), kept
