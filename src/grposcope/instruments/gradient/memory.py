"""Memory that a probe takes above its loaded model, said before the pass begins.

A probe holds most in one of five moments, each of which holds a sum of arrays that follow from shapes:

    check       autograd's largest gradient, with the sums and copies that comparing it takes
    forward     activations kept, logits, and one piece of work on them
    head        activations kept, logits, the gradient of the head
    blocks      activations kept, one block recomputed, factors and gradients of the layers in work; the logits where
                the head is tied to the embedding, since its score is whole only at the end
    embedding   logits and the gradient of a tied embedding

What a block keeps per token is observed in the self-check. Measured against peaks of processes in
`benchmarks/probe_memory.py`; docs/results.md has the ratios. The prediction is of a CPU; a GPU has no heap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from grposcope.instruments.gradient import checkpointing, without_hook
from grposcope.instruments.gradient.layers import HELD
from grposcope.instruments.gradient.logits import tokens_at_once
from grposcope.instruments.gradient.score import block_bytes, is_large
from grposcope.instruments.gradient.spectrum import SMALL
from grposcope.lab import cpu
from grposcope.lab.policies import recomputes_activations
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.workers import ALONE, Workers

if TYPE_CHECKING:
    from grposcope.instruments.gradient.backward import AttachedModel

FIXED = 20e6
"""Bytes that every probe takes: threads, code that libraries load or make on first use, results."""

HEAP = 1.15
"""Memory taken over memory in use, of arrays below `cpu.RETURNED`, which the C library keeps for later use."""

GRADIENTS = 3
"""Gradients of a block's largest array that its backward pass holds: what came in, what goes out, and one product."""

SKETCH = 16 * 24
"""Bytes per row of what finds the leading singular values of a gradient: 24 vectors, in three copies."""

GAPS = 0.35
"""Share of every block's activations that stays in gaps of the heap, where a graph of many small objects grows between
arrays below `cpu.RETURNED`: in models that checkpoint by themselves."""

GAPS_OF_STACKS = 0.1
"""The same in models with stacks of experts."""


@dataclass(frozen=True)
class _ProbeMemory:
    """Bytes that a probe holds in each of its moments, see above; pieces: of the scores built, on a GPU, in any."""

    check: float
    forward: float
    head: float
    blocks: float
    embedding: float
    pieces: float = 0.0

    @property
    def peak(self) -> float:
        """Bytes at the most."""
        return max(self.check, self.forward, self.head, self.blocks, self.embedding) + self.pieces + FIXED


def needed(
    attached: AttachedModel, rollouts: RolloutBatch, workers: Workers = ALONE, weightings: int = 1, check: bool = True
) -> _ProbeMemory:
    """What a probe of these rollouts holds in each process, after `attach` has checked `attached`.

    weightings: gradients of a layer that are taken together, as far as `HELD` allows. check: whether a self-check
    belongs to it.
    """
    every, width = rollouts.tokens.shape
    rows = math.ceil(every / workers.size)
    longest = int(rollouts.prompt_mask.sum(-1).max()) + width
    head, tied = _head(attached)
    itemsize, vocabulary = (4, 0) if head is None else (head.itemsize, max(head.shape))
    scores = rows * (width + 1) * vocabulary
    logits, factor = scores * itemsize, scores * max(itemsize, 4)  # as the model computes them, and as measured
    heads = {name for name, p in attached.measured.items() if p is head}
    looked_up = None if tied else _weight(attached, "get_input_embeddings")
    inner = {name: p for name, p in attached.measured.items() if p is not head and p is not looked_up and p.dim() > 1}
    measures_embedding = any(p is looked_up for p in attached.measured.values())

    saved = attached.bytes_per_token * rows * longest
    on_heap = _on_heap(attached, rollouts, itemsize * rows * longest)
    more = HEAP if on_heap else 1.0
    block = (more * attached.block_bytes + GRADIENTS * attached.array_bytes) * rows * longest
    freed = _if(on_heap, more * attached.block_bytes * rows * longest)  # of the blocks' forward passes
    block += 0.0 if bool(rollouts.prompt_mask.all()) else _scores_of_attention(attached, rollouts)
    stacks = sorted(
        (sum(p.shape[-2:]) for name, p in inner.items() if p.dim() == 3 and name not in attached.apart), reverse=True
    )
    routed = 2 * 4 * every * longest * _experts_per_token(attached) * sum(stacks[:2])
    blocks = checkpointing.every_block(attached.model)
    share = GAPS if recomputes_activations(attached.model) else GAPS_OF_STACKS if stacks else 0.0
    gaps = share * freed * len(blocks)
    together = cpu.items_held(rollouts.mask.device)
    sides = [sum(p.shape[-2:]) for p in inner.values() if not is_large(p[0].numel() * len(p))]
    waiting = more * 4 * every * longest * _most_together(sides, together)
    sizes = sorted((math.prod(p.shape[-2:]) for p in inner.values()), reverse=True)
    gradients = sum(_gradients(size, weightings) for size in sizes[: 1 + (together > 1)])
    own = _if(bool(heads), _gradients(_entries(head), weightings))
    sketch = SKETCH * vocabulary
    few = 4 * scores if width * rows <= SMALL else 3 * 4 * tokens_at_once(rollouts.mask.device) * vocabulary
    factors = _if(bool(heads), factor)  # the score of the head
    last = _if(not tied and bool(heads), factors + own)  # of an untied head that background threads work on
    last = _if(not is_large(_entries(head)), last)
    apart_bytes = min(4 * every * sum(attached.measured[name].numel() for name in attached.apart), without_hook.HELD)
    wide, wide_head, wide_check = _widened(attached, inner.values(), head, rows, (longest, width))
    largest = max(((p.numel(), p) for p in attached.measured.values()), key=lambda sized: sized[0])[1]
    of_embedding = 0.0
    if looked_up is not None and measures_embedding:
        of_embedding = _gradients(looked_up.numel(), weightings) + sketch
    return _ProbeMemory(
        check=_if(check, _check(largest, tied and largest is head) + wide_check),
        forward=saved + logits + gaps + max(few, block / 2, wide_head),
        head=saved
        + max(logits, factors)
        + _if(itemsize < 4 and bool(heads), logits)
        + _if(not tied, own + sketch)
        + wide_head
        + freed,
        blocks=saved + block + gaps + routed + wide + waiting + gradients + _if(tied, factors) + last + apart_bytes,
        embedding=apart_bytes + freed + _if(tied, factors + own + sketch) + of_embedding,
        pieces=_pieces(every * largest.numel(), rollouts.mask.device),
    )


