"""What an interactive shell shows of a run, its findings and an answer: a line that a person reads."""

from __future__ import annotations

from places import ROOT

from grposcope import diagnose, read
from grposcope.core.answer import Answer, Table


def test_a_run_is_a_line() -> None:
    run = read(ROOT / "docs" / "example.jsonl")
    assert repr(run) == "<Run 'example.jsonl': verl, 200 rows, steps 1 to 200, 9 metrics, 21 evaluations>"
    assert repr(run.evaluations) == "<Evaluations: 21 values of val-core/gsm8k/acc/mean@1>"
    assert repr(run.groups) == "<Groups: 0 groups of 0 rollouts>"


def test_a_finding_says_what_was_seen_and_what_to_do() -> None:
    worst, *_, last = diagnose(read(ROOT / "docs" / "example.jsonl"))
    assert repr(worst).startswith("<Finding failing: reward hacking, since step 90, held-out val-core")
    assert "; what to do: stop and read completions" in repr(worst)
    assert repr(last).startswith("<Finding excluded: ")
    assert "what to do" not in repr(last)


def test_an_answer_has_its_sentence_and_hides_what_acts_on_a_terminal() -> None:
    said = Answer("mine", "Is it?", "healthy", "Yes, 1 rows are.\x1b[31m", because="it is")
    assert repr(said) == "<Answer mine, healthy: Yes, 1 row is.[ESC][31m>"
    assert str(said) == "Yes, 1 row is.[ESC][31m\nBecause it is."


def test_numbers_in_tables_have_the_one_style() -> None:
    table = Table("t", ("a", "b"), [("3.3e+02", "1e-05"), ("1 rows", "plain")], caption="of 2.68e+03")
    assert list(table.rows) == [("330", "1e-5"), ("1 row", "plain")]
    assert table.caption == "of 2,680"
    untouched = [["a", "0.5"]]
    assert Table("t", ("a", "b"), untouched).rows is untouched
