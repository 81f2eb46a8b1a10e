"""Lines of a terminal: none is longer than it, nothing is lost, and colours are for terminals alone."""

from __future__ import annotations

import io
import os
import sys

import pytest

from grposcope.core.answer import Answer, Table
from grposcope.render import terminal, wrapping

TEXT = "the reward fell from 0.5 to 0.3 while/the/held-out/score/of/a/very/long/name/did not, 长长长 of 2 columns each"


@pytest.mark.parametrize("columns", [7, 12, 40, 80, 200])
def test_lines_are_no_longer_than_asked_and_lose_nothing(columns: int) -> None:
    lines = wrapping.wrapped(TEXT, columns, "  ", "    ")
    assert max(map(wrapping._cells, lines)) <= columns
    assert "".join("".join(lines).split()) == "".join(TEXT.split())
    assert lines[0].startswith("  the")
    assert all(line.startswith("    ") for line in lines[1:])


def test_a_text_that_fits_is_left_alone() -> None:
    assert wrapping.wrapped("a b  c", 6) == ["a b  c"]
    assert wrapping.wrapped("", 6) == [""]
    assert wrapping.clipped("12345", 5) == "12345"
    assert wrapping.clipped("123456", 5) == "1234…"
    assert wrapping._cells(wrapping.clipped("长长长", 5)) == 5


def test_a_table_is_narrowed_at_its_widest_columns() -> None:
    rows = [("rule", "seen"), ("length", "completions " * 30), ("kl", "small")]
    wide, narrow = wrapping.table(rows, 1000), wrapping.table(rows, 60)
    assert wide.splitlines()[1].startswith("  length  completions completions")
    assert len(wide.splitlines()) == 3
    assert max(map(len, narrow.splitlines())) <= 60
    assert narrow.count("completions") == 30
    assert narrow.splitlines()[2].startswith("          completions"), "below its own column"
    assert narrow.splitlines()[-1] == "  kl      small"


def test_an_answer_within_a_width() -> None:
    answer = Answer("toy", "?", sentence="word " * 40, tables=[Table("", ("a", "b"), [("x", "y " * 90)], "z " * 90)])
    assert max(map(len, terminal.text(answer, 50).splitlines())) <= 50
    assert max(map(len, terminal.text(answer).splitlines())) > 150


def test_a_screen_keeps_the_first_lines_of_all_before_the_rest_of_any() -> None:
    blocks = [["one", "  more of one", "  still more"], ["two", "  more of two"], ["three"]]
    full = terminal.screen(["head", "why"], [blocks], ["tail"], "{left}-v", 40, 20).split("\n")
    assert full == ["head", "", "why", "", "one", "  more of one", "  still more", "two", "  more of two", "three", "",
                    "tail", "-v"]  # fmt: skip
    short = terminal.screen(["head", "why"], [blocks], ["tail"], "{left}-v", 40, 11).split("\n")
    assert short == ["head", "", "why", "", "one", "two", "  more of two", "three", "", "tail", "-v"]
    least = terminal.screen(["head", "why"], [blocks], ["tail"], "{left}-v", 40, 8).split("\n")
    assert least == ["head", "", "why", "", "one", "", "tail", "2 more remarks, -v"]


class Terminal(io.StringIO):
    """A standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_widths_and_colours_are_those_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "72")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert (wrapping.width(), wrapping.has_colours()) == (wrapping.PLAIN, False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert (wrapping.width(), wrapping.has_colours()) == (72, True)
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as changed:
            changed.setitem(os.environ, name, value)
            assert not wrapping.has_colours()


def test_all_lines_of_the_verdict_have_its_colour_and_nothing_else_has() -> None:
    assert wrapping.coloured("Failing: a\nb\n\nc", "failing") == "\x1b[1;31mFailing: a\x1b[0m\n\x1b[1;31mb\x1b[0m\n\nc"
    assert wrapping.coloured("told\n\nc", "told") == "told\n\nc"


def test_a_terminal_gets_lines_of_its_width_and_a_pipe_whole_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Answer("one", "?", sentence="word " * 60)
    assert len(terminal.text(said).splitlines()) == 1
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, terminal.text(said).splitlines())) <= 80


def test_all_rows_of_a_folded_table_where_all_are_wanted() -> None:
    rows = [(f"row {i}", "x") for i in range(terminal.FOLDED + 3)]
    said = Answer("one", "?", tables=[Table("t", ("a", "b"), rows, folded=True)])
    assert "3 more rows on the page" in terminal.text(said)
    assert f"row {terminal.FOLDED + 2}" in terminal.text(said, whole=True)