def _on_heap(attached: AttachedModel, rollouts: RolloutBatch, entries: int) -> bool:
    """Whether the states of so many bytes per unit of width come from the heap of the C library and stay there."""
    on_cpu = rollouts.mask.device.type == "cpu"
    return on_cpu and entries * getattr(_text(attached), "hidden_size", 0) < cpu.RETURNED


def _entries(weight: Tensor | None) -> int:
    return 0 if weight is None else weight.numel()


def _if(condition: bool, amount: float) -> float:
    """The bytes where the condition holds, else none."""
    return amount if condition else 0.0


def _widened(
    attached: AttachedModel, inner: Iterable[Tensor], head: Tensor | None, rows: int, tokens: tuple[int, int]
) -> tuple[float, float, float]:
    """Bytes of copies in float32 of a block's, the head's and the check's products; 0 where none are made.

    tokens: of a row, those of the prompt among them, and without.
    """
    if not cpu.widens(attached.model):  # else a product has copies of its factors and its result in float32
        return 0.0, 0.0, 0.0
    longest, width = tokens
    wide = max((_copies(p.shape[-2:], rows * longest) for p in inner), default=0.0)
    wide_head = 0.0 if head is None else _copies(head.shape, rows * (width + 1))
    return wide, wide_head, 4.0 * max((math.prod(p.shape[-2:]) for p in attached.measured.values()), default=0)


def _head(attached: AttachedModel) -> tuple[Tensor | None, bool]:
    """The weights of the head, and whether these are the embedding's."""
    head = _weight(attached, "get_output_embeddings")
    return head, head is not None and head is _weight(attached, "get_input_embeddings")


def _weight(attached: AttachedModel, name: str) -> Tensor | None:
    """The weights of the module that a function of the model names."""
    weight: Tensor | None = getattr(getattr(attached.model, name, lambda: None)(), "weight", None)
    return weight


def _text(attached: AttachedModel) -> Any:
    """The configuration of the text, also of a vision-language model."""
    config = attached.model.config
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _experts_per_token(attached: AttachedModel) -> int:
    config = _text(attached)
    names = ("num_experts_per_tok", "top_k_experts", "moe_top_k", "num_selected_experts")
    return next((int(getattr(config, name)) for name in names if getattr(config, name, None)), 1)


def _most_together(sizes: list[int], count: int) -> int:
    """The largest sum of `count` neighbours in a list, all of one that is shorter."""
    return max((sum(sizes[at : at + count]) for at in range(max(1, len(sizes) - count + 1))), default=0)


def _gradients(size: int, weightings: int) -> float:
    """Bytes of the gradients of a matrix of `size` entries that are held together."""
    return 4.0 * size * max(1, min(weightings, HELD // (4 * size))) if size else 0.0


def _copies(shape: Sequence[int], tokens: int) -> float:
    """Bytes of a product of a matrix of this shape with so many tokens: both factors and the result in float32."""
    return 4.0 * (math.prod(shape) + tokens * sum(shape))


def _pieces(entries: int, device: torch.device) -> float:
    """Bytes of a piece of the largest scores, of so many entries, and of a product of it, where these are not small."""
    return 0.0 if device.type == "cpu" else 2.0 * min(block_bytes(device), 4 * entries)


def _check(largest: Tensor, tied: bool) -> float:
    """Bytes of comparing autograd's gradient of the largest parameter: of a tied one it has two parts and their sum."""
    parts = (3 if tied else 1) * largest.numel() * largest.itemsize
    return float(max(parts, largest.numel() * (largest.itemsize + 4)) if largest.itemsize < 4 else parts)


def _scores_of_attention(attached: AttachedModel, rollouts: RolloutBatch) -> float:
    """Bytes of a mask of attention (B, 1, L, L) with padding, as truth values and as numbers."""
    longest = int(rollouts.prompt_mask.sum(-1).max()) + rollouts.tokens.shape[1]
    return 5.0 * len(rollouts.tokens) * longest**2
