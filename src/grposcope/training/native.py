"""The decoder whose step is one call into C: compiled once for this machine by its own compiler, float32 throughout.

Torch's operations on a handful of rows spend more time between than in the products, and these do not keep up with the
memory; `decode_step.c` does a whole step in one go. Without a compiler, decoding runs in torch, a little slower.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.policies import smollm2
from grposcope.training.llama import LlamaDecoder

LANES = 16
SOURCE = Path(__file__).parent / "decode_step.c"
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC")

logger = logging.getLogger("grposcope")
_Pointer, _Whole = ctypes.c_void_p, ctypes.c_int64


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class _Layer(ctypes.Structure):
    _fields_ = _fields(_Pointer, "qkv bias out gate_up down prompt_keys prompt_values keys values")


class _Model(ctypes.Structure):
    _fields_ = [
        *_fields(_Whole, "layers hidden heads kv_heads size inner vocabulary width steps"),
        *_fields(_Pointer, "embedding head cosines sines"),
        ("floor", ctypes.c_float),
        *_fields(_Pointer, "layer scratch"),
    ]


class _Step(ctypes.Structure):
    _fields_ = [*_fields(_Whole, "rows written"), *_fields(_Pointer, "tokens positions slots prompts lengths logits")]


@cache
def library() -> ctypes.CDLL | None:
    """The compiled step, made on first use and kept in the cache; None, said once, where that is not possible."""
    compiler = os.environ.get("CC") or next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if compiler is None:
        logger.warning("no C compiler is installed, so sampling runs in torch, which is slower; install gcc or clang")
        return None
    try:
        loaded = ctypes.CDLL(str(_compiled(compiler)))
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        logger.warning("sampling runs in torch, which is slower: %s cannot compile its step: %s", compiler, *reason)
        return None
    loaded.decode_step.argtypes, loaded.decode_step.restype = (_Pointer, _Pointer, ctypes.c_int), None
    loaded.copy_rows.argtypes, loaded.copy_rows.restype = (_Pointer, _Whole, _Whole, _Pointer, _Pointer), None
    loaded.part_sums.argtypes, loaded.part_sums.restype = (_Pointer, *3 * [_Whole], _Pointer, ctypes.c_int), None
    loaded.scratch_floats.argtypes, loaded.scratch_floats.restype = (_Pointer, _Whole, _Whole), _Whole
    return loaded


def _compiled(compiler: str) -> Path:
    """The shared library for this source, compiler and processor; safe when two processes make it at once."""
    about = (SOURCE.read_text(), compiler, *FLAGS, platform.machine(), _processor())
    target = smollm2.cache() / f"decode-step-{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}.so"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / target.name
            command = [compiler, *FLAGS, "-o", str(made), str(SOURCE), "-lm"]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
            made.replace(target)
    return target


def _processor() -> str:
    """What tells this machine's instructions from another's that may share the cache."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def fits(model: PreTrainedModel) -> bool:
    """Whether the compiled step can run a model that `LlamaDecoder` can."""
    size = model.model.layers[0].self_attn.head_dim
    return bool(size % LANES == 0) and library() is not None


