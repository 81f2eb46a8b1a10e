"""The CPU engine: what is faster on a processor than torch alone, behind one interface.

    decoder         decoding of Llama and Qwen2, in C where there is a compiler
    passes          their log-probabilities and gradients, a prompt computed once for its group
    contract        gradients, Gram matrix and norms of a parameter, in one pass of C
    products        16-bit matrices multiplied in float32, on a processor that cannot multiply them itself
    in_background   parameters processed by other threads while a backward pass goes on; map_pieces: pieces of one

The first three are None where the engine does not take the model or the arrays, or this machine lacks what they need;
the caller then does the same in torch. With GRPOSCOPE_CPU_ENGINE=off in the environment nothing of the engine is used.
Other modules import this one alone: the rest of the folder is private to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.lab.cpu import allocator, contraction, llama, native, threads
from grposcope.lab.cpu.contraction import Contraction, Lookups
from grposcope.lab.cpu.interface import PRECISIONS, Decoder, Draws, DrawsAhead
from grposcope.lab.cpu.model_passes import Passes, Weigh, fits
from grposcope.lab.cpu.threads import WAITING

__all__ = [
    "PRECISIONS",
    "RETURNED",
    "Contraction",
    "Decoder",
    "Draws",
    "DrawsAhead",
    "Lookups",
    "Passes",
    "Weigh",
    "contract",
    "decoder",
    "enabled",
    "in_background",
    "items_held",
    "map_pieces",
    "passes",
    "products",
    "returning",
    "widens",
    "with_products",
]

P = TypeVar("P")
T = TypeVar("T")
S = TypeVar("S")
M = TypeVar("M", bound="torch.nn.Module")
Arguments = ParamSpec("Arguments")


def enabled() -> bool:
    """Whether the engine is used at all: unless GRPOSCOPE_CPU_ENGINE is off in the environment."""
    return os.environ.get("GRPOSCOPE_CPU_ENGINE", "") != "off"


def decoder(
    model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int, precision: str = "float32"
) -> Decoder | None:
    """A decoder that has read the prompts (P, S), padded on the left, for `group` completions of ≤ `steps` tokens.

    precision: number format of its products, one of PRECISIONS, where it `DrawsAhead`; others compute in float32.
    None unless the model is an unadapted float32 Llama or Qwen2 on the CPU.
    """
    if not enabled() or not llama.fits(model):
        return None
    if native.fits(model):
        return native.NativeDecoder(model, ids, mask, group, steps, native.available(precision))
    return llama.LlamaDecoder(model, ids, mask, group, steps)


def passes(model: PreTrainedModel) -> Passes | None:
    """Log-probabilities and gradients of this model by hand; None unless it is an unadapted Llama or Qwen2 on the CPU.

    float32 and float64 are taken.
    """
    return Passes(model) if enabled() and fits(model) else None


def contract(
    rows: Tensor,
    columns: Tensor,
    lookups: Lookups | None,
    weights: Tensor,
    main: int | None,
    *,
    with_gram: bool,
    in_pieces: bool,
) -> Contraction | None:
    """What a probe takes from one parameter with S_i = Σ_t rows_{i,t} columns_{i,t}ᵀ, the look-ups added.

    rows (B, L, R), columns (B, L, C). weights (K, B): Σ u_i S_i is taken for each row u; main: which of these is
    measured; with_gram: whether inner products of the S_i are. in_pieces: all threads work on the parameter.
    None where the factors are not in float32 on a CPU, for many rollouts, and without a compiler and AVX-512.
    """
    if not enabled() or not contraction.takes(rows, columns, lookups):
        return None
    return contraction.contract(rows, columns, lookups, weights, main, with_gram=with_gram, in_pieces=in_pieces)


def products(model: torch.nn.Module) -> AbstractContextManager[object]:
    """Within this context, a 16-bit model on a CPU without 16-bit products multiplies in float32, and rounds."""
    from grposcope.lab.cpu import sixteen_bits  # its class needs torch itself

    return sixteen_bits.Widened() if widens(model) else nullcontext()


def widens(model: torch.nn.Module) -> bool:
    """Whether `products` of this model are in float32, so that each takes a copy of its factors and its result."""
    from grposcope.lab.cpu import sixteen_bits

    return enabled() and any(sixteen_bits.slow(p.dtype) and p.device.type == "cpu" for p in model.parameters())


def with_products(function: Callable[Concatenate[M, Arguments], T]) -> Callable[Concatenate[M, Arguments], T]:
    """The function of a model and more, within `products` of the model."""

    @wraps(function)
    def within(model: M, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> T:
        with products(model):
            return function(model, *arguments, **named)

    return within


def in_background(
    work: Callable[[S], T], keep: Callable[[T], None], device: torch.device, alone: Callable[[S], bool]
) -> AbstractContextManager[Callable[[S], None]]:
    """A visitor that calls `work` on each item, in any thread, and `keep` on each result, in order, in the caller's.

    alone: whether an item is worked on by the caller with all threads. An exception in `work` is raised from one of
    the next visits, or at the end of the block. On a GPU, and without the engine, everything is done in turn.
    """
    if not enabled():
        return nullcontext(lambda x: keep(work(x)))
    return threads.in_background(work, keep, device, alone)


def map_pieces(work: Callable[[P], T], pieces: Sequence[P], device: torch.device) -> list[T]:
    """`work` of each piece, in order; distributed over threads where there are many pieces, on a CPU."""
    return threads.map_pieces(work, pieces, device) if enabled() else [work(piece) for piece in pieces]


def items_held(device: torch.device) -> int:
    """Largest number of items not `alone` that `in_background` works on or keeps waiting at the same time."""
    return _items_held(device) if enabled() else 1


def _items_held(device: torch.device) -> int:
    """Largest number of items not `alone` that are processed or wait at the same time."""
    threads = torch.get_num_threads()
    return 1 if device.type != "cpu" or threads == 1 else 1 + threads - threads // 2 + WAITING


RETURNED = allocator.RETURNED
"""Bytes from which arrays are given back to the system at once, while memory is `returning`."""


def returning(device: torch.device) -> AbstractContextManager[None]:
    """While measuring on a CPU, memory of large arrays is given back at once, so that its peak can be foretold."""
    return allocator.returning() if enabled() and device.type == "cpu" else nullcontext()
