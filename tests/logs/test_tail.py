"""Following a file by what is appended equals reading it whole, whatever the cuts, and notices when it starts over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grposcope.core.errors import UserError
from grposcope.logs.tail import Tail


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**9), max_size=30), st.lists(st.integers(1, 40), max_size=200))
def test_any_cuts_give_all_rows_once(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("tail") / "steps.jsonl"
    whole = "".join(json.dumps({"step": n}) + "\n" for n in numbers).encode()
    tail, collected, start = Tail(path), [], 0
    for cut in [*cuts, len(whole)]:
        with path.open("ab") as file:
            file.write(whole[start : start + cut])
        start += cut
        rows, afresh = tail.read()
        assert not afresh
        collected += rows
    assert collected == [{"step": n} for n in numbers]


def test_only_what_was_appended_is_read(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')
    tail = Tail(path)
    assert len(tail.read()[0]) == 2
    with path.open("r+b") as file:  # the first line is not looked at again
        file.write(b'{"step": 9}')
    with path.open("a") as file:
        file.write('{"step": 3}\n')
    assert tail.read() == ([{"step": 3}], False)
    assert tail.read() == ([], False)


@pytest.mark.parametrize("after", ['{"step": 1}\n', '{"step": 1}\n{"step": 7, "reward": 0.25}\n{"step": 8}\n', ""])
def test_a_record_that_was_cut_back_is_read_afresh(tmp_path: Path, after: str) -> None:
    """Whether it is still shorter when it is looked at, or has grown beyond where it was."""
    path = tmp_path / "steps.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "reward": 0.5}\n')
    tail = Tail(path)
    tail.read()
    path.write_text(after)
    assert tail.read() == ([json.loads(line) for line in after.splitlines()], True)


def test_a_file_that_is_replaced_by_a_longer_copy_goes_on(tmp_path: Path) -> None:
    """As rsync does."""
    path = tmp_path / "steps.jsonl"
    path.write_text('{"step": 1}\n')
    tail = Tail(path)
    tail.read()
    copy = tmp_path / "copy"
    copy.write_text('{"step": 1}\n{"step": 2}\n')
    copy.replace(path)
    assert tail.read() == ([{"step": 2}], False)


def test_files_come_and_go(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "steps.jsonl")
    assert tail.read() == ([], False)
    tail.path.write_text('{"step": 1}\n')
    assert tail.read() == ([{"step": 1}], False)
    tail.path.unlink()
    assert tail.read() == ([], True)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text('{"step": 1}\n')
    tail = Tail(path)
    tail.read()
    with path.open("a") as file:
        file.write('{"step": 2}\n{"step": \n')
    with pytest.raises(UserError, match=r"steps\.jsonl, line 3: not valid JSON"):
        tail.read()
