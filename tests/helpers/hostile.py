"""Files that nobody should have to read: logs and records of every kind, with what goes wrong in them, from a seed.

`write(folder,
rng)` makes one and returns the path to give to a command. Each starts from a file as its trainer writes
it. Then values are replaced (infinite, huge, text, nested, absent), steps go backwards or repeat, bytes are cut,
changed or encoded otherwise, files of a record are exchanged for those of another run, for folders,
links to themselves
or nothing, and names hold what acts on a terminal.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import synthetic
import synthetic_probe
import trainer_logs

Rng = np.random.Generator
Row = dict[str, Any]

VALUES: tuple[Any, ...] = (
    None, math.nan, math.inf, -math.inf, 1e308, -1e308, 1.7e308, 1e160, 1.1e100, 9e99, -9e99, 1e77, 1e20, 1e6,
    -1e6, 5e-324, 1e-160,
    0, 0.0, -0.0, 1, -1, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**400, True, False, "0,5", "1.234,5", "1e999",
    "nan", "inf",
    "", " ", "null", "tensor(0.5)", "0.5", "١٢", "half", "\x1b[31m0.5", "\u202e5.0", "a\nb", "\ud800", [], [1],
    [[]], {}, {"a": 1},
    {"a": {"b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}},
)  # fmt: skip
"""What a value may be instead of a number between 0 and 1."""

NAMES = ("run", "a b", "новый", "x\ny", "\x1b[31mred", "abc\u202egnp", "--json", "-", "a#2", "b#0", "x" * 200,
"'\"$`", "ü\udcff",
         "page.html", "config.json", "completions", ".hidden", "%s%n", "trainer_state.json", "\t", "run.jsonl.gz",
         "a,b=c")  # fmt: skip
"""Names of files and folders."""


def one(rng: Rng, choices: Any) -> Any:
    """One of the choices, not converted by NumPy."""
    return choices[int(rng.integers(len(choices)))]


def table(rng: Rng) -> dict[str, list[Any]]:
    """Columns of a run under our names, of 0 to 120 rows, some of them hostile."""
    n = int(one(rng, (0, 1, 2, 3, 5, 11, 12, 13, 29, 30, 31, 40, 40, 40, 60, 120)))
    done = np.arange(n) / max(n, 1)
    columns: dict[str, list[Any]] = {
        "step": list(range(1, n + 1)),
        "reward": (0.2 + 0.5 * done + 0.05 * rng.normal(size=n)).tolist(),
        "reward_std": (0.4 + 0.02 * rng.normal(size=n)).tolist(),
        "kl": (0.01 * done * rng.gamma(5, 0.2, n)).tolist(),
        "entropy": (1.5 - done + 0.05 * rng.normal(size=n)).tolist(),
        "length": (100 + 50 * done + rng.normal(size=n)).tolist(),
        "grad_norm": rng.gamma(12, 1 / 12, n).tolist(),
        "loss": (0.01 * rng.normal(size=n)).tolist(),
        "lr": [1e-6] * n,
        "dead_fraction": rng.beta(4, 12, n).tolist(),
        "truncated": rng.beta(1, 20, n).tolist(),
        "clip_high": rng.beta(1, 200, n).tolist(),
    }
    for name in [name for name in columns if name != "step" and rng.random() < 0.15]:
        del columns[name]
    if rng.random() < 0.25:
        columns["step"] = steps(rng, n)
    for _ in range(int(rng.integers(0, 4))):
        name = one(rng, [name for name in columns if name != "step" or rng.random() < 0.2] or ["reward"])
        columns[name] = spoiled(rng, columns.get(name, [0.5] * n))
    return columns


def steps(rng: Rng, n: int) -> list[Any]:
    """Steps that repeat, go backwards, start again, have gaps, are no whole numbers or are very large."""
    k = np.arange(1, n + 1)
    kinds: list[Any] = [
        k[::-1], np.zeros(n, int), k // 2, k % 7, k * 1000, k - 10, k / 3, np.sort(rng.random(n)), rng.permutation(k),
        np.where(k > n // 2, k - n // 2, k), [2**62 + int(i) for i in k], [2**70 + int(i) for i in k],
        [str(i) for i in k],
        [f"{i}/100" for i in k], [float("nan")] * n, [1e300 * i for i in range(n)], [-(2**63) + i for i in range(n)],
    ]  # fmt: skip
    return [value.item() if isinstance(value, np.generic) else value for value in one(rng, kinds)]


def spoiled(rng: Rng, column: list[Any]) -> list[Any]:
    """The column with a hostile value on some rows: one, the last, a part, every other, or all."""
    n, value = len(column), one(rng, VALUES)
    where = one(rng, ("one", "last", "first", "half", "every other", "some", "all", "end"))
    rows = {
        "one": rng.integers(0, max(n, 1), 1), "last": [n - 1], "first": [0], "half": range(n // 2, n),
        "every other": range(0, n, 2), "some": rng.integers(0, max(n, 1), n // 5 + 1), "all": range(n),
        "end": range(n - n // 10 - 1, n),
    }[where]  # fmt: skip
    out = list(column)
    for row in rows:
        if 0 <= row < n:
            out[row] = value if rng.random() < 0.9 else one(rng, VALUES)
    return out


def rows_of(columns: Mapping[str, list[Any]], names: Mapping[str, str] | None = None) -> list[Row]:
    """The rows, under the keys `names` of a trainer."""
    names = names or {}
    n = len(columns["step"])
    return [{names.get(name, name): column[i] for name, column in columns.items()} for i in range(n)]


TRL = {"lr": "learning_rate", "length": "completions/mean_length", "dead_fraction": "frac_reward_zero_std",
       "truncated": "completions/clipped_ratio", "clip_high": "clip_ratio/high_mean"}  # fmt: skip
VERL = {"reward": "critic/score/mean", "kl": "actor/kl_loss", "entropy": "actor/entropy", "lr": "actor/lr",
        "length": "response_length/mean", "grad_norm": "actor/grad_norm", "loss": "actor/pg_loss",
        "truncated": "response_length/clip_ratio", "clip_high": "actor/pg_clipfrac", "step": "step"}  # fmt: skip
OPENRLHF = {"length": "response_length", "lr": "actor_lr", "grad_norm": "actor_grad_norm", "loss": "policy_loss",
            "clip_high": "ppo_clip_ratio", "truncated": "truncated"}  # fmt: skip


def text(value: Any) -> str:
    """A value as a log prints it."""
    return "" if value is None else str(value)


def as_json_lines(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    rows = rows_of(columns, one(rng, ({}, TRL, VERL, {"step": "_step"}, {"step": "Step"})))
    lines = [json.dumps(row) for row in rows]
    if lines and rng.random() < 0.2:  # the same key twice
        lines[-1] = lines[-1][:-1] + ', "reward": 7, "step": 3}'
    return ("\n".join(lines) + one(rng, ("\n", ""))).encode("utf-8", "surrogatepass")


def as_json(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    rows = rows_of(columns, TRL)
    document = one(rng, (rows, {"steps": rows}, columns, {"history": rows, "config": {"lr": 1}}, {"a": {"b": rows}}))
    return json.dumps(document).encode("utf-8", "surrogatepass")


def as_csv(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    names, out = list(columns), io.StringIO()
    writer = csv.writer(out, delimiter=one(rng, ",,,;\t|"), lineterminator=one(rng, ("\n", "\r\n", "\r")))
    writer.writerow([*names, "reward"] if rng.random() < 0.1 else names)
    comma = rng.random() < 0.2
    for row in zip(*columns.values(), strict=True):
        cells = [text(value) for value in row]
        writer.writerow([cell.replace(".", ",") for cell in cells] if comma else cells[: int(rng.integers(1, 99))])
    return out.getvalue().encode("utf-8", "replace")


def as_trainer_state(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    other = {} if rng.random() < 0.7 else {one(rng, ("global_step", "max_steps", "logging_steps")): one(rng, VALUES)}
    state = {"global_step": len(columns["step"]), "max_steps": 9, "logging_steps": 1, **other}
    return json.dumps({**state, "log_history": rows_of(columns, TRL)}).encode()


def as_printed(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    lines = [f"{i}%|█| {i}/9 [00:01<\r{row}" for i, row in enumerate(rows_of(columns, TRL))]
    return "\n".join(lines).encode("utf-8", "replace")


def as_verl_console(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    lines = []
    for row in rows_of(columns, VERL):
        pairs = " - ".join(f"{key}:{text(value)}" for key, value in row.items())
        lines.append(f"\x1b[36m(TaskRunner pid=7)\x1b[0m {pairs}")
    return "\n".join(lines).encode("utf-8", "replace")


def as_verl_lines(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    return "".join(json.dumps({"step": row["step"], "data": row}) + "\n" for row in rows_of(columns, VERL)).encode()


def as_openrlhf(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    lines = [f"(PPOTrainer pid=1) Global step {row['step']}: {row!r}" for row in rows_of(columns, OPENRLHF)]
    return "\n".join(lines).encode("utf-8", "replace")


def as_key_values(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    form = one(rng, ("{}={}", "{}: {}", "{} {}", "| {} {}"))
    between = one(rng, (" ", ", ", " | "))
    lines = [between.join(form.format(k, text(v)) for k, v in row.items()) for row in rows_of(columns)]
    start = one(rng, ("", "[INFO] ", "2026-01-01 10:00:00 "))
    return "\n".join(start + line for line in lines).encode("utf-8", "replace")


def as_wandb(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    calls = [trainer_logs.history(i, row) for i, row in enumerate(rows_of(columns, TRL))]
    place = folder / "made.wandb"
    content = trainer_logs.wandb_file(place, calls).read_bytes()
    place.unlink()
    return content


def as_events(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    from grposcope.logs.formats import tensorboard

    out = b""
    for row in rows_of(columns):
        for name, value in row.items():
            if not isinstance(value, float | int) or abs(value) > 1e300:
                continue
            step = row["step"] if isinstance(row["step"], int) and 0 <= row["step"] < 2**63 else 3
            tensor = trainer_logs.message((1, 2), (6, float(value)))
            summary = trainer_logs.message((1, f"train/{name}".encode()), (8, tensor))
            event = trainer_logs.message((1, 1.5), (2, step), (5, trainer_logs.message((1, summary))))
            head = len(event).to_bytes(8, "little")
            check = tensorboard._masked(tensorboard._crc32c(head)).to_bytes(4, "little")
            out += head + check + event + bytes(4)
    return out


def as_notebook(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    header = [{"step": "Step", "loss": "Training Loss"}.get(name, name) for name in columns]
    table = trainer_logs.html(header, [[text(value) for value in row] for row in zip(*columns.values(), strict=True)])
    streams = [{"name": "stdout", "text": [f"{row}\n" for row in rows_of(columns, TRL)]}] if rng.random() < 0.3 else []
    cells = [{"cell_type": "code", "outputs": [{"data": {"text/html": [table]}}, *streams]}]
    return json.dumps({"nbformat": one(rng, (4, 3, None, "4")), "cells": cells}).encode("utf-8", "surrogatepass")


def as_parquet(folder: Path, rng: Rng, columns: dict[str, list[Any]]) -> bytes:
    n = len(columns["step"]) // 4 * 4
    rewards = [value if isinstance(value, float) else None for value in columns.get("reward", columns["step"])[:n]]
    content: dict[str, Any] = {
        "step": [one(rng, (1, 1, 1, 2))] * n, "prompt": [f"p{i // 4}" for i in range(n)], "completion": ["x"] * n,
        "right": rewards,
        "advantage": [0.1] * n,
    }  # fmt: skip
    for name in list(content):
        if rng.random() < 0.1:
            content[name] = one(rng, ([None] * n, ["t"] * n, [math.inf] * n, [[1]] * n, [1e308] * n, [2**62] * n))
    if rng.random() < 0.1:
        del content[one(rng, list(content))]
    out = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(content), out)
    return out.getvalue()


FORMS: dict[str, Callable[[Path, Rng, dict[str, list[Any]]], bytes]] = {
    "lines.jsonl": as_json_lines, "list.json": as_json, "table.csv": as_csv,
    "trainer_state.json": as_trainer_state, "trl.log": as_printed,
    "verl.log": as_verl_console, "verl.jsonl": as_verl_lines, "openrlhf.log": as_openrlhf, "train.out": as_key_values,
    "run-1.wandb": as_wandb, "events.out.tfevents.1": as_events, "train.ipynb": as_notebook,
    "completions_00001.parquet": as_parquet,
}  # fmt: skip
"""Usual name of a log -> what writes its bytes."""

PIECES = (b"", b"nan", b"1e999", b"null", b'"', b"{", b"[" * 3000, b"\n", b"\r", b"\0" * 9, b"-", b"9" * 400, b"'",
b"<td", b"\x1b[",
          b"\xff\xfe", b"\xc3", "\u202e".encode(), b'{"a":' * 2000, b",", b"[]", b"{}", b"1e308", b"PAR1", b"true",
          b'""')  # fmt: skip


ENCODINGS = ("", "", "cut", "bom", "crlf", "latin", "utf-16", "gzip", "gzip cut", "zip", "zip cut", "twice",
"reversed", "bits")  # fmt: skip
"""What may be done to the bytes of a whole file."""


def damaged(rng: Rng, content: bytes) -> bytes:
    """The bytes cut short, changed here and there, encoded in another way, packed, or packed and cut."""
    for _ in range(int(one(rng, (0, 1, 1, 2, 5)))):
        at, length = int(rng.integers(0, len(content) + 1)), int(rng.integers(0, 40))
        piece = one(rng, (*PIECES, rng.bytes(9)))
        content = content[:at] + piece + content[at + length :]
    kind = one(rng, ENCODINGS)
    if kind == "cut":
        return content[: int(rng.integers(0, len(content) + 1))]
    if kind == "bom":
        return b"\xef\xbb\xbf" + content
    if kind == "crlf":
        return content.replace(b"\n", b"\r\n")
    if kind == "latin":
        return content.decode("latin-1").replace("e", "é").encode("latin-1")
    if kind == "utf-16":
        return content.decode("latin-1").encode("utf-16")
    if kind.startswith("gzip"):
        packed = gzip.compress(content)
        return packed[: len(packed) * 2 // 3] if kind == "gzip cut" else packed
    if kind.startswith("zip"):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("log.jsonl", content)
        return out.getvalue()[: 60 if kind == "zip cut" else None]
    if kind == "bits" and content:
        array = bytearray(content)
        for at in rng.integers(0, len(array), 5):
            array[at] ^= 1 << int(rng.integers(8))
        return bytes(array)
    return {"twice": content + content, "reversed": content[::-1]}.get(kind, content)


def log(folder: Path, rng: Rng) -> Path:
    """One log of a trainer, hostile in its values, in its bytes, or in its name; sometimes in a folder with others."""
    usual = one(rng, list(FORMS))
    content = FORMS[usual](folder, rng, table(rng))
    if rng.random() < 0.25:
        content = damaged(rng, content)
    name = one(rng, NAMES) if rng.random() < 0.15 else usual
    path = folder / name
    path.write_bytes(content)
    if rng.random() < 0.15:
        other = one(rng, list(FORMS))
        (folder / f"other-{other}").write_bytes(FORMS[other](folder, rng, table(rng)))
    return folder if rng.random() < 0.2 else path


def record(folder: Path, rng: Rng, base: Path) -> Path:
    """A record of our own, a copy of `base`, in which one to three things are wrong."""
    place = folder / (one(rng, NAMES) if rng.random() < 0.1 else "run")
    shutil.copytree(base, place)
    for _ in range(int(one(rng, (1, 1, 1, 2, 3)))):
        spoil_record(place, rng)
    return place / "probes" / "step-000020" if rng.random() < 0.1 else place


def spoil_record(place: Path, rng: Rng) -> None:
    """Do one wrong thing to a record."""
    files = sorted(path for path in place.rglob("*") if path.is_file())
    if not files:
        return
    path = one(rng, files)
    kind = one(rng, (*["value"] * 12, "damage", "damage", "cut", "empty", "gone", "folder", "loop", "junk", "exchange"))
    if kind == "value" and path.suffix in (".json", ".jsonl"):
        spoil_json(path, rng)
    elif kind == "value" and path.suffix == ".npz":
        spoil_arrays(path, rng)
    elif kind == "value" and path.suffix == ".parquet":
        spoil_parquet(path, rng)
    elif kind in ("value", "damage"):
        path.write_bytes(damaged(rng, path.read_bytes()))
    elif kind == "cut":
        content = path.read_bytes()
        path.write_bytes(content[: int(rng.integers(0, len(content) + 1))])
    elif kind == "exchange":
        path.write_bytes(one(rng, files).read_bytes())
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "loop":
            path.symlink_to(path.name)
        elif kind != "gone":
            path.write_bytes(b"" if kind == "empty" else rng.bytes(200))


def spoil_json(path: Path, rng: Rng) -> None:
    """Exchange a value somewhere in a JSON file, or on some lines of a JSONL file."""
    try:
        if path.suffix == ".json":
            content = json.loads(path.read_text())
            exchange(content, rng)
            path.write_text(json.dumps(content))
            return
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    except (ValueError, RecursionError):
        return  # spoiled before
    if not rows or not isinstance(rows[0], dict):
        return
    if rng.random() < 0.2:
        rows = one(rng, (rows[::-1], rows + rows, rows[1:], rows[: len(rows) // 2], [rows[0]] * 3, [{}], [[]], [None]))
    elif (keys := [key for key in rows[0] if isinstance(rows[0][key], list)]) and rng.random() < 0.7:
        for row in rows if rng.random() < 0.5 else [one(rng, rows)]:
            key = one(rng, keys)
            if isinstance(row, dict) and isinstance(row.get(key), list):
                row[key] = one(rng, ([], [*row[key], 1], row[key][:1], spoiled(rng, row[key])))
    elif rows[0]:
        key = one(rng, list(rows[0]))
        column = spoiled(rng, [row.get(key) if isinstance(row, dict) else None for row in rows])
        rows = [row | {key: value} if isinstance(row, dict) else row for row, value in zip(rows, column, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def exchange(content: Any, rng: Rng) -> None:
    """Exchange or remove one value of a JSON document, at any depth."""
    while isinstance(content, dict | list) and content:
        key = one(rng, list(content) if isinstance(content, dict) else range(len(content)))
        if not (isinstance(content[key], dict | list) and content[key]) or rng.random() < 0.2:
            if rng.random() < 0.2:
                del content[key]
            else:
                content[key] = one(rng, VALUES)
            return
        content = content[key]


def spoil_arrays(path: Path, rng: Rng) -> None:
    """Exchange an array of gram.npz for one with other values, of another shape or type, or leave it out."""
    try:
        with np.load(path) as file:
            arrays = dict(file)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile):
        return
    name = one(rng, list(arrays))
    old = np.atleast_1d(arrays[name])
    spotted = old.astype(np.float64) if old.dtype.kind in "fb" else old
    if spotted.size and spotted.dtype.kind == "f":
        spotted = spotted.copy()
        spotted.flat[rng.integers(0, spotted.size, 2)] = float(one(rng, (np.nan, np.inf, 1e308, -1e308, 1e160, -5, 0)))
    choices = (
        spotted, spotted, -old if old.dtype.kind == "f" else old, np.zeros_like(old), old[:0], old[:-1],
        old.ravel(), old.T, old[None],
        np.full_like(old, 1), old.astype(str), old.astype(np.float32) if old.dtype.kind == "f" else old,
        np.float64(3),
        old * 1e200 if old.dtype.kind == "f" else old, old * 1e-200 if old.dtype.kind == "f" else old,
        np.full(old.shape, np.nan) if old.dtype.kind == "f" else old,
    )  # fmt: skip
    arrays[name] = one(rng, choices)
    if rng.random() < 0.1:
        del arrays[name]
    np.savez(path, **arrays)


def spoil_parquet(path: Path, rng: Rng) -> None:
    """Exchange a column of a Parquet file for one of another type or of nulls, or leave it out."""
    try:
        rows = pyarrow.parquet.read_table(io.BytesIO(path.read_bytes()))
    except (OSError, pa.ArrowException):
        return
    if not rows.num_columns:
        return
    n, at = rows.num_rows, int(rng.integers(rows.num_columns))
    try:
        name = rows.column_names[at]
    except UnicodeDecodeError:  # bytes were spoilt before, those of a name among them
        return
    if rng.random() < 0.2:
        rows = rows.remove_column(at)
    else:
        new = one(rng, ([None] * n, ["t"] * n, [math.inf] * n, [[1.0]] * n, [[]] * n, [2**62] * n, [True] * n,
        ["\x1b[31m\0"] * n,
                        [[None, 1.0]] * n, [b"\xff"] * n))  # fmt: skip
        rows = rows.set_column(at, name, pa.array(new))
    if rng.random() < 0.1:
        rows = rows.slice(0, int(one(rng, (0, 1, 5))))
    out = io.BytesIO()
    pyarrow.parquet.write_table(rows, out)
    path.write_bytes(out.getvalue())


def output_folder(folder: Path, rng: Rng, base: Path) -> Path:
    """The output folder of a TRL run, with checkpoints, completions and sometimes a record of the callback."""
    out = folder / "outputs"
    (out / "completions").mkdir(parents=True)
    for step in (10, 20):
        (out / f"checkpoint-{step}").mkdir()
        (out / f"checkpoint-{step}" / "trainer_state.json").write_bytes(as_trainer_state(folder, rng, table(rng)))
    (out / "completions" / "completions_00010.parquet").write_bytes(as_parquet(folder, rng, table(rng)))
    if rng.random() < 0.5:
        shutil.copytree(base, out / "grposcope")
        config = out / "grposcope" / "config.json"
        of_trl = {"engine": "trl", "logged": {"output_dir": str(out)}}
        config.write_text(json.dumps(json.loads(config.read_text()) | of_trl))
    for _ in range(int(rng.integers(0, 3))):
        spoil_record(out, rng)
    return out if rng.random() < 0.8 else one(rng, sorted(path for path in out.rglob("*") if path.is_dir()))


def place(folder: Path, rng: Rng) -> Path:
    """A path with nothing in it to be read: a loop, an empty folder, a file that is not there, or very long lines."""
    path = folder / one(rng, NAMES)
    kind = one(
        rng, ("loop", "empty folder", "empty file", "absent", "below a file", "deep", "junk", "null", "long line")
    )
    if kind == "loop":
        path.symlink_to(path.name)
    elif kind == "empty folder":
        path.mkdir()
    elif kind in ("empty file", "below a file"):
        path.write_bytes(b"")
        return path / "x" if kind == "below a file" else path
    elif kind == "deep":
        (path / "a" / "b").mkdir(parents=True)
        (path / "a" / "b" / "c").symlink_to(path, target_is_directory=True)
    elif kind == "junk":
        path.write_bytes(rng.bytes(int(rng.integers(1, 3000))))
    elif kind == "null":
        return Path("/dev/null")
    elif kind == "long line":
        path.write_bytes(
            one(rng, (b'{"step": 1, "x": "' + b"a" * 2_000_000, b"a=1 " * 200_000, b"," * 500_000, b"\0" * 1_000_000))
        )
    return path


def bases(folder: Path) -> list[Path]:
    """Sound records to copy: with probes, without, very short, and with dead groups."""
    first = synthetic.make(folder / "first", steps=20, prompts=4, group=4)
    synthetic_probe.make(first / "probes" / "step-000010", prompts=12, group=4, step=10)
    synthetic_probe.make(first / "probes" / "step-000020", prompts=12, group=4, step=20, seed=1)
    second = synthetic.make(folder / "second", steps=40, seed=1, phase="update")
    return [first, second, synthetic.make(folder / "short", steps=2, group=2)]


def write(folder: Path, rng: Rng, sound: list[Path]) -> Path:
    """One hostile run in an empty folder; the path to give to a command."""
    kind = one(rng, ("log", "log", "log", "log", "record", "record", "record", "output", "place"))
    if kind == "log":
        return log(folder, rng)
    if kind == "record":
        return record(folder, rng, one(rng, (sound[0], *sound)))
    return output_folder(folder, rng, one(rng, sound)) if kind == "output" else place(folder, rng)