class NativeDecoder(LlamaDecoder):
    """`LlamaDecoder` with its steps in C.

    A row keeps its place in the cache until the end; one that is repeated is copied to a place that is free.
    Dropping rows costs nothing.
    """

    light = True

    def __init__(self, model: PreTrainedModel, ids: Tensor, mask: Tensor, group: int, steps: int):
        super().__init__(model, ids, mask, group, steps)
        rows, kv = len(self.positions), self.heads
        library_ = library()
        assert library_ is not None
        self.library, self.threads = library_, torch.get_num_threads()
        room, width = _up(steps), _up(ids.shape[1])
        self.slots = torch.arange(rows)
        self.prompts = self.slots // group
        lengths = mask.sum(-1)
        self.own = [
            (torch.empty(rows, kv, self.size, room), torch.empty(rows, kv, room, self.size)) for _ in self.layers
        ]
        self.prompt = [
            (_to_the_left(k, lengths, width).mT.contiguous(), _to_the_left(v, lengths, width)) for k, v in self.prompt
        ]
        self.tables = self.rotation.mT.contiguous()
        first = self.layers[0]
        layers = (_Layer * len(self.layers))()
        for to, w, prompt, own in zip(layers, self.layers, self.prompt, self.own, strict=True):
            for name, tensor in zip((field[0] for field in _Layer._fields_), (*w, *prompt, *own), strict=True):
                setattr(to, name, None if tensor is None else _address(tensor))
        self.struct = _Model(
            layers=len(layers), hidden=first.down.shape[0], heads=first.out.shape[1] // self.size, kv_heads=kv,
            size=self.size, inner=first.down.shape[1], vocabulary=len(self.head), width=width, steps=room,
            embedding=_address(self.embedding), head=_address(self.head),
            cosines=_address(self.tables[0]), sines=_address(self.tables[1]),
            floor=self.floor, layer=ctypes.addressof(layers),
        )  # fmt: skip
        self.scratch = torch.empty(library_.scratch_floats(ctypes.byref(self.struct), rows, self.threads))
        self.struct.scratch = _address(self.scratch)
        self.lengths, self.alive = lengths, layers
        self.out = torch.empty(len(self.head), _up(rows))

    def step(self, tokens: Tensor) -> Tensor:
        rows = len(tokens)
        if self.out.shape[1] != _up(rows):
            self.out = torch.empty(len(self.head), _up(rows))
        arrays = tokens.contiguous(), self.positions, self.slots, self.prompts, self.lengths, self.out
        step = _Step(rows, self.written, *map(_address, arrays))
        self.library.decode_step(ctypes.byref(self.struct), ctypes.byref(step), self.threads)
        self.written += 1
        self.positions = self.positions + 1
        return self.out[:, :rows].T

    def keep(self, rows: Tensor) -> None:
        slots = self.slots[rows]
        again = torch.zeros_like(rows, dtype=torch.bool)
        again[1:] = rows[1:] == rows[:-1]
        if bool(again.any()):
            free = torch.ones(len(self.own[0][0]), dtype=torch.bool).index_fill_(0, slots, False).nonzero()[:, 0]
            source, target = slots[again], free[: int(again.sum())]
            self.library.copy_rows(
                ctypes.byref(self.struct), self.written, len(target), _address(source), _address(target)
            )
            slots[again] = target
        self.slots, self.prompts, self.positions = slots, self.prompts[rows], self.positions[rows]


def part_sums(logits: Tensor, part: int) -> Tensor | None:
    """`sampler.part_sums` in C, (3, B, V / part); None unless the logits (B, V) lie as a step leaves them."""
    rows, stride = len(logits), logits.stride(1)
    laid_out = logits.stride(0) == 1 and stride % LANES == 0 and stride - LANES < rows <= stride
    plain = logits.dtype == torch.float32 and logits.device.type == "cpu" and logits.data_ptr() % (4 * LANES) == 0
    if not (plain and laid_out):
        return None
    compiled = library()
    if compiled is None:
        return None
    vocabulary = logits.shape[1]
    out = torch.empty(-(-vocabulary // part), 3, stride)
    compiled.part_sums(logits.data_ptr(), vocabulary, stride // LANES, part, out.data_ptr(), torch.get_num_threads())
    return out[..., :rows].permute(1, 2, 0)


def _address(x: Tensor) -> int:
    assert x.is_contiguous()
    return x.data_ptr()


def _up(n: int) -> int:
    """The next multiple of LANES, at least one."""
    return max(1, -(-n // LANES)) * LANES


def _to_the_left(x: Tensor, lengths: Tensor, width: int) -> Tensor:
    """Keys or values (P·H, S, size) of prompts padded on the left, shifted to the left in (P, H, width, size)."""
    heads = x.unflatten(0, (len(lengths), -1))
    times = (torch.arange(width) + x.shape[1] - lengths[:, None]).clamp(max=x.shape[1] - 1)  # (P, width)
    return heads[torch.arange(len(heads))[:, None], :, times].transpose(1, 2).contiguous()
