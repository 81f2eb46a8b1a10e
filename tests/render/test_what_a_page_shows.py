"""What the page of one run shows where: levels of the headline, onsets, colours, axes, and nothing twice."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

from grposcope import runs_page
from grposcope.core.answer import Answer, Figure, Table
from grposcope.logs import read
from grposcope.render import page
from grposcope.render.page import Document
from grposcope.runs_page import SENTENCE, _arranged


@pytest.fixture(scope="module")
def content() -> Document:
    return runs_page.document([read(ROOT / "docs" / "example.jsonl")])


def named(content: Document, name: str) -> Figure:
    (found,) = [figure for figure in content.figures if figure.name == name]
    return found


def strokes(figure: Figure) -> set[str]:
    """Colours of runs that a figure names."""
    return set(re.findall(r"var\(--run-\d+\)", json.dumps(figure.spec)))


def test_the_levels_of_the_headline_stand_on_its_chart(content: Document) -> None:
    told = re.search(r"(\d+%) → (\d+%)", content.top.sentence)
    assert told is not None
    marks = named(content, "verdict").data["levels"]
    by_text = dict(zip(marks["text"], zip(marks["step"], marks["value"], strict=True), strict=True))
    assert {told[1], told[2]} <= set(by_text)
    assert by_text[told[2]][0] == 200
    assert by_text[told[2]][1] == pytest.approx(float(told[2][:-1]) / 100, abs=0.005)


def test_an_onset_is_on_the_chart_that_it_is_about(content: Document) -> None:
    assert named(content, "heldout").data["onset"]["mode"] == ["reward hacking", "held-out decline"]
    assert "onset" not in named(content, "reward").data


def test_a_metric_has_one_colour(content: Document) -> None:
    (reward,) = strokes(named(content, "reward"))
    (heldout,) = strokes(named(content, "heldout"))
    (entropy,) = strokes(named(content, "entropy"))
    assert strokes(named(content, "verdict")) == {reward, heldout}
    assert len({reward, heldout, entropy}) == 3


def test_the_verdict_and_the_advice_are_said_once(content: Document) -> None:
    said = [line for line in content.top.paragraphs if len(line) > SENTENCE]
    cells = [cell for section in content.sections for table in section.tables for row in table.rows for cell in row]
    assert not [cell for cell in cells if len(cell) > SENTENCE and any(cell in line for line in said)]
    above = Answer("top", "?", sentence="The learning rate is far too large for this model.")
    rows = [("rate", "The learning rate is far too large for this model"), ("other", "x")]
    (found,) = _arranged([Answer("policy", "?", tables=[Table("t", ("a", "b"), rows)])], above)
    assert [tuple(row) for row in found.tables[0].rows] == [("other", "x")]


def test_the_reader_of_rollouts_is_third() -> None:
    names = [one.name for one in _arranged([Answer(n, "?") for n in ("policy", "rollouts", "diagnosis")])]
    assert names == ["diagnosis", "rollouts", "policy"], "after the first screen and what the verdict rests on"


def test_a_metric_over_two_decades_has_a_log_axis(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = [
        {"step": i + 1, "reward": 0.5 + 0.02 * draw.normal(), "kl": 1e-4 * np.exp(i / 15), "entropy": 1 + draw.random()}
        for i in range(100)
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    content = runs_page.document([read(tmp_path / "log.jsonl")])
    kl, entropy = (json.dumps(named(content, name).spec) for name in ("kl", "entropy"))
    assert '"type": "log"' in kl
    assert '"type": "log"' not in entropy


def test_a_measurement_shows_its_first_parts_and_folds_the_others(content: Document) -> None:
    figures = [named(content, "reward")] * 4
    four = [Figure(f"f{i}", "t", figure.spec, figure.data) for i, figure in enumerate(figures)]
    answer = Answer("geometry", "?", sentence="One.", text=["Two.", "Three."], figures=four,
                    tables=[Table("t", ("a",), [("b",)])])  # fmt: skip
    shown = page._section(answer, page._Shared())
    assert [figure["group"] for figure in shown["figures"]] == ["", "", page.FURTHER, page.FURTHER]
    assert (shown["text"], shown["more"]) == (["One.", "Two."], ["Three."])
    assert shown["tables"][0]["folded"]
