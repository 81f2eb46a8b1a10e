r"""Which answer a completion gives, and when it equals the reference answer."""

from __future__ import annotations

import logging
import sys
import threading
import time

import pytest

from grposcope.core.errors import UserError
from grposcope.lab.tasks import grading
from grposcope.lab.tasks.limits import SECONDS

pytest.importorskip("math_verify", reason="grading needs math-verify")

RIGHT = [
    # how an answer may be marked
    ("72", "48/2 is 24\n#### 72"),
    ("72", "so it is \\boxed{72}"),
    ("72", "<answer>72</answer>"),
    ("72", "The answer is 72."),
    ("72", "She has 48, then 24 more, which makes 72"),
    ("72", "48/2=24\n24+48=72"),
    ("72", "**72**"),
    # the last mark counts
    ("72", "The answer is about 70.\n#### 72"),
    ("72", "first \\boxed{5}, then \\boxed{72}"),
    ("72", "#### 5\nno: #### 72"),
    ("72", "#### 5, or rather \\boxed{72}"),
    ("72", "<answer>5</answer> no:\n#### 72"),
    ("72", "#### 5\nno, \\boxed{72}"),
    ("72", "#### \\boxed{72}"),
    ("72", "####\n\n72\nand that is 3 more than before"),
    # how a number may be spelt
    ("72", "#### $72"),
    ("72", "#### $72$"),
    ("72", "#### 72 apples"),
    ("72", "#### 72 km/h"),
    ("72", "#### **72**"),
    ("72", "#### 72."),
    ("72", "#### 72.00"),
    ("72", "#### x = 72"),
    ("72", "\\boxed{72\\text{ apples}}"),
    ("1080", "#### 1,080 dollars"),
    ("1,080", "\\boxed{1080}"),
    ("080", "\\boxed{80}"),
    ("-5", "#### −5"),
    ("72 apples", "#### 72"),
    ("1/2", "#### \\frac{1}{2}"),
    ("0.5", "The answer is $\\frac{1}{2}$."),
    ("0.6666666667", "#### 2/3"),
    ("4.5e33", "\\boxed{4.5 \\times 10^{33}}"),
    ("4.5e33", "#### 4.5E+33"),
    ("7.25e-11", "\\boxed{0.0000000000725}"),
    # more than numbers
    ("$10-4 n$", "#### -4n+10"),
    ("$10-4 n$", "10 - 4n"),
    ("1,3,5", "\\boxed{5,3,1}"),
    ("$221,$8$", "\\boxed{8, 221}"),
    ("$x=-6$ or $x=6$", "\\boxed{6,-6}"),
    ("$(1,8,19), (2,7,13)$", "\\boxed{(2,7,13),(1,8,19)}"),
    ("$(-\\infty, 0) \\cup\\{1\\}$.", "\\boxed{(-\\infty,0)\\cup\\{1\\}}"),
    ("2xy", "\\boxed{2yx}"),
    ("5:6", "#### 5/6"),
    # words
    ("Purple", "The answer is purple."),
    ("Purple", "\\boxed{\\text{Purple}}"),
    ("No solution", "#### no  solution"),
    ("3:30 p.m.", "#### 3:30 P.M."),
]

WRONG = [
    ("72", "She has 72 clips, of which 24 in May"),
    ("72", "\\boxed{72}, no, \\boxed{5}"),
    ("72", "#### 72\n#### 73"),
    ("72", "<answer>5</answer> 72"),
    ("72", "#### 5 or 72"),
    ("72", "#### 72 or 5"),
    ("72", "\\boxed{5,72}"),
    ("72", "#### 71"),
    ("72", "#### -72"),
    ("72", "#### 720"),
    ("72", ""),
    ("72", "#### "),
    ("72", "I do not know"),
    ("", ""),
    ("", "#### "),
    ("0.6666666667", "#### 0.67"),
    ("7.25e-11", "\\boxed{0.0}"),
    ("7.25e-11", "\\boxed{0.00000001}"),
    ("4.5e33", "\\boxed{4.5}"),
    ("$10-4 n$", "\\boxed{10-4m}"),
    ("$10-4 n$", "\\boxed{10}"),
    ("2xy", "\\boxed{2}"),
    ("1,3,5", "\\boxed{1,3}"),
    ("Purple", "\\boxed{\\text{Red}}"),
    ("Purple", "#### Red\nPurple"),
    ("Purple", "It may be purple, I think"),
    ("3:30 p.m.", "#### 3"),
    ("The 60th caller.", "#### 60"),
    ("4 rectangles: 10.25, 8 rectangles: 11.4375", "#### 11.4375"),
]


@pytest.mark.parametrize(("answer", "completion"), RIGHT)
def test_right(answer: str, completion: str) -> None:
    assert grading.equal(answer, completion)


@pytest.mark.parametrize(("answer", "completion"), WRONG)
def test_wrong(answer: str, completion: str) -> None:
    assert not grading.equal(answer, completion)


def test_two_answers_never_both_count() -> None:
    completion = "The answer is 70\n72"
    assert grading.equal("70", completion) + grading.equal("72", completion) <= 1


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("no mark", None),
        ("#### 72\nmore", "72\nmore"),
        ("\\boxed{\\frac{1}{2}} done", "\\frac{1}{2}"),
        ("<answer>\n1 2\n3 4\n</answer> done", "1 2\n3 4"),
        ("<answer>cut off", "cut off"),
        ("#### 7 \\boxed{cut off", "7 \\boxed{cut off"),
        ("\\boxed{7} ####", "7"),
        ("\\boxed{}", None),
    ],
)
def test_the_marked_text(completion: str, text: str | None) -> None:
    assert grading.marked(completion) == text


def test_only_the_first_line_after_the_hashes_where_one_line_is_asked_for() -> None:
    assert grading.marked("#### 72\nmore", line=True) == "72"
    assert grading.marked("\\boxed{1\n2}", line=True) == "1\n2"


def test_only_the_end_of_a_long_completion_counts() -> None:
    assert grading.equal("72", "a" * 1_000_000 + "\n#### 72")
    assert grading.marked("#### 72" + " " * grading.TAIL + "b") is None


@pytest.mark.parametrize("unit", ["a", "1 ", "$", "{", "#### ", "\\(", "\\boxed{", "9", "\x00"])
def test_a_megabyte_of_anything_is_graded_soon(unit: str) -> None:
    start = time.monotonic()
    assert not grading.equal("72", unit * (1_000_000 // len(unit)))
    assert time.monotonic() - start < 2 * SECONDS + 2


def test_long_text_is_searched_but_not_read_as_one_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(grading, "_expressions", lambda text: read.append(text) or [])
    for letter, words in (("x ", False), ("word ", True)):
        grading._parsed(letter * grading.WHOLE)
        assert not any("boxed" in text for text in read), words
    grading._parsed("x")
    assert "\\boxed{x}" in read


@pytest.mark.slow
def test_a_hopeless_comparison_ends_and_is_wrong_and_nothing_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(grading, "SECONDS", 1)
    start = time.monotonic()
    with caplog.at_level(logging.WARNING):
        assert not grading.equal("72", "\\boxed{9^{9 \\cdot 9^{9}}}")
    assert 0.9 < time.monotonic() - start < 6
    assert not caplog.records


def test_a_tower_of_powers_is_refused_at_once() -> None:
    start = time.monotonic()
    assert not grading.equal("72", "\\boxed{10^{10^{10}}}")
    assert time.monotonic() - start < 0.9


def test_grading_works_outside_the_main_thread() -> None:
    pairs = [("72", "\\boxed{72.0}"), ("0.5", "#### 1/2"), ("72", "#### 71"), ("72", "9^9^9^9")]
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.extend(grading.equal(a, c) for a, c in pairs))
    thread.start()
    thread.join()
    assert results == [True, True, False, False]


def test_a_reference_answer_is_parsed_once() -> None:
    grading._gold.cache_clear()
    for guess in range(5):
        grading.equal("123456", f"#### {guess}")
    assert grading._gold.cache_info().misses == 1


def test_without_math_verify_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    grading.engine.cache_clear()
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(UserError, match=r"pip install '.*\[math\]'"):
        grading.equal("72", "#### 72")
