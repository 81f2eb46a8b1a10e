"""Terminal, page and JSON say the same of a run: the sentences and numbers of its facts, word for word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import synthetic
import synthetic_probe
from grposcope.cli import main
from grposcope.commands import probe as probe_command
from grposcope.diagnosis import diagnose
from grposcope.facts import dead_groups, diagnosis, geometry, group_size, headline, learning
from grposcope.records import Estimate
from grposcope.report import page, terminal
from grposcope.report.elements import Section
from grposcope.runs import read
from grposcope.training.result import Totals

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

    totals = Totals(rewards=run.table["reward"].tolist(), evals=evaluations)
    result = totals.result(folder, interrupted=False, terminated=False)
    assert result.learning == fact
    said = terminal.training(result)
    content = page.document([run])
    out = printed(capsys, "report", folder, "--out", tmp_path / "page.html")
    numbers = json.loads(printed(capsys, "report", folder, "--json")[-1])
    watched = " ".join(" ".join(printed(capsys, "watch", folder, "--once")[:-1]).split())
    assert fact.sentence in said
    for sentence in fact.details:
        assert sentence in said
        assert sentence in content.top.text
        assert page.escaped(sentence)[1:-1] in page.html(content)
        assert sentence in out
    if len(evaluations) > 1:
        assert fact.sentence in watched
        change = numbers["sections"]["learning"]["run"]["heldout"]["change"]
        assert (change["verdict"], change["value"]) == (fact.verdict, fact.difference.value)
    verdict = diagnosis.verdict(run, diagnose(run))
    assert numbers["headline"] == content.top.title == page.capitalised(verdict.conclusion)
    assert numbers["sections"]["headline"]["run"]["grade"] == content.top.grade == verdict.word


def on_page(content: page.Document, name: str) -> Section:
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
    rows = [{"step": i + 1, "reward": reward[i], "entropy": entropy[i]} for i in range(steps)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(("kind", "words"), [("collapse", "failing"), ("rising", "healthy"), ("short", "cannot tell")])
def test_diagnosis(kind: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = training_log(tmp_path / "log.jsonl", kind)
    run = read(log)
    fact = str(diagnosis.verdict(run, diagnose(run)))
    assert words in fact
    out = printed(capsys, "diagnose", log)
    assert out[0] == fact
    assert json.loads(out[-1])["verdict"] == fact
    content = page.document([run])
    section = on_page(content, "diagnosis")
    assert section.text == [fact]
    assert page.escaped(fact)[1:-1] in page.html(content)
    numbers = json.loads(printed(capsys, "report", log, "--json")[-1])["sections"]["diagnosis"]["log.jsonl"]
    assert numbers["verdict"] == fact
    assert numbers["findings"] == json.loads(out[-1])["findings"]
    watched = printed(capsys, "watch", log, "--once")
    assert json.loads(watched[-1])["verdict"] == fact
    assert fact in unbroken(watched[:-1])


def test_the_reward_of_verdict_and_headline(tmp_path: Path) -> None:
    run = read(training_log(tmp_path / "log.jsonl", "rising"))
    reward = learning.training_reward(run)
    assert reward.clause in str(diagnosis.verdict(run, diagnose(run)))
    assert reward.clause in headline.of_run(run).sentence


def test_dead_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = synthetic.make(tmp_path / "run", steps=60, prompts=16)
    run = read(folder)
    fact = dead_groups.of_run(run)
    content = page.document([run])
    section = on_page(content, "dead_groups")
    assert section.text == [fact.sentence()]
    assert page.escaped(fact.sentence())[1:-1] in page.html(content)
    numbers = json.loads(printed(capsys, "report", folder, "--json")[-1])["sections"]["dead_groups"]["run"]
    assert fact.windows is not None
    assert numbers["observed"]["value"] == fact.windows.observed().value
    assert numbers["predicted"]["value"] == fact.windows.expected().value


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_probe.make(tmp_path_factory.mktemp("probes") / "probe", prompts=60, group=8)


def test_geometry(probe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (record,) = read(probe).probes
    content = page.document([read(probe)])
    text, markup = on_page(content, "geometry").text, page.html(content)
    said = unbroken(probe_command._text(record).splitlines())
    for fact in geometry.facts(record):
        assert fact.sentence in text
        assert page.escaped(fact.sentence)[1:-1] in markup
        assert fact.sentence in said
    numbers = json.loads(printed(capsys, "report", probe, "--json")[-1])
    assert numbers["sections"]["geometry"]["probe"]["groups"]["dead"]["value"] == record.groups.dead.value
    assert numbers["headline"] == headline.of_probe(record).sentence == content.top.title


def test_group_size(probe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (record,) = read(probe).probes
    fact = group_size.of_probe(record)
    assert isinstance(fact, group_size.GroupSize)
    out = printed(capsys, "plan", probe)
    assert fact.sentence() in unbroken(out[:-1])
    content = page.document([read(probe)])
    assert fact.sentence(record.group) == on_page(content, "group_size").text[0]
    assert f"Group size: {fact.sentence(record.group)}" in content.top.text
    assert fact.sentence(record.group).startswith(fact.sentence().partition(". Note")[0].removesuffix("."))
    numbers = json.loads(printed(capsys, "report", probe, "--json")[-1])["sections"]["group_size"]["probe"]
    assert numbers["verdict"] == fact.sentence()
    planned = json.loads(out[-1])["plan"]
    for name in ("integer", "continuous", "interval", "informative"):
        assert numbers["plan"][name] == planned[name] == plain(getattr(fact.plan, name))


def test_forecast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = synthetic.make(tmp_path / "run", steps=80)
    out = printed(capsys, "fit", folder)
    section = on_page(page.document([read(folder)]), "dynamics")
    assert section.text[0] in unbroken(out[:-1])
    numbers = json.loads(printed(capsys, "report", folder, "--json")[-1])["sections"]["dynamics"]["run"]
    assert numbers["forecast"] == json.loads(out[-1])["forecast"]
