"""Terminal, page and JSON say the same of a run: the sentences and numbers of its facts, word for word."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
import synthetic_probe

from grposcope import runs_page
from grposcope.cli import main
from grposcope.core.answer import Answer
from grposcope.core.estimate import Estimate
from grposcope.core.text import capitalised
from grposcope.instruments.diagnosis import diagnose, learning
from grposcope.instruments.diagnosis import verdict as diagnosis
from grposcope.instruments.gradient import answer as gradient
from grposcope.instruments.gradient import findings as geometry
from grposcope.instruments.gradient import probe_record as probes
from grposcope.instruments.group_size import size as group_size
from grposcope.instruments.group_size.dead_groups_answer import _dead_groups_of
from grposcope.instruments.runs import overview
from grposcope.lab.train import command as train_command
from grposcope.lab.train.result import Totals
from grposcope.logs import read
from grposcope.render import page, terminal

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


@pytest.mark.slow
@pytest.mark.parametrize("name", EVALUATIONS)
def test_learning(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluations = EVALUATIONS[name]
    folder = recorded(tmp_path / "run", evaluations)
    run = read(folder)
    fact = learning.of_run(run)

    totals = Totals(rewards=run.table["reward"].tolist(), evals=evaluations)
    result = totals.result(folder, interrupted=False, terminated=False)
    assert (result.learning.sentence, result.learning.details) == (fact.sentence, fact.details)
    said = train_command._outcome(result)
    content = runs_page.document([run])
    assert content.top.sentence in printed(capsys, "report", folder, "--out", tmp_path / "page.html")
    numbers = json.loads(printed(capsys, "report", folder, "--json")[-1])
    watched = " ".join(" ".join(printed(capsys, "watch", folder, "--once")[:-1]).split())
    assert fact.sentence in said
    for sentence in fact.details:
        assert sentence in said
        assert sentence in on_page(content, "learning").text
        assert page._escaped(sentence)[1:-1] in page.html(content)
    if len(evaluations) > 1:
        assert fact.sentence in watched
        change = numbers["sections"]["learning"]["run"]["heldout"]["change"]
        assert change["verdict"] == (fact.verdict if fact.outcome.heldout else "unknown")
        if fact.outcome.heldout:
            assert (change["value"], change["fate"]) == (fact.outcome.change.value, fact.outcome.fate)
    verdict = diagnosis.verdict(run, diagnose(run))
    assert numbers["headline"] == content.top.sentence == capitalised(verdict.line)
    assert numbers["sections"]["headline"]["run"]["grade"] == content.top.word == verdict.word


def on_page(content: page.Document, name: str) -> Answer:
    """The section of this name."""
    return next(section for section in content.sections if section.name == name)


def plain(content: Any) -> Any:
    """Numbers of a section as they come back from JSON."""
    return json.loads(page.dumps(content))


def unbroken(lines: list[str]) -> str:
    """Printed lines without line breaks and runs of spaces."""
    return " ".join(" ".join(lines).split())


def training_log(path: Path, kind: str) -> Path:
    """A log of 120 steps whose entropy collapses or whose reward rises, or a log of ten steps."""
    rng = np.random.default_rng(0)
    share = np.linspace(0, 1, 120)
    rises = share - 2 * np.maximum(share - 0.5, 0) if kind == "collapse" else share
    reward = 0.3 + 0.3 * rises + rng.normal(0, 0.03, 120)
    entropy = (1 - 0.97 * (share > 0.5)) * np.exp(rng.normal(0, 0.05, 120)) if kind == "collapse" else 1 + 0 * share
    steps = 10 if kind == "short" else 120
    norm = 1 + rng.normal(0, 0.05, 120)
    rows = [{"step": i + 1, "reward": reward[i], "entropy": entropy[i], "grad_norm": norm[i]} for i in range(steps)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(("kind", "words"), [("collapse", "failing"), ("rising", "healthy"), ("short", "cannot tell")])
def test_diagnosis(kind: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = training_log(tmp_path / "log.jsonl", kind)
    run = read(log)
    fact = str(diagnosis.verdict(run, diagnose(run)))
    assert words in fact
    out = printed(capsys, "diagnose", log)
    assert out[0] == capitalised(fact)
    document = json.loads(printed(capsys, "diagnose", log, "--json")[0])
    assert document["verdict"] == fact
    content = runs_page.document([run])
    section, top = on_page(content, "diagnosis"), content.top
    said = diagnosis.verdict(run, diagnose(run))
    assert (top.sentence, top.do) == (capitalised(said.line), said.do)
    assert (section.sentence, section.do) == ("", ""), "the verdict is said once"
    assert not set(section.paragraphs) & set(top.paragraphs)
    clauses = (f"because {said.because}" if said.because else "", said.outcome, *said.remarks)
    told = [line for line in (*top.text, *section.text) if not line.startswith(("Not logged", "Note: the file"))]
    assert told == [f"{capitalised(clause)}." for clause in clauses if clause]
    assert [document[name] for name in ("because", "do", "outcome")] == [said.because, said.do, said.outcome]
    assert document["remarks"] == list(said.remarks)
    assert all(sentence in unbroken(printed(capsys, "diagnose", log, "-v")) for sentence in told)
    for sentence in (*top.paragraphs, *section.paragraphs):
        assert page._escaped(sentence)[1:-1] in page.html(content)
    numbers = json.loads(printed(capsys, "report", log, "--json")[-1])["sections"]["diagnosis"]["log.jsonl"]
    assert numbers["verdict"] == fact
    assert numbers["findings"] == document["findings"]
    watched = printed(capsys, "watch", log, "--once")
    assert fact in unbroken(watched)
    assert json.loads(printed(capsys, "watch", log, "--once", "--json")[0])["verdict"] == fact


def test_the_reward_of_verdict_and_headline(tmp_path: Path) -> None:
    run = read(training_log(tmp_path / "log.jsonl", "rising"))
    said, top = learning.of_run(run).clause, overview.of_run(run)
    assert said.startswith("training reward rose from ")
    assert diagnosis.verdict(run, diagnose(run)).outcome == said
    assert f"{capitalised(said)}." in top.text
    first, last = (f"{float(level):.2g}" for level in re.findall(r"(?:from|to) ([\d.]+)", said)[:2])
    assert f"reward {first} → {last} in 120 steps" in top.sentence


@pytest.mark.slow
def test_dead_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = synthetic.make(tmp_path / "run", steps=60, prompts=16)
    run = read(folder)
    fact = _dead_groups_of(run)
    content = runs_page.document([run])
    section = on_page(content, "dead_groups")
    assert section.sentence == fact.sentence()
    assert page._escaped(fact.sentence())[1:-1] in page.html(content)
    numbers = json.loads(printed(capsys, "report", folder, "--json")[-1])["sections"]["dead_groups"]["run"]
    assert fact.windows is not None
    assert numbers["observed"]["value"] == fact.windows.observed().value
    assert numbers["predicted"]["value"] == fact.windows.expected().value


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_probe.make(tmp_path_factory.mktemp("probes") / "probe", prompts=60, group=8)


@pytest.mark.slow
def test_geometry(probe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (record,) = probes.of_run(read(probe))
    content = runs_page.document([read(probe)])
    text, markup = on_page(content, "geometry").text, page.html(content)
    said = terminal.text(gradient.of_probe(record))
    for fact in geometry.facts(record):
        assert fact.sentence in text
        assert page._escaped(fact.sentence)[1:-1] in markup
        assert fact.sentence in said
    numbers = json.loads(printed(capsys, "report", probe, "--json")[-1])
    assert numbers["sections"]["geometry"]["probe"]["groups"]["dead"]["value"] == record.groups.dead.value
    assert numbers["headline"] == geometry.conclusion(record) == content.top.sentence


@pytest.mark.slow
def test_group_size(probe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (record,) = probes.of_run(read(probe))
    fact = group_size.of_probe(record)
    assert isinstance(fact, group_size.GroupSize)
    out = printed(capsys, "plan", probe)
    assert fact.sentence() in unbroken(out)
    content = runs_page.document([read(probe)])
    trained = group_size.of_recipe(fact, record.recipe)
    first, second = group_size.sentences(fact, trained, record.group)
    assert first == on_page(content, "group_size").sentence
    assert (first, second) == (trained.sentence(), f"With leave-one-out advantages (recipe rloo): {fact.sentence(8)}")
    assert [f"Group size: {first}", second] == list(content.top.text[1:3])
    assert fact.sentence(record.group).startswith(fact.sentence().partition(". Note")[0].removesuffix("."))
    numbers = json.loads(printed(capsys, "report", probe, "--json")[-1])["sections"]["group_size"]["probe"]
    assert numbers["verdict"] == trained.sentence()
    planned = json.loads(printed(capsys, "plan", probe, "--json")[0])["plan"]
    for name in ("integer", "continuous", "interval", "informative"):
        assert numbers["plan"][name] == planned[name] == plain(getattr(fact.plan, name))


@pytest.mark.slow
@pytest.mark.needs("dynamics")
def test_forecast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = synthetic.make(tmp_path / "run", steps=80)
    out = printed(capsys, "fit", folder)
    section = on_page(runs_page.document([read(folder)]), "dynamics")
    assert section.text[0] in unbroken(out)
    numbers = json.loads(printed(capsys, "report", folder, "--json")[-1])["sections"]["dynamics"]["run"]
    assert numbers["forecast"] == json.loads(printed(capsys, "fit", folder, "--json")[0])["forecast"]
