"""Whatever stands in a file, it is a sound run or one clear line: no other error, no hang, no flood of memory."""

from __future__ import annotations

import gzip
import json
import math
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import trainer_logs as logs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grposcope.core.errors import UserError
from grposcope.logs import Run, read
from grposcope.logs.formats.console import clean, printed_number, printed_pairs
from grposcope.logs.formats.log_file import LogFile
from grposcope.logs.sources import OVERFLOW

QUIET = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def outcome(path: Path) -> Run | str:
    """The run, or the message of the refusal; any other error is a failure of the test."""
    try:
        return read(path)
    except UserError as error:
        return str(error)


def refused(result: Run | str, path: Path) -> bool:
    """Whether it is one short line that names the file."""
    return isinstance(result, str) and len(result.splitlines()) == 1 and len(result) < 2000 and str(path) in result


def consistent(run: Run) -> bool:
    """Whether all parts of a run fit together: shapes, increasing steps, at least one number, none invented."""
    columns = run.table.values()
    tables = [run.table, *(part.table for part in run.segments)]
    return (
        all(column.shape == (run.steps,) and column.dtype == np.float64 for column in columns)
        and all(bool((np.diff(table["step"]) > 0).all()) for table in tables)
        and run.groups.offsets[-1] == len(run.groups.rewards)
        and len(run.evaluations.metric) == len(run.evaluations.value) == len(run.evaluations.step)
        and 0 < sum(int(np.isfinite(column).sum()) for column in columns) <= run.steps * len(run.table)
    )


def good(result: Run | str, path: Path) -> bool:
    """A consistent run or a proper refusal."""
    return refused(result, path) if isinstance(result, str) else consistent(result)


def samples(folder: Path) -> dict[str, bytes]:
    """A small valid file of every kind."""
    rows = [logs.trl_row(step) for step in range(1, 5)]
    table = logs.html(["Step", "Training Loss", "reward"], [[step, step, step] for step in range(1, 5)])
    calls = [logs.history(step, logs.verl_row(step)) for step in (1, 2, 3)]
    pyarrow.parquet.write_table(
        pa.table({"step": [1] * 4, "prompt": ["a", "a", "b", "b"], "completion": ["x"] * 4, "r": [0.0, 1, 1, 1],
                  "advantage": [-0.7, 0.7, 0.0, 0.0]}), folder / "c.parquet"
    )  # fmt: skip
    verl = "\n".join(logs.verl_line(s, logs.verl_row(s)) for s in (1, 2, 3))
    event = logs.message(
        (1, 1.5),
        (2, 3),
        (5, logs.message((1, logs.message((1, b"train/reward"), (8, logs.message((1, 2), (6, 0.5))))))),
    )
    from grposcope.logs.formats import tensorboard

    head = len(event).to_bytes(8, "little")
    check = tensorboard._masked(tensorboard._crc32c(head)).to_bytes(4, "little")
    return {
        "state": logs.trainer_state(folder / "s.json", rows).read_bytes(),
        "completions": (folder / "c.parquet").read_bytes(),
        "printed": ("\r".join(f" {s}/9 [00:01<\r{row}" for s, row in enumerate(rows, 1)) + "\n").encode(),
        "verl lines": "".join(json.dumps({"step": s, "data": logs.verl_row(s)}) + "\n" for s in (1, 2, 3)).encode(),
        "verl console": f"\x1b[36m(TaskRunner pid=7)\x1b[0m {verl}\n".encode(),
        "verl rollouts": b'{"input": "a", "output": "b", "score": 1.0, "step": 1, "uid": "0_1_0"}\n' * 3,
        "openrlhf": b"(PPOTrainer pid=1) Global step 1: {'reward': 0.5, 'ppo_kl': nan, 'kl': inf}\n" * 2,
        "wandb": logs.wandb_file(folder / "r.wandb", calls).read_bytes(),
        "events": (head + check + event + bytes(4)) * 3,
        "notebook": logs.notebook(folder / "n.ipynb", table).read_bytes(),
        "lines": b'{"step": 1, "reward": 0.5, "x": {"y": [1]}, "s": "t"}\n{"step": 2, "reward": NaN}\n',
        "csv": b"step,reward,note\n1,0.5,a\n2,,b\n3,nan,\n",
        "gzip": gzip.compress(b'{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.6}\n'),
    }  # fmt: skip


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return samples(tmp_path_factory.mktemp("samples"))


def test_the_samples_are_read(valid: dict[str, bytes], tmp_path: Path) -> None:
    for name, content in valid.items():
        (tmp_path / "file").write_bytes(content)
        result = outcome(tmp_path / "file")
        assert isinstance(result, Run), f"{name}: {result}"
        assert consistent(result), name


KINDS = (
    "state", "completions", "printed", "verl lines", "verl console", "verl rollouts", "openrlhf", "wandb", "events",
    "notebook", "lines", "csv", "gzip",
)  # fmt: skip
EDIT = st.tuples(
    st.integers(0, 1 << 30),
    st.integers(0, 40),
    st.binary(max_size=12)
    | st.sampled_from([b"", b"nan", b"1e999", b"null", b'"', b"{", b"[", b"\n", b"\r", b"\0" * 9, b"-", b"9" * 30, b"'",
                       b"<td", b"\x1b["]),
)  # fmt: skip


@QUIET
@given(kind=st.sampled_from(KINDS), edits=st.lists(EDIT, min_size=1, max_size=4), cut=st.integers(0, 1 << 30))
def test_damaged_logs(
    valid: dict[str, bytes], tmp_path: Path, kind: str, edits: list[tuple[int, int, bytes]], cut: int
) -> None:
    content = valid[kind]
    for place, length, instead in edits:
        at = place % (len(content) + 1)
        content = content[:at] + instead + content[at + length :]
    content = content[: cut % (2 * len(content) + 1)]
    (tmp_path / "file").write_bytes(content)
    result = outcome(tmp_path / "file")
    assert good(result, tmp_path / "file"), result


STARTS = (
    b"", b"{", b"[", b":W&B\xe1\xbe\0", b"PAR1", b"\x1f\x8b\x08\0", b"\x80", b"step:1 - a:1 - ", b"Global step 1: {",
    b"{'loss': ", b"a,b\n",
)  # fmt: skip
TEXT = st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))


@QUIET
@given(content=st.one_of(st.binary(max_size=300), TEXT), start=st.sampled_from(STARTS))
def test_junk(tmp_path: Path, content: bytes, start: bytes) -> None:
    (tmp_path / "file").write_bytes(start + content)
    result = outcome(tmp_path / "file")
    assert good(result, tmp_path / "file"), result
    assert isinstance(result, str) or result.steps <= len(start + content)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5,
)
KNOWN = (
    "step", "reward", "eval_reward", "split", "data", "train_runtime", "_step", "run", "kl", "lr(1e-4)",
    "rewards/a/mean", "log_history", "cells",
)  # fmt: skip
KEYS = st.one_of(st.sampled_from(KNOWN), st.text(max_size=6))


@QUIET
@given(rows=st.lists(st.dictionaries(KEYS, VALUES, max_size=5), max_size=8), packed=st.booleans())
def test_any_json(tmp_path: Path, rows: list[dict[str, object]], packed: bool) -> None:
    text = json.dumps(rows) if packed else "\n".join(map(json.dumps, rows))
    (tmp_path / "file").write_text(text)
    result = outcome(tmp_path / "file")
    assert good(result, tmp_path / "file"), result
    in_columns = [len(value) for row in rows for value in row.values() if isinstance(value, list)]
    assert isinstance(result, str) or result.steps <= max([len(rows), *in_columns])


