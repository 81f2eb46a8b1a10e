"""Products of 16-bit matrices on a processor that has no instructions for them.

There torch multiplies entry by entry, and a pass takes some twenty times as long as in float32. Inside `Widened`
the factors of each product are converted to float32, and the product is rounded once, as it is where a processor
multiplies 16-bit numbers: sums are in float32 either way. Weights and what is kept for the backward pass stay as they
are; the copies of one product's factors are all that it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_ATEN: Any = torch.ops.aten
_GRAPHLESS = {getattr(_ATEN, name).default for name in ("linear", "matmul", "scaled_dot_product_attention")}
"""Products as they come where no graph is made; otherwise they come as some of the next."""

_NAMES = ["mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "_scaled_dot_product_flash_attention_for_cpu"]
_FIRST_ONLY = _GRAPHLESS | {getattr(_ATEN, name).default for name in _NAMES if hasattr(_ATEN, name)}
"""Products, and attention forward, whose other results are in float32 in any case."""

_ALL = {_ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default}
"""Products all of whose results are rounded."""

FEW = 8
"""Rows up to which converting the weights takes longer than their product, where a token is drawn for each row."""

_SHORT = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
"""Formats of 16 bits, and what tells whether this processor multiplies them."""


@cache
def slow(dtype: torch.dtype) -> bool:
    """Whether this processor multiplies matrices of this format entry by entry."""
    return dtype in _SHORT and not getattr(torch.ops.mkldnn, _SHORT[dtype])()


class Widened(TorchDispatchMode):
    """Within this context, products of 16-bit matrices on the CPU are computed in float32, then rounded."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function of torch; one of the products in float32."""
        options = kwargs or {}
        short = next((x.dtype for x in args if _is_short(x)), None) if function in _FIRST_ONLY | _ALL else None
        if short is None or (function in _GRAPHLESS and args[0].numel() <= FEW * args[0].shape[-1]):
            return function(*args, **options)
        out = function(*map(_float, args), **{name: _float(value) for name, value in options.items()})
        if isinstance(out, Tensor):
            return out.to(short)
        last = len(out) if function in _ALL else 1
        return tuple(x.to(short) if i < last and isinstance(x, Tensor) else x for i, x in enumerate(out))


def _is_short(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype in _SHORT and x.device.type == "cpu"


def _float(x: Any) -> Any:
    """A 16-bit matrix in float32; one that stands for many, such as a head's weights for each row, is copied once."""
    if not _is_short(x):
        return x
    once = x
    for dimension, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        if size > 1 and stride == 0:
            once = once.narrow(dimension, 0, 1)
    return once.float().expand(x.shape)
