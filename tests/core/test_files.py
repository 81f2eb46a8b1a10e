"""JSON lines: whatever `dumps` writes is read back, and a line that cannot be read is named with its file."""

from __future__ import annotations

import gzip
import json
import math
import os
import socket
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from alike import alike
from hypothesis import given
from hypothesis import strategies as st

from grposcope.core.errors import UserError
from grposcope.core.files import (
    _finite_or_named,
    append,
    atomic,
    atomic_folder,
    dumps,
    json_lines,
    json_number,
    json_object,
    nothing_there,
    opened,
    read_whole,
    typed,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text().filter(lambda text: text not in ("NaN",)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_dumps_writes_is_read_back(content: dict[str, Any]) -> None:
    assert alike(_finite_or_named(json_object(dumps(content), "here")), _finite_or_named(content))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"a": ', "log.jsonl, line 2: not valid JSON"),
        (b"[1]", "log.jsonl, line 2: a JSON list, not an object"),
        (b'{"a": "\xff"}', "log.jsonl, line 2: byte 8 is not UTF-8"),
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "log.jsonl, line 2: not valid JSON"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: bytes, words: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b"\n")
    rows = json_lines(path)
    assert next(rows) == (1, {"a": 1})
    with pytest.raises(UserError, match=words):
        next(rows)


def test_blank_lines_a_byte_order_mark_and_gzip(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"a": NaN}\r\n\n \n{"b": 2}'
    for name, data in (("plain", content), ("packed", gzip.compress(content))):
        (tmp_path / name).write_bytes(data)
        (first, one), (second, other) = json_lines(tmp_path / name)
        assert (first, second, other) == (1, 4, {"b": 2})
        assert math.isnan(one["a"])
    (tmp_path / "cut").write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(UserError, match="the gzip data is cut off"):
        list(json_lines(tmp_path / "cut"))
    for path, words in ((tmp_path / "none", "there is no such file"), (tmp_path, "is a folder")):
        with pytest.raises(UserError, match=words):
            list(json_lines(path))


def test_values_as_numbers() -> None:
    assert json_number(True) == 1.0
    assert json_number(-(10**400)) == -math.inf
    assert math.isnan(json_number(None) or 0.0)
    assert json_number("-Infinity") == -math.inf
    assert [json_number(value) for value in ("0.5", [], {})] == [None, None, None]


def test_a_growing_file_may_end_within_a_line(tmp_path: Path) -> None:
    path = tmp_path / "growing.jsonl"
    path.write_text('{"a": 1}\n{"a": 2')
    assert [row for _, row in json_lines(path, growing=True)] == [{"a": 1}]
    path.write_text('{"a": 1\n{"a": 2}\n')
    with pytest.raises(UserError, match="line 1"):
        list(json_lines(path, growing=True))


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    with atomic_folder(target) as folder:
        (folder / "a").write_text("1")
        assert not target.exists()

    def half_written() -> None:
        with atomic_folder(target) as folder:
            (folder / "b").write_text("2")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        half_written()
    assert [f.name for f in target.iterdir()] == ["a"]
    with atomic_folder(target) as folder:
        (folder / "c").write_text("3")
    assert [f.name for f in target.iterdir()] == ["c"]
    assert [f.name for f in target.parent.iterdir()] == ["model"]


def test_a_pipe_is_written_into_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_bytes)
        with atomic(pipe) as file:
            file.write(b"page")
        assert read.result(timeout=10) == b"page"
    assert pipe.is_fifo()


def test_of_two_that_make_the_same_folder_the_first_to_end_wins(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "model", shared=True) as late:
        with atomic_folder(tmp_path / "model", shared=True) as early:
            (early / "a").write_text("early")
        (late / "a").write_text("late")
    assert (tmp_path / "model" / "a").read_text() == "early"
    assert [f.name for f in tmp_path.iterdir()] == ["model"]


def test_json_that_is_nested_too_deeply_is_no_json() -> None:
    with pytest.raises(UserError, match="line 1: not valid JSON"):
        json_object("[" * 100_000, "line 1")


class Shares(dict[str, float]):
    """Mapping of a type of its own."""


@dataclass(frozen=True)
class Inner:
    """Dataclass with fields that have no default."""

    value: float
    n: int


@dataclass(frozen=True)
class Outer:
    """Dataclass with a field of every kind that `typed` knows."""

    name: str = "?"
    whole: int | None = None
    number: float = 0.5
    yes: bool = True
    inner: Inner = Inner(0.0, 0)
    listed: tuple[float, ...] = ()
    pairs: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    sizes: Mapping[int, Inner] = field(default_factory=dict)
    shares: Shares | None = None
    renamed: str = field(default="", metadata={"key": "class"})
    grade: Literal["good", "bad"] = "good"


def test_a_dataclass_comes_back_from_its_json() -> None:
    outer = Outer("a", 3, math.inf, False, Inner(-math.inf, 2), (1.5, -math.inf), {"b": (1, 2)},
                  {4: Inner(1.0, 1)}, Shares(c=0.25))  # fmt: skip
    again = typed(Outer, json.loads(dumps(outer)))
    assert again == outer
    assert isinstance(again.shares, Shares)
    assert typed(Outer, {"class": "d"}).renamed == "d"
    assert typed(Outer, {"grade": "bad"}).grade == "bad"


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"name": 3, "whole": 1.5, "number": "many", "yes": 1, "inner": {"value": 1.0}, "listed": [1, "a"]},
        {"name": None, "whole": True, "yes": None, "inner": 2.0, "listed": 3, "pairs": [1], "shares": "b"},
        {"pairs": {"b": 1, "c": ["x", 2]}, "sizes": {"four": {"value": 1, "n": 1}}, "unknown": 1, "grade": "so"},
    ],
)
def test_what_is_absent_or_of_another_type_has_its_default(content: dict[str, Any]) -> None:
    assert typed(Outer, content) == Outer()


def test_a_dash_is_no_file_and_is_said_to_be_none() -> None:
    assert "does not read standard input" in str(nothing_there(Path("-"), "a file"))
    assert str(nothing_there(Path("x"), "a file")) == "there is no x; give a file"


@pytest.mark.parametrize("place", ["/dev/zero", "/dev/null", "/proc/self/pagemap", "pipe", "socket"])
def test_what_is_no_file_is_not_read(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    with pytest.raises(OSError, match="it is a pipe, a device or a socket"):
        opened(Path(place))


def test_a_device_that_is_written_to_stays_one(tmp_path: Path) -> None:
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    for path in (Path("/dev/null"), null):
        with atomic(path) as file:
            file.write(b"x")
        assert stat.S_ISCHR(path.stat().st_mode)
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"), atomic(Path("/dev/full")) as file:
        file.write(b"x")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_what_is_appended_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "rows", os.write
    append(path, b"first\n")

    def full(file: int, data: bytes) -> int:
        if len(data) < 8:
            raise OSError(28, "No space left on device")
        return write(file, data[:3])

    monkeypatch.setattr("os.write", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*rows'"):
        append(path, b"the second\n")
    assert path.read_bytes() == b"first\n"


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    if not os.fork():
        with pipe.open("wb") as file:
            file.write(b"x" * 100_000)
        os._exit(0)
    assert read_whole(pipe) == b"x" * 100_000
    os.wait()
