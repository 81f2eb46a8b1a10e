"""Writes small logs in the exact shapes of the trainers, for the tests of the readers."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def trainer_state(path: Path, rows: Sequence[Mapping[str, Any]], logging_steps: int = 1, **other: Any) -> Path:
    """trainer_state.json of transformers with these rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    last = max((row.get("step", 0) for row in rows), default=0)
    content = {
        "global_step": last,
        "max_steps": last,
        "logging_steps": logging_steps,
        "log_history": list(rows),
        **other,
    }
    path.write_text(json.dumps(content))
    return path


def trl_row(step: int, **other: Any) -> dict[str, Any]:
    """A training row of TRL 1.16 with two reward functions."""
    return {
        "loss": 0.01 * step, "grad_norm": 0.5, "learning_rate": 1e-6, "num_tokens": 1000.0 * step,
        "completions/mean_length": 50.0 + step, "completions/clipped_ratio": 0.25, "rewards/right/mean": 0.1 * step,
        "rewards/right/std": 0.3, "rewards/form/mean": 0.5, "rewards/form/std": 0.1, "reward": 0.1 * step + 0.5,
        "reward_std": 0.35, "frac_reward_zero_std": 0.25, "kl": 0.001 * step, "entropy": 1.5,
        "clip_ratio/low_mean": 0.0, "clip_ratio/high_mean": 0.01, "clip_ratio/region_mean": 0.01, "step": step,
        "epoch": step / 100, **other,
    }  # fmt: skip


def verl_row(step: int, **other: Any) -> dict[str, Any]:
    """The metrics of a step of verl."""
    return {
        "critic/score/mean": 0.01 * step, "critic/score/max": 1.0, "critic/score/min": 0.0,
        "critic/rewards/mean": 0.01 * step - 0.2, "actor/entropy": 0.5, "actor/kl_loss": 0.003 * step,
        "actor/ppo_kl": 1e-4, "actor/pg_loss": -0.001, "actor/pg_clipfrac": 0.002, "actor/pg_clipfrac_lower": 1e-5,
        "actor/grad_norm": 0.7, "actor/lr": 1e-6, "response_length/mean": 800.0, "response_length/clip_ratio": 0.02,
        "training/global_step": step, "timing_s/step": 120.0, **other,
    }  # fmt: skip


def verl_line(step: int, values: Mapping[str, Any]) -> str:
    """The console line of verl."""
    return " - ".join([f"step:{step}", *(f"{key}:{value}" for key, value in values.items())])


def varint(value: int) -> bytes:
    """A protobuf varint."""
    out = b""
    while True:
        out += bytes([(value & 0x7F) | (0x80 if value > 0x7F else 0)])
        value >>= 7
        if not value:
            return out


def message(*fields: tuple[int, int | bytes | float]) -> bytes:
    """A protobuf message: ints as varints, floats as doubles, bytes with their length."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def wandb_file(path: Path, records: Iterable[bytes]) -> Path:
    """A .wandb file with these records, in LevelDB's framing."""
    out = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for record in records:
        begin, first = 0, True
        while first or begin < len(record):
            left = 32768 - len(out) % 32768
            if left < 7:
                out += b"\0" * left
                left = 32768
            part = record[begin : begin + left - 7]
            begin += len(part)
            last = begin >= len(record)
            kind = 1 if first and last else 2 if first else 4 if last else 3
            out += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            first = False
    path.write_bytes(bytes(out))
    return path


def history(step: int, values: Mapping[str, Any]) -> bytes:
    """A W&B record of one call of wandb.log."""
    items = [message((2, key.encode()), (16, json.dumps(value).encode())) for key, value in values.items()]
    return message((2, message(*((1, item) for item in items), (2, message((1, step))))))


def notebook(path: Path, *tables: str) -> Path:
    """A notebook whose cells have these tables as HTML outputs."""
    cells = [{"cell_type": "code", "outputs": [{"data": {"text/html": [table]}}]} for table in tables]
    path.write_text(json.dumps({"nbformat": 4, "cells": cells}))
    return path


def html(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table as transformers draws it."""
    head = "".join(f"<th>{name}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div><progress></progress></div><table border="1"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )
