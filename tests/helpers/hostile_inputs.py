"""Hostile inputs beside logs and records: settings, rollouts, arrays, models, files of the system, bombs, large files.

`prepared(folder)` makes what is large or slow to make, once; `path(folder, kind, rng, sound)` gives the path of a
hostile input of a kind, made in `folder`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import shutil
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from hostile import Rng

SETTINGS: dict[str, str] = {
    "trl.yaml": "num_generations: 8\nlearning_rate: 1.0e-6\nbeta: 0.04\nloss_type: grpo\nscale_rewards: true\n",
    "verl.yaml": "algorithm:\n  adv_estimator: grpo\nactor_rollout_ref:\n  rollout:\n    n: 8\n  actor:\n"
    "    kl_loss_coef: 0.01\ndata:\n  train_batch_size: 1024\n",
    "trl.json": '{"num_generations": 8, "learning_rate": 1e-06, "beta": 0.04, "temperature": 1.0}',
    "trl.toml": "num_generations = 8\nlearning_rate = 1e-6\n[model]\nname = 'x'\n",
    "trl.py": "from trl import GRPOConfig\nn = 4\n"
    "args = GRPOConfig(num_generations=n * 2, learning_rate=1e-6, beta=0.04)\n",
    "verl.sh": "#!/bin/bash\nN=8\n"
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=$N \\\n"
    "  actor_rollout_ref.actor.optim.lr=1e-6 data.train_batch_size=1024\n",
    "sweep.yaml": "seeds: 2\nbase: {steps: 4, prompts: 2, group: 2}\n"
    "grid: {lr: [0.1, 0.2]}\nbaseline: {lr: 0.1}\nmetric: reward\n",
    "flags.yaml": "steps: 3\nprompts: 2\ngroup: 2\nmodel: /nowhere/at/all\n",
    "policy.yaml": "mode: advise\nfall: 0.2\nalpha: 0.01\n",
    "stability.yaml": "lr: 0.1\ncurvature: 2.0\ninterval: 4\n",
    "notebook.ipynb": '{"nbformat": 4, "cells": [{"cell_type": "code", "source": ["GRPOConfig(num_generations=8)"]}]}',
}
"""Name of a file of settings -> its text, as people write it."""

YAML_PIECES: tuple[str, ...] = (
    "a: \x01\n", "a: \x1b[31m\n", "\x00", "steps: " + "9" * 400 + "\n", "lr: 1e999\n", "lr: .inf\n", "lr: .nan\n",
    "steps: 0x" + "f" * 300 + "\n", "steps: 1:60:60\n", "date: 2026-99-99\n", "date: 2026-02-30 99:99:99\n",
    "? [a, b]\n: 1\n", "? {a: 1}\n: 1\n", "~: 1\n", "1: 2\n", "true: 1\n", "a: &x [*x]\n", "a: &x {b: *x}\n",
    "<<: *x\n", "<<: 3\n", "<<: [1, 2]\n", "a: !!python/object:os.system x\n", "a: !!binary '*'\n",
    "a: !!binary gIGC\n", "a: !!set {1, 2}\n", "a: !!omap [1]\n", "a: !!timestamp x\n", "a: !!int x\n",
    "a: !!float x\n", "a: !!bool x\n", "---\na: 1\n---\nb: 2\n", "%YAML 9.9\n---\n", "a: |\n\tx\n", "\ta: 1\n",
    "a: 'x\n", "a: [1, 2\n", "[" * 2000, "{a: " * 2000, "- " * 2000, "a: \ud800\n", "a: \u202e\n", "\ufeff",
    "steps: [1, [2, {a: 3}]]\n", "grid: {lr: []}\n", "grid: 3\n", "seeds: -1\n", "seeds: 1e400\n", "seeds: [1, 1]\n",
    "seeds: " + "8" * 30 + "\n", "base: []\n", "cells: {a: 1}\n", "cells: [[]]\n",
    "grid: {a: " + str(list(range(300))) + ", b: " + str(list(range(300))) + ", c: " + str(list(range(300))) + "}\n",
    "steps: '" + "x" * 5000 + "'\n", "lr: 1_0\n", "lr: 0o777\n", "lr: =\n", "lr: <<\n", "out: /dev/full\n",
    "format: 2\nsettings: {}\n",
)  # fmt: skip
"""What may stand in YAML and means something else than it looks, or nothing."""

OF_THE_SYSTEM = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/tty", "/proc/self/mem", "/proc/self/fd", "/proc/1/root",
    "/dev", "/sys/kernel", "/dev/stdin", "/proc/self/environ", "/proc/kallsyms", "/proc/self/exe",
    "/proc/self/pagemap",
)  # fmt: skip
"""Paths that are no files of anybody."""


def prepared(folder: Path) -> dict[str, Path]:
    """Large files that stay as they are, by what they are; takes some seconds."""
    folder.mkdir(exist_ok=True)
    rows = [json.dumps({"step": step, "reward": 0.5 + step / 100, "loss": 0.1}) + "\n" for step in range(1, 31)]
    wide = {f"metric/{i}": i / 7 for i in range(100_000)}
    texts = {
        "long.jsonl": '{"step": 1, "reward": 0.5, "x": "' + "a" * 10_000_000 + '"}\n',
        "long.log": "{'loss': 0.1, 'reward': 0.5, 'x': '" + "b" * 10_000_000 + "'}\n" + "".join(rows),
        "long.py": "GRPOConfig(num_generations=8, x='" + "a" * 10_000_000 + "')\n",
        "long.sh": "python -m verl.trainer.main_ppo " + "a=1 " * 2_500_000,
        "long.csv": "step,reward\n1," + "5" * 10_000_000 + "\n2,0.5\n",
        "long-text.jsonl": json.dumps({"prompt": "p", "completion": "ab " * 3_300_000, "reward": 1.0}) + "\n",
        "nested.json": "[" * 100_000 + "]" * 100_000,
        "nested.jsonl": '{"a":' * 100_000 + "1" + "}" * 100_000 + "\n",
        "nested.yaml": "[" * 20_000 + "]" * 20_000,
        "nested.py": "GRPOConfig(num_generations=" + "(" * 5_000 + "8" + ")" * 5_000 + ")\n",
        "added.py": "GRPOConfig(num_generations=" + "1+" * 20_000 + "1)\n",
        "power.py": "GRPOConfig(num_generations=9**9**9**9, beta='a' * 10**12, x=[0] * 10**10)\n",
        "keys.jsonl": "".join(json.dumps({"step": step, **wide}) + "\n" for step in (1, 2, 3)),
        "keys.json": json.dumps({"settings": wide, "format": 2}),
        "keys.csv": "\n".join(",".join(map(str, row)) for row in (["step", *wide], [1, *wide.values()])),
        "keys.yaml": "".join(f"key{i}: {i}\n" for i in range(100_000)),
        "aliases.yaml": "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9}]\n" for i in range(1, 12)),
        "merges.yaml": "a0: &a0 {x: 1}\n"
        + "".join(f"a{i}: &a{i} {{<<: [{f'*a{i - 1}, ' * 8}]}}\n" for i in range(1, 12)),
        "numbers.jsonl": '{"step": 1, "reward": ' + "9" * 5000 + '}\n{"step": ' + "9" * 4000 + ', "reward": 1}\n',
    }  # fmt: skip
    paths = {name: folder / name for name in texts}
    for name, text in texts.items():
        paths[name].write_text(text)
    paths["bomb.jsonl"] = folder / "bomb.jsonl.gz"
    paths["bomb.jsonl"].write_bytes(gzip.compress(b'{"step": 1, "reward": 1}\n' + b"0" * 300_000_000, 1))
    paths["bomb.json"] = folder / "bomb.json"
    paths["bomb.json"].write_bytes(gzip.compress(b'{"log_history": [' + b" " * 300_000_000, 1))
    paths["bomb.parquet"] = folder / "bomb.parquet"
    _parquet_bomb(paths["bomb.parquet"], 100_000_000)
    paths["many"] = folder / "many"
    paths["many"].mkdir()
    for number in range(5_000):
        (paths["many"] / f"file-{number:04d}{('.jsonl', '.txt', '.json', '.parquet')[number % 4]}").write_text(
            "".join(rows[:2])
        )
    paths["bomb.npz"] = folder / "bomb.npz"
    with zipfile.ZipFile(paths["bomb.npz"], "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("gram.npy", "rewards.npy", "format.npy", "steps.npy"):
            with archive.open(name, "w", force_zip64=True) as file:
                file.write(_header((12_000, 12_000)))
                for _ in range(12_000 * 12_000 * 8 // (1 << 22) + 1 if name == "gram.npy" else 1):
                    file.write(bytes(1 << 22))
    return paths


def _parquet_bomb(file: Path, rows: int) -> None:
    """Columns of one value, repeated so often that they fill memory where they are read whole."""
    names = pa.array(["p"])
    schema = pa.schema(
        [("step", pa.int64()), ("prompt", pa.string()), ("completion", pa.string()), ("reward", pa.float64())]
    )
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        block = 5_000_000
        texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(block, np.int32)), names).cast(pa.string())
        columns = [pa.array(np.ones(block, np.int64)), texts, texts, pa.array(np.ones(block))]
        for _ in range(rows // block):
            writer.write_table(pa.table(columns, schema=schema), row_group_size=block)


def _header(shape: tuple[int, ...], kind: str = "<f8", version: int = 1) -> bytes:
    """The head of a .npy file, which may promise more than there is."""
    text = str({"descr": kind, "fortran_order": False, "shape": shape}) + "\n"
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode()


def array(rng: Rng) -> bytes:
    """A .npy file, or .npz, that holds no square matrix of numbers, or not in the usual way."""
    square = rng.normal(size=(4, 4))
    of_file = io.BytesIO()
    chosen = hostile.one(
        rng, (square, square * np.nan, square[:0], square[:, :2], np.float64(3), square.astype(str), square > 0,
              square + 1j, np.zeros((0, 0)), square * 1e200, square.astype(np.float16), np.array([None, {}], object),
              np.array(["2026-01-01"], "datetime64[D]"), np.zeros(3, [("a", "f8"), ("b", "i4")]))
    )  # fmt: skip
    np.save(of_file, chosen, allow_pickle=True)
    plain = of_file.getvalue()
    heads = (
        _header((10**12,)) + bytes(800), _header((-1, 4)) + bytes(80), _header((2**62, 2**62)),
        _header((4, 4), "O") + bytes(99), _header((4, 4), "|V8") + bytes(128), _header((4, 4), "x"),
        _header((10**9, 10**9)) + bytes(8), _header((4, 4), version=9), _header((50_000, 50_000)) + bytes(9),
        b"\x93NUMPY\x01\x00\xff\xff{" + b"(" * 60_000, b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", plain[:30],
        plain[:-5], plain + b"x",
    )  # fmt: skip
    return hostile.one(rng, (plain, plain, hostile.one(rng, heads), hostile.one(rng, heads), archive(rng, plain)))


def archive(rng: Rng, content: bytes) -> bytes:
    """A .npz file whose members are packed in an unusual way, encrypted, damaged, or said to be what they are not."""
    out = io.BytesIO()
    names = hostile.one(
        rng, (("gram.npy", "rewards.npy"), ("gram.npy", "gram.npy"), ("../gram.npy",), (), ("gram",), ("x" * 5000,))
    )
    method = hostile.one(rng, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(out, "w", method) as packed:
        for name in names:
            packed.writestr(zipfile.ZipInfo(name), content, method)
    packed_bytes = bytearray(out.getvalue())
    change = hostile.one(rng, ("", "encrypted", "method", "size", "bytes", "version"))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = packed_bytes.find(mark)
        while start >= 0 and change:
            if change == "encrypted":
                packed_bytes[start + at] |= 1
            elif change == "method":
                packed_bytes[start + at + 2] = int(hostile.one(rng, (1, 9, 97, 99)))
            elif change == "version":
                packed_bytes[start + at - 2] = 200
            elif change == "size":
                packed_bytes[start + at + 12 : start + at + 20] = rng.bytes(8)
            start = packed_bytes.find(mark, start + 4)
    if change == "bytes" and packed_bytes:
        for index in rng.integers(0, len(packed_bytes), 3):
            packed_bytes[index] = int(rng.integers(256))
    return bytes(packed_bytes)


def settings(folder: Path, rng: Rng) -> Path:
    """A file of settings in which something is wrong: in its values, its bytes, its encoding or its name."""
    name = hostile.one(rng, list(SETTINGS))
    text = SETTINGS[name]
    for _ in range(int(hostile.one(rng, (0, 1, 1, 2)))):
        lines = text.splitlines(keepends=True)
        at = int(rng.integers(0, len(lines) + 1))
        if name.endswith(".yaml") and rng.random() < 0.7:
            lines.insert(at, hostile.one(rng, YAML_PIECES))
        elif lines:
            at = min(at, len(lines) - 1)
            value = hostile.one(rng, hostile.VALUES)
            lines[at] = lines[at].replace(
                hostile.one(rng, ("8", "1", "0.04", "e", "a")), hostile.one(rng, (str(value), json.dumps(value))), 1
            )
        text = "".join(lines)
    content = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:
        content = hostile.damaged(rng, content)
    file = folder / (hostile.one(rng, hostile.NAMES) if rng.random() < 0.1 else name)
    if rng.random() < 0.05:
        file = file.with_suffix(hostile.one(rng, (".pkl", ".txt", ".JSON", ".yml", ".cfg", ".json.gz", "")))
    file.write_bytes(content)
    return file


def rollouts(folder: Path, rng: Rng) -> Path:
    """Rollouts, a file of one of several forms or a folder of such, with hostile values, texts and bytes."""
    n = 4 * int(hostile.one(rng, (0, 1, 2, 6, 12)))
    columns: dict[str, list[Any]] = {
        "step": [1 + i // 8 for i in range(n)],
        "prompt": [f"what is {i // 4} + 1?" for i in range(n)],
        "completion": [f"it is {i} \\boxed{{{i // 4}}}" for i in range(n)],
        "reward": rng.integers(0, 2, n).astype(float).tolist(),
        "advantage": (rng.normal(size=n)).tolist(),
        "logprobs": [[-0.5, -0.25, -1.0] for _ in range(n)],
        "sampler_logprobs": [[-0.5, -0.3, -1.1] for _ in range(n)],
        "format_reward": rng.random(n).tolist(),
        "messages": [[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}] for _ in range(n)],
    }
    for name in [name for name in columns if rng.random() < 0.2]:
        del columns[name]
    for _ in range(int(rng.integers(0, 3))):
        if columns and n:
            name = hostile.one(rng, list(columns))
            columns[name] = hostile.spoiled(rng, columns[name])
    texts = (
        "",
        " ",
        "\x1b[2J",
        "\u202eabc",
        "\ud800",
        "a\u0301" * 500,
        "x" * 20_000,
        "\0",
        "😀" * 300,
        "</script><b>",
        "9" * 5000,
    )
    if rng.random() < 0.3 and columns.get("completion"):
        columns["completion"][int(rng.integers(n))] = hostile.one(rng, texts)
    rows = [{name: column[i] for name, column in columns.items()} for i in range(n)]
    form = hostile.one(rng, ("jsonl", "jsonl", "json", "csv", "parquet", "verl", "trl"))
    if form == "parquet":
        try:
            table = pa.table(columns)
        except (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError):
            table = pa.table({"prompt": [None] * n, "completion": ["x"] * n})
        out = io.BytesIO()
        pyarrow.parquet.write_table(table, out)
        content = out.getvalue()
    elif form == "csv":
        lines = [",".join(columns), *(",".join(json.dumps(v).replace(",", ";") for v in row.values()) for row in rows)]
        content = "\n".join(lines).encode()
    elif form == "json":
        content = json.dumps(rows).encode()
    else:
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if rng.random() < 0.2:
        content = hostile.damaged(rng, content)
    if form in ("verl", "trl"):
        into = folder / ("rollouts" if form == "verl" else "completions")
        into.mkdir(exist_ok=True)
        for number in range(1, 3):
            (into / (f"{number}.jsonl" if form == "verl" else f"completions_{number:05d}.parquet")).write_bytes(content)
        return into
    file = folder / (hostile.one(rng, hostile.NAMES) if rng.random() < 0.1 else f"rollouts.{form}")
    file.write_bytes(content)
    return file


def model(folder: Path, rng: Rng, base: Path) -> Path:
    """The folder of a trained run, of one of its checkpoints or of a model, in which something is wrong."""
    run = folder / "trained"
    shutil.copytree(base, run, symlinks=True)
    within = hostile.one(rng, ("", "", "model", "checkpoints", "checkpoints/step-000002"))
    for _ in range(int(hostile.one(rng, (1, 1, 2, 3)))):
        hostile.spoil_record(run / within, rng)
    if rng.random() < 0.2:
        file = hostile.one(rng, sorted(run.rglob("*.safetensors")) or [run / "x"])
        file.unlink(missing_ok=True)
        file.write_bytes(
            hostile.one(
                rng,
                (
                    b"",
                    (2**62).to_bytes(8, "little"),
                    (8).to_bytes(8, "little") + b"{}      ",
                    b"\x80\x04.",
                    rng.bytes(99),
                ),
            )
        )
    return run / hostile.one(rng, ("", "", within if (run / within).is_dir() else ""))


def special(folder: Path, rng: Rng, sound: Path) -> Path:
    """A path of the system, a pipe, a socket, a link, or a record one of whose files is such."""
    kind = hostile.one(
        rng,
        (
            "system",
            "system",
            "pipe",
            "endless pipe",
            "socket",
            "link",
            "loop",
            "in a record",
            "in a record",
            "in a folder",
        ),
    )
    if kind == "system":
        return Path(hostile.one(rng, OF_THE_SYSTEM))
    file = folder / hostile.one(
        rng, ("log.jsonl", "run", "settings.yaml", "gram.npy", "x.parquet", "x.csv", "script.py", "x.json")
    )
    if kind.startswith("in a"):
        into = folder / "holder"
        if kind == "in a record":
            shutil.copytree(sound, into)
            file = hostile.one(rng, sorted(path for path in into.rglob("*") if path.is_file()))
            file.unlink()
        else:
            into.mkdir()
            file = into / file.name
            (into / "other.jsonl").write_text('{"step": 1, "reward": 0.5}\n' * 3)
        _make_special(file, hostile.one(rng, ("pipe", "socket", "link", "loop", "zero")))
        return into
    _make_special(file, kind)
    return file


def _make_special(file: Path, kind: str) -> None:
    """Make a pipe nobody writes to, one nobody ends, a socket, or a link to nothing, to itself or to a device."""
    if kind in ("pipe", "endless pipe"):
        os.mkfifo(file)
        if kind == "endless pipe":
            OPEN.append(os.open(file, os.O_RDWR | os.O_NONBLOCK))
            os.write(OPEN[-1], b'{"step": 1, "reward": 0.5}\n' * 9)
    elif kind == "socket":
        here = os.open(".", os.O_RDONLY)
        os.chdir(file.parent)  # names of sockets are short
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(file.name)
        finally:
            os.fchdir(here)
            os.close(here)
    else:
        file.symlink_to({"link": "/nowhere/at/all", "loop": file.name, "zero": "/dev/zero"}[kind])


OPEN: list[int] = []
"""Ends of pipes that are held open while a command reads the other."""


def close() -> None:
    """Close the ends of pipes that `path` has opened."""
    while OPEN:
        os.close(OPEN.pop())


def path(folder: Path, kind: str, rng: Rng, sound: list[Path], trained: Path, large: dict[str, Path]) -> Path:
    """A hostile input of a kind: RUN, SETTINGS, ROLLOUTS, ARRAY or MODEL; now and then something else altogether."""
    if rng.random() < 0.06:
        return special(folder, rng, sound[0])
    if rng.random() < 0.008 and large:
        chosen = hostile.one(rng, list(large.values()))
        if chosen.name == "bomb.npz" and kind == "RUN":
            return _with_bomb(folder, chosen, sound[0])
        return chosen
    makers: dict[str, Callable[[], Path]] = {
        "RUN": lambda: hostile.write(folder, rng, sound),
        "SETTINGS": lambda: settings(folder, rng),
        "ROLLOUTS": lambda: rollouts(folder, rng),
        "ARRAY": lambda: _written(folder / "gram.npy", array(rng)),
        "PROBE": lambda: _probe(folder, rng, sound[0]),
    }
    if trained.exists():
        makers["MODEL"] = lambda: model(folder, rng, trained)
    return makers[kind]() if rng.random() < 0.97 else makers[hostile.one(rng, sorted(makers))]()


def _written(file: Path, content: bytes) -> Path:
    file.write_bytes(content)
    return file


def _probe(folder: Path, rng: Rng, sound: Path) -> Path:
    """A probe whose Gram file is exchanged for a hostile array or archive."""
    copy = folder / "probe"
    shutil.copytree(sound / "probes" / "step-000020", copy)
    of_array = io.BytesIO()
    np.save(of_array, rng.normal(size=(48, 48)))
    (copy / "gram.npz").write_bytes(
        hostile.one(rng, (b"", array(rng), archive(rng, of_array.getvalue()), bz2.compress(b"x")))
    )
    return copy


def _with_bomb(folder: Path, bomb: Path, sound: Path) -> Path:
    """A probe whose Gram file is the bomb."""
    copy = folder / "probe-with-bomb"
    shutil.copytree(sound / "probes" / "step-000020", copy)
    (copy / "gram.npz").unlink()
    (copy / "gram.npz").symlink_to(bomb)
    return copy
