"""The decoder whose steps and draws are one call into C: compiled once for this machine by its own compiler.

Torch's operations on a handful of rows spend more time between than in the products, and these do not keep up with the
memory; `c/step.c` draws many tokens in one go. Without a compiler, decoding runs in torch, slower. Weights and the
inputs of products are float32, or rounded to bfloat16 or int8 where the processor multiplies these (`c/products.h`);
sums, norms, attention and draws are float32 throughout.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
import weakref
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.lab.cpu import c_library
from grposcope.lab.cpu.interface import PRECISIONS, Draws
from grposcope.lab.cpu.llama import rotation

WIDEST = 16
"""Floats of the longest vectors of any processor; heads are a multiple of it, so that every machine decodes alike."""

PART = 256
"""Tokens of the vocabulary that a draw looks at together."""

CHUNK = 192
"""Tokens of prompts that C reads together, as in `c/step.c`: a call reads a multiple of them, in which bits agree."""

QUICK = 0.2
"""Seconds of a call that reads prompts below which the next reads twice as many tokens."""

SPARE = 64 * 2**20
"""Bytes of a decoder up to which the next takes over its memory: the system takes its time to give and clear it."""

logger = logging.getLogger("grposcope")
_Pointer, _Whole = ctypes.c_void_p, ctypes.c_int64


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class _Layer(ctypes.Structure):
    _fields_ = _fields(_Pointer, "qkv out gate up down bias prompt_keys prompt_values keys values")


class _Model(ctypes.Structure):
    _fields_ = [
        *_fields(_Whole, "precision layers hidden heads kv_heads size inner vocabulary width steps"),
        *_fields(_Pointer, "head embedding cosines sines"),
        ("floor", ctypes.c_float),
        *_fields(_Pointer, "layer scratch"),
    ]


class _Step(ctypes.Structure):
    _fields_ = [*_fields(_Whole, "rows written"), *_fields(_Pointer, "tokens positions slots prompts lengths logits")]


class _Draw(ctypes.Structure):
    _fields_ = [
        *_fields(_Whole, "steps few"),
        ("temperature", ctypes.c_float),
        *_fields(_Pointer, "uniforms ends"),
        ("ends_count", _Whole),
        *_fields(_Pointer, "going tokens logp entropy sums"),
    ]


@cache
def _library() -> ctypes.CDLL | None:
    """The compiled step, made on first use and kept in the cache; None, said once, where that is not possible."""
    loaded = c_library.library("step.c", "decode-step", "sampling")
    if loaded is None:
        return None
    for name, arguments, result in (
        ("precisions", (), ctypes.c_int),
        ("lanes", (), ctypes.c_int),
        ("packed_bytes", (ctypes.c_int, _Whole, _Whole), _Whole),
        ("pack", (ctypes.c_int, _Pointer, _Pointer, ctypes.c_float, _Whole, _Whole, _Pointer, ctypes.c_int), None),
        ("scratch_floats", (_Pointer, *3 * [_Whole]), _Whole),
        ("read_prompts", (*4 * [_Pointer], _Whole, _Pointer, ctypes.c_int), None),
        ("copy_rows", (_Pointer, _Whole, _Whole, _Pointer, _Pointer), None),
        ("decode_step", (_Pointer, _Pointer, ctypes.c_int), None),
        ("generate", (_Pointer, _Pointer, _Pointer, ctypes.c_int), _Whole),
    ):
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, result
    return loaded


@cache
def _lanes() -> int:
    """Rows that a vector of this processor holds."""
    step = _library()
    assert step is not None
    return int(step.lanes())


@cache
def available(precision: str) -> str:
    """This precision of PRECISIONS where the processor multiplies it, else float32, which is said once."""
    step = _library()
    if step is not None and step.precisions() >> PRECISIONS.index(precision) & 1:
        return precision
    if step is not None:
        needs = {"bfloat16": "AVX512_BF16", "int8": "AVX512_VNNI"}[precision]
        logger.warning("this processor, or the compiler, lacks %s: sampling in float32, not in %s", needs, precision)
    return "float32"


def fits(model: PreTrainedModel) -> bool:
    """Whether the compiled step can run a model that `LlamaDecoder` can."""
    size = model.model.layers[0].self_attn.head_dim
    return bool(size % WIDEST == 0) and _library() is not None


class NativeDecoder:
    """`LlamaDecoder` in C.

    A row keeps its place in the cache until the end; one that is repeated is copied to a place that is free.
    Dropping rows costs nothing.
    """

    light = True

    def __init__(
        self, model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int, precision: str = "float32"
    ):
        body: Any = model.model
        config, attention = model.config, body.layers[0].self_attn
        step = _library()
        assert step is not None
        self.library, self.threads, self.written = step, torch.get_num_threads(), 0
        lengths, prompts = mask.sum(-1), len(ids)
        rows, kv, size = prompts * group, config.num_key_value_heads, attention.head_dim
        self.room, self.slots = rows, torch.arange(rows)
        self.prompts, self.positions, self.lengths = self.slots // group, lengths.repeat_interleave(group), lengths
        width, room = _up(ids.shape[1]), _up(steps)
        head, embedding = model.lm_head.weight, body.embed_tokens.weight
        tables = rotation(body.rotary_emb, head, ids.shape[1] + steps + 1).mT.contiguous()
        self.kept = [ids, embedding, tables]  # what C reads
        self.rooms: list[Tensor] = []
        weakref.finalize(self, _give_back, self.rooms)
        self.struct = _Model(
            precision=PRECISIONS.index(precision), layers=len(body.layers), hidden=config.hidden_size,
            heads=config.num_attention_heads, kv_heads=kv, size=size, inner=config.intermediate_size,
            vocabulary=len(head), width=width, steps=room, embedding=_address(embedding),
            cosines=_address(tables[0]), sines=_address(tables[1]), floor=config.hidden_size * config.rms_norm_eps,
        )  # fmt: skip
        scale = config.hidden_size**0.5  # which norms leave out
        self.struct.head = self._packed([(head, body.norm.weight, scale)])[0]
        sizes = [n * kv * size * 4 for n in (*2 * [prompts * width], *2 * [rows * room])] * len(body.layers)
        caches = iter(self._places(sizes))
        layers = [_Layer(*self._weights(layer, scale), *(next(caches) for _ in range(4))) for layer in body.layers]
        self.structs = (_Layer * len(layers))(*layers)
        self.struct.layer = ctypes.addressof(self.structs)
        tokens = int(lengths.sum())
        self.scratch = torch.empty(step.scratch_floats(ctypes.byref(self.struct), rows, tokens, self.threads))
        self.struct.scratch = _address(self.scratch)
        self.out = torch.empty(len(head), _up(rows))
        self.out[:, :rows] = self._read(ids, mask)[:, self.prompts]
        self.logits = self.out[:, :rows].T

    def _weights(self, layer: Any, scale: float) -> list[int | None]:
        """Addresses of a layer's matrices, as `_Layer` begins with them, and of its bias."""
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        scales = (attention.scaling, 1.0, 1.0)
        before, after = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        qkv, _, _, *others = self._packed(
            [
                *((p.weight, before, scale * s) for p, s in zip(projections, scales, strict=True)),
                (attention.o_proj.weight, None, 1.0),
                (mlp.gate_proj.weight, after, scale),
                (mlp.up_proj.weight, after, scale),
                (mlp.down_proj.weight, None, 1.0),
            ]
        )
        if attention.q_proj.bias is None:
            return [qkv, *others, None]
        self.kept.append(torch.cat([p.bias * s for p, s in zip(projections, scales, strict=True)]))
        return [qkv, *others, _address(self.kept[-1])]

    def _packed(self, matrices: Sequence[tuple[Tensor, Tensor | None, float]]) -> list[int]:
        """Where the matrices, times factors of their columns and a number, lie in the order in which C reads them.

        They follow each other, so that some whose rows fill whole tiles are one matrix.
        """
        precision = self.struct.precision
        places = self._places([self.library.packed_bytes(precision, *matrix.shape) for matrix, _, _ in matrices])
        for (matrix, factors, scale), offset in zip(matrices, places, strict=True):
            by = None if factors is None else _address(factors)
            self.library.pack(precision, _address(matrix), by, scale, *matrix.shape, offset, self.threads)
        return places

    def _places(self, sizes: Sequence[int]) -> list[int]:
        """Addresses of neighbouring pieces of memory of these many bytes."""
        room = _room(sum(sizes))
        self.rooms.append(room)
        return [_address(room) + before for before in accumulate(sizes[:-1], initial=0)]

    def _read(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Read the prompts (P, S), padded on the left; the logits that follow, (V, P)."""
        prompts = len(ids)
        tokens, prompt = ids[mask].long(), mask.nonzero()[:, 0]
        positions = (mask.long().cumsum(-1) - 1)[mask]
        numbers, last = torch.arange(prompts), self.lengths.cumsum(0) - 1
        hidden, out = torch.zeros(prompts, self.struct.hidden), torch.empty(self.struct.vocabulary, _up(prompts))
        start, count = 0, CHUNK
        while start < len(tokens):  # between the parts Python, and with it Ctrl-C, has a turn
            began, here = time.perf_counter(), slice(start, start + count)
            chunk, places, owners, ends = tokens[here], positions[here], prompt[here], last - start
            step = _Step(
                len(chunk), 0, *map(_address, (chunk, places)), None, *map(_address, (owners, self.lengths, out))
            )
            addresses = (*map(_address, (ends, numbers)), prompts, _address(hidden))
            self.library.read_prompts(ctypes.byref(self.struct), ctypes.byref(step), *addresses, self.threads)
            start += count
            count *= 2 if time.perf_counter() - began < QUICK else 1
        return out[:, :prompts]

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of each rollout (rows,); the logits after it, (rows, V)."""
        rows = len(tokens)
        if self.out.shape[1] != _up(rows):
            self.out = torch.empty(len(self.out), _up(rows))
        tokens = tokens.contiguous()
        self.library.decode_step(ctypes.byref(self.struct), self._step(tokens), self.threads)
        self._grow(1)
        return self.out[:, :rows].T

    def generate(
        self, logits: Tensor, steps: int, temperature: float, uniforms: Tensor, ends: Tensor, going: Tensor, few: int
    ) -> Draws | None:
        """Draw from logits (B, V), append, and so on, for at most `steps` tokens, the last of which is not appended.

        It is over as soon as at most `few` rows go on. uniforms (steps, B): numbers in (0, 1] that choose the tokens;
        ends: tokens that end a row, whose entry in `going` (B,) becomes False. None where logits are not finite.
        """
        rows, parts = len(going), -(-len(self.out) // PART)
        if logits.data_ptr() != self.out.data_ptr() or self.out.shape[1] != _up(rows):
            self.out = F.pad(logits.T, (0, _up(rows) - rows)).contiguous()
        drawn = Draws(torch.empty(steps, rows, dtype=torch.long), torch.empty(steps, rows), torch.empty(steps, rows))
        sums = torch.empty(parts, 3, _up(rows))
        inputs, results = (_address(uniforms), _address(ends), len(ends)), map(_address, (going, *drawn, sums))
        draw = _Draw(steps, few, temperature, *inputs, *results)
        step = self._step(drawn.tokens)
        count = self.library.generate(ctypes.byref(self.struct), step, ctypes.byref(draw), self.threads)
        if count < 0:
            return None
        self._grow(count - 1)
        return Draws(*(column[:count] for column in drawn))

    def _step(self, tokens: Tensor) -> Any:
        arrays = tokens, self.positions, self.slots, self.prompts, self.lengths, self.out
        return ctypes.byref(_Step(len(self.positions), self.written, *map(_address, arrays)))

    def _grow(self, steps: int) -> None:
        self.written += steps
        self.positions = self.positions + steps

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        slots = self.slots[rows]
        again = torch.zeros_like(rows, dtype=torch.bool)
        again[1:] = rows[1:] == rows[:-1]
        if bool(again.any()):
            free = torch.ones(self.room, dtype=torch.bool).index_fill_(0, slots, False).nonzero()[:, 0]
            source, target = slots[again], free[: int(again.sum())]
            addresses = (self.written, len(target), _address(source), _address(target))
            self.library.copy_rows(ctypes.byref(self.struct), *addresses)
            slots[again] = target
        self.slots, self.prompts, self.positions = slots, self.prompts[rows], self.positions[rows]


_spare: list[Tensor] = []
_spare_lock = threading.RLock()


def _room(size: int) -> Tensor:
    """At least so many bytes of memory, of a decoder that is gone where it left enough."""
    with _spare_lock:
        fitting = [room for room in _spare if len(room) >= size]
        if not fitting:
            return torch.empty(size, dtype=torch.uint8)
        taken = min(fitting, key=len)
        _spare[:] = [room for room in _spare if room is not taken]
        return taken


def _give_back(rooms: list[Tensor]) -> None:
    """Keep the memory of a decoder, up to SPARE bytes, for the next one, in place of what was kept before."""
    if sum(map(len, rooms)) <= SPARE:
        with _spare_lock:
            _spare[:] = rooms


def _address(x: Tensor) -> int:
    assert x.is_contiguous()
    return x.data_ptr()


def _up(n: int) -> int:
    """The next multiple of `lanes`, at least one."""
    return max(1, -(-n // _lanes())) * _lanes()
