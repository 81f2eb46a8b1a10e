"""Reading JSON lines: what is read, and that every complaint names its place and a remedy."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from grposcope.errors import UserError
from grposcope.tasks.jsonl import as_text, read_rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def test_rows_come_with_their_line_numbers_and_blank_lines_are_skipped(file: Path) -> None:
    file.write_text('{"a": 1}\n\n   \n{"a": "é"}')
    assert list(read_rows(file)) == [(1, {"a": 1}), (4, {"a": "é"})]


def test_gzip_is_recognised_whatever_the_name_and_a_byte_order_mark_is_dropped(file: Path) -> None:
    file.write_bytes(gzip.compress(b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}\r\n'))
    assert [row["a"] for _, row in read_rows(file)] == [1, 2]


def test_reading_is_streamed(file: Path) -> None:
    file.write_text('{"a": 1}\nnot json\n')
    assert next(read_rows(file)) == (1, {"a": 1})


def test_one_of_several_names_is_enough(file: Path) -> None:
    file.write_text('{"prompt": "x"}\n{"question": "y"}\n')
    assert len(list(read_rows(file, required=(("prompt", "question"),)))) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b'{"a": 1}\n{"a": 1\n', "line 2: not valid JSON"),
        (b"[1, 2]\n", "line 1: a JSON list, not an object"),
        (b'"text"\n', "line 1: a JSON str, not an object"),
        (b'{"a": 1}\n\n{"b": 1, "c": 2}\n', "line 3 has no field 'a'; its fields are b, c"),
        (b"{}\n", "its fields are none"),
        (b'{"a": "\xff"}\n', "line 1: byte 8 is not UTF-8"),
        (b'{"a": "\\ud83d"}\n', "line 1: holds half of a surrogate pair"),
        (b"[" * 100_000 + b"\n", "line 1: not valid JSON"),
        (gzip.compress(b'{"a": 1}\n' * 9)[:-12], "the gzip data breaks off"),
    ],
)
def test_a_bad_file_is_one_line_with_file_and_place(file: Path, content: bytes, said: str) -> None:
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        list(read_rows(file, required=("a",)))
    message = str(caught.value)
    assert str(file) in message
    assert said in message
    assert "\n" not in message


def test_a_full_surrogate_pair_is_text(file: Path) -> None:
    file.write_text(json.dumps({"a": "😀"}))
    assert list(read_rows(file)) == [(1, {"a": "😀"})]


def test_missing_alternatives_are_all_named(file: Path) -> None:
    file.write_text('{"text": "x"}\n')
    with pytest.raises(UserError, match="no field 'prompt' or 'question'"):
        list(read_rows(file, required=(("prompt", "question"),)))


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        list(read_rows(tmp_path / "none.jsonl"))
    with pytest.raises(UserError, match="is a folder"):
        list(read_rows(tmp_path))


@pytest.mark.parametrize(
    ("value", "text"),
    [(27.0, "27"), (0.5, "0.5"), (3, "3"), (" 7 ", "7"), (None, ""), (["1", 2.0], "1, 2"), ([], ""), (-1.0, "-1")],
)
def test_values_as_answers(value: object, text: str) -> None:
    assert as_text(value) == text
