"""Terminal, page and JSON say the same of a run: the sentences and numbers of its facts, word for word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import synthetic
from grposcope.cli import main
from grposcope.facts import learning
from grposcope.records import Estimate
from grposcope.report import page, terminal
from grposcope.runs import read
from grposcope.training.result import Tally

EVALUATIONS = {
    "learned": [(0, Estimate(0.3, 0.02, 200)), (60, Estimate(0.8, 0.02, 200))],
    "two standard errors, few problems": [(0, Estimate(0.25, 0.05, 8)), (60, Estimate(0.45, 0.05, 8))],
    "all alike": [(0, Estimate(0.0, 0.0, 40)), (60, Estimate(0.0, 0.0, 40))],
    "fell after its best": [(0, Estimate(0.5, 0.02, 99)), (30, Estimate(0.6, 0.02, 99)), (60, Estimate(0.3, 0.02, 99))],
    "one only": [(0, Estimate(0.3, 0.02, 200))],
    "none": [],
}


def recorded(folder: Path, evaluations: list[tuple[int, Estimate]]) -> Path:
    """A record of 60 steps with these held-out evaluations."""
    synthetic.make(folder, steps=60)
    rows = [{"step": step, "pass@1": vars(accuracy)} for step, accuracy in evaluations]
    (folder / "evals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[str]:
    """The lines that a command prints."""
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", EVALUATIONS)
def test_learning(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluations = EVALUATIONS[name]
    folder = recorded(tmp_path / "run", evaluations)
    run = read(folder)
    fact = learning.of_run(run)

    outcome = Tally(rewards=run.table["reward"].tolist(), evals=evaluations).outcome(folder, interrupted=False)
    assert outcome.learning == fact
    said = terminal.training(outcome)
    content = page.document([run])
    out = printed(capsys, "report", folder, "--json")
    numbers = json.loads(out[-1])
    watched = " ".join(" ".join(printed(capsys, "watch", folder, "--once")[:-1]).split())
    for sentence in (fact.sentence, *fact.details):
        assert sentence in said
        assert sentence in (content.top.title, *content.top.text)
        assert page.escaped(sentence)[1:-1] in page.html(content)
        assert sentence in out
    if len(evaluations) > 1:
        assert fact.sentence in watched
        change = numbers["sections"]["learning"]["run"]["heldout"]["change"]
        assert (change["verdict"], change["value"]) == (fact.verdict, fact.difference.value)
    assert numbers["headline"] == numbers["sections"]["headline"]["run"]["sentence"] == fact.sentence
