"""The top of a page: which run it is, the curves that its verdict rests on, and every curve of the page once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import synthetic
import synthetic_series as made

from grposcope import runs_page
from grposcope.core.answer import Answer, Figure
from grposcope.core.run import Evaluations, Run
from grposcope.instruments.diagnosis import diagnose, verdict_chart
from grposcope.instruments.runs import identity
from grposcope.logs import read
from grposcope.render import charts, page
from grposcope.runs_page import _arranged, _once


def test_what_a_record_says_of_itself(tmp_path: Path) -> None:
    what, settings = identity.of_run(read(synthetic.make(tmp_path / "run", steps=12)))
    for part in ("model tiny", "task arithmetic", "grposcope 0.1.0 commit 0123456789", "steps 1 to 12", "began 2025-"):
        assert part in what
    assert settings.startswith("recipe grpo · group size 8 · prompts per step 8 · learning rate 0.0004")


def test_what_is_not_known_is_left_out() -> None:
    run = made.run(made.healthy())
    lines = identity.of_run(run)
    assert not any(word in " ".join(lines) for word in ("model", "None", "nan", "commit"))
    assert (
        identity.of_run(replace(run, config={"model": {"name": 3}, "environment": [], "settings": {"lr": []}})) == lines
    )


def falling(run: Run) -> Run:
    """The run with held-out scores that rise and then fall."""
    rows = [(step, "pass@1", 0.3 + 0.3 * min(step, 100 - step) / 50, 0.01, 500, "") for step in range(0, 101, 10)]
    return replace(run, evaluations=Evaluations.of_rows(rows))


def test_reward_and_heldout_stand_in_one_chart_and_a_cause_beside_its_outcome() -> None:
    healthy = made.run(made.healthy())
    alone = verdict_chart.of_run(healthy, diagnose(healthy))
    assert alone is not None
    assert alone.title == "Reward"
    hacked = falling(healthy)
    both = verdict_chart.of_run(hacked, diagnose(hacked))
    assert both is not None
    assert both.title == "Reward and held-out accuracy"
    assert both.data["onset"]["mode"][0] in ("reward hacking", "held-out decline")
    assert both.data["curve_2"]["step"] == list(range(0, 101, 10))
    assert charts.drawn(both, "svg").count(b"stroke-dasharray") >= 1
    table = dict(healthy.table)
    table["entropy"] = np.where(table["step"] > 60, 1e-3, 0.8) + 1e-5 * np.arange(len(table["step"]))
    table["reward"] = 0.3 + 0.003 * np.minimum(table["step"], 140 - table["step"])
    collapsed = replace(healthy, table=table)
    caused = verdict_chart.of_run(collapsed, diagnose(collapsed))
    assert caused is not None
    assert caused.title == "Reward and entropy"
    assert caused.caption.startswith("Dashed: entropy collapse, since step ")


def curve(name: str, values: list[float]) -> Figure:
    return Figure(name, name.title(), {}, {"thick": {"step": [1, 2], "mean": values, "run": ["a", "a"]}})


def test_equal_curves_are_drawn_once_under_both_names() -> None:
    first = Answer("a", "?", figures=[curve("reward", [0.1, 0.2]), curve("length", [1, 2])])
    second = Answer("b", "?", figures=[curve("score", [0.1, 0.2]), curve("loss", [0.1, 0.3])])
    one, other = _once([first, second])
    assert [figure.title for figure in one.figures] == ["Reward = Score", "Length"]
    assert [figure.name for figure in other.figures] == ["loss"]


def test_sections_stand_in_the_order_of_checks_and_theory_is_folded(tmp_path: Path) -> None:
    names = ("stability", "settings", "geometry", "update", "diagnosis", "policy")
    found = _arranged([Answer(name, "?") for name in names])
    assert [one.name for one in found] == ["diagnosis", "policy", "update", "geometry", "stability", "settings"]
    sections = [Answer("policy", "?", figures=[curve("kl", [1, 2])]), Answer("stability", "?")]
    assert page._folded_sections(sections) == {"stability"}
    assert page._folded_sections(sections[1:]) == set(), "where nothing else is there, it is the answer"


def test_no_sentence_of_the_top_is_said_again(tmp_path: Path) -> None:
    content = runs_page.document([read(synthetic.make(tmp_path / "run", steps=40))])
    below: list[Any] = [line for section in content.sections for line in section.paragraphs]
    assert not set(content.top.paragraphs) & set(below)
    assert [figure.name for figure in content.top.figures] == ["verdict"]