@QUIET
@given(
    rows=st.lists(
        st.fixed_dictionaries({"reward": st.floats(-1e100, 1e100), "kl": st.floats(-1e100, 1e100) | st.just(math.inf)}),
        min_size=1,
        max_size=20,
    )
)
def test_numbers_come_back_exactly(tmp_path: Path, rows: list[dict[str, float]]) -> None:
    (tmp_path / "file").write_text("".join(json.dumps({"step": s, **row}) + "\n" for s, row in enumerate(rows)))
    run = read(tmp_path / "file")
    assert consistent(run)
    for key in ("reward", "kl"):
        values = np.array([row[key] for row in rows])
        values[np.abs(values) > OVERFLOW] *= np.inf
        np.testing.assert_array_equal(run.table[key], values)


@QUIET
@given(text=st.text(max_size=200))
def test_printed_text(text: str) -> None:
    assert len(clean(text)) <= len(text)
    assert all(isinstance(key, str) for key in printed_pairs(text))
    result = printed_number(text)
    assert result is None or isinstance(result, float)
    assert printed_number(repr(1.5e-7)) == 1.5e-7


def page(html: str) -> bytes:
    """A notebook with this output."""
    return json.dumps({"nbformat": 4, "cells": [{"outputs": [{"data": {"text/html": html}}]}]}).encode()


LONG: dict[str, Callable[[int], bytes]] = {
    "quotes": lambda n: b"{'loss': " + b"'a': '" * n,
    "cells": lambda n: page("<table><tr>" + "<td" * n),
    "tables": lambda n: page("<table>" * n),
    "escapes": lambda n: b"step:1 - a:1 - " + b"\x1b[" * n + b"\x1b]" * n,
    "brackets": lambda n: b"step:1 - a:1 - x:tensor(" + b"(, " * n,
    "ray": lambda n: b"step:1 - a:1\n(" + b"a b " * n + b"pid=x",
    "separators": lambda n: b"step:1 - a:1" + b" - b:c" * n,
    "spaces": lambda n: b"{'loss'" + b" " * n + b"'" + b"{'a'" * n,
    "commas": lambda n: b"step,reward" + b",a" * n + b"\n1,1" + b",1" * n + b"\n",
    "opening": lambda n: b'{"step": 1, "reward": 1}\n' + b"[" * n + b"\n",
    "lines": lambda n: b"step:1 - reward:1 - b:2\n" + b"\n" * n,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG)
def test_long_lines_take_time_in_proportion(tmp_path: Path, kind: str) -> None:
    """Half a megabyte of what makes regular expressions explode; a quadratic search would take minutes."""
    (tmp_path / "file").write_bytes(LONG[kind](100_000))
    tracemalloc.start()
    result = outcome(tmp_path / "file")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert good(result, tmp_path / "file")
    assert peak < 16e6 + 300 * (tmp_path / "file").stat().st_size


@pytest.mark.slow
def test_a_large_file_is_not_held(tmp_path: Path) -> None:
    """Numbers take their own 8 bytes each; the texts beside them pass through."""
    line = json.dumps({"step": 0, "reward": 0.5, "completion": "x" * 4000})
    with (tmp_path / "log.jsonl").open("w") as file:
        for step in range(8000):
            file.write(line.replace('"step": 0', f'"step": {step}') + "\n")
    tracemalloc.start()
    run = read(tmp_path / "log.jsonl")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert run.steps == 8000
    assert (tmp_path / "log.jsonl").stat().st_size > 32e6
    assert peak < 16e6


@pytest.mark.slow
def test_a_bomb_is_unpacked_piece_by_piece(tmp_path: Path) -> None:
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b'{"step": 1, "reward": 1}\n' + b"0" * 200_000_000))
    tracemalloc.start()
    run = read(tmp_path / "bomb.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert run.steps == 1
    assert "longer than 64 MiB" in " ".join(run.meta.notes)
    assert peak < 200e6


def test_pieces_are_the_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    content = b"\n".join(b"x" * int(size) for size in rng.integers(0, 300_000, 40))
    (tmp_path / "f").write_bytes(content)
    pieces = list(LogFile(tmp_path / "f").pieces())
    assert b"".join(piece for _, piece in pieces) == content
    assert [first for first, _ in pieces] == [
        1 + content[:at].count(b"\n") for at in np.cumsum([0, *(len(piece) for _, piece in pieces)])[:-1]
    ]
