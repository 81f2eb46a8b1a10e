"""Numbers and names for people, and text that is safe for a terminal."""

from __future__ import annotations

import json
import math

import pytest

from grposcope.core.errors import UserError
from grposcope.core.files import dumps
from grposcope.core.text import duration, listed, number, percent, plain, span, table, visible


def test_names_on_one_line() -> None:
    assert visible("a\x1b[31m\u202eb\n") == "a[ESC][31m[U+202E]b[LF]"
    assert visible("x" * 300, 10) == "xxxxxxxxxx… (300 characters)"


@pytest.mark.parametrize("code", [*range(9), 0x1B, 0x7F, 0x9B, 0xAD, 0x61C, 0x115F, 0x200B, 0x2028, 0x202E, 0x2066,
                                  0xFEFF, 0xE0041, 0xD800], ids=hex)  # fmt: skip
def test_one_set_of_characters_is_hidden_on_a_line_and_in_json(code: int) -> None:
    hidden = chr(code)
    assert hidden not in visible(f"a{hidden}b")
    assert visible(f"a{hidden}b").startswith("a[")
    assert hidden not in dumps(f"é{hidden}b")
    assert json.loads(dumps(f"é{hidden}b")) == f"é{hidden}b"


def test_letters_of_all_languages_are_left_alone() -> None:
    text = "é 漢 مرحبا שלום 👩 ∂L/∂w"
    assert visible(text) == text
    assert dumps(text) == f'"{text}"'


def test_durations() -> None:
    assert duration(0.123) == "0.12 s"
    assert duration(59.6) == "1 min 0 s"
    assert duration(3_700) == "1 h 1 min"
    assert duration(200_000) == "2 d 7 h"
    assert duration(math.nan) == "an unknown time"


def test_numbers() -> None:
    assert [number(v) for v in (0.0, 0.12345, 1234.5, 45_678.0, 2e-5, math.inf, math.nan)] == [
        "0", "0.123", "1,234", "45,678", "2.00e-5", "∞", "NaN"]  # fmt: skip
    assert [percent(v) for v in (0.123, -0.001, math.nan)] == ["12%", "0%", "NaN"]
    assert [listed(items) for items in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


def test_a_table_has_aligned_columns() -> None:
    rows = [("G", "loss", ""), ("2", "36.9%", "▇"), ("16", "1%", "")]
    assert table(rows, indent="  ") == "  G   loss\n  2   36.9%  ▇\n  16  1%"
    assert table(rows[1:], right=True) == "2   36.9%  ▇\n16     1%"


def test_an_interval_may_be_open_or_of_shares() -> None:
    assert span(2.8, math.inf) == "2.8 to ∞"
    assert span(0.01, 0.3, percent) == "1% to 30%"


@pytest.mark.parametrize(
    ("made", "read"),
    [
        ("1 rows are left out", "1 row is left out"),
        ("restarted 1 times, first in line 3", "restarted 1 time, first in line 3"),
        ("1 held-out evaluations have no step", "1 held-out evaluation has no step"),
        ("x: 1 lines are not JSON and were left out: 4", "x: 1 line is not JSON and was left out: 4"),
        ("1 entries were cut, 11 rows were", "1 entry was cut, 11 rows were"),
        ("from step 1 rollouts are drawn", "from step 1 rollouts are drawn"),
        ("interval 0.1 steps, 2,001 rows", "interval 0.1 steps, 2,001 rows"),
        ("norm 2.68e+03, rate 1e-05, 3.1e+12 weights", "norm 2,680, rate 1e-5, 3.1e12 weights"),
        ("-1.5e+03 to 2e+04.", "-1,500 to 20,000."),
        ("runs/lr1e-05/a 1e-05/b", "runs/lr1e-05/a 1e-05/b"),
    ],
)
def test_sentences_agree_in_number_and_write_numbers_in_one_style(made: str, read: str) -> None:
    assert plain(made) == read
    assert str(UserError(made)) == read
