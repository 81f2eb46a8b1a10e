"""`diagnose` names what is gamed where the rollouts of a run show it, and nothing where they show nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import written_texts

from grposcope import cli
from grposcope.core.rollouts import Rollout
from grposcope.faults import catalogue
from grposcope.signs.texts import exploits


def written(path: Path, rows: list[Rollout]) -> Path:
    path.write_text(
        "".join(
            json.dumps({"step": row.step, "group": row.group, "prompt": row.prompt, "completion": row.completion,
                        "reward": row.reward}) + "\n"
            for row in rows
        )
    )  # fmt: skip
    return path


@pytest.mark.slow
def test_the_exploit_is_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = written_texts.rollouts(written_texts.LOOPHOLES["hedge"], 4, steps=40, prompts=4, onset=20, truth=False)
    place = written(tmp_path / "rollouts.jsonl", rows)
    cli.main(["diagnose", str(place)])
    out = capsys.readouterr().out
    assert out.split("\n")[0].endswith("texts that give several different answers are paid")
    assert catalogue.fault("hedges").remedy.split(",")[0] in out
    cli.main(["diagnose", str(place), "--json"])
    first = json.loads(capsys.readouterr().out)["findings"][0]
    assert (first["fault"], first["status"]) == ("hedges", "present")
    assert first["since"]["low"] <= 20 <= first["since"]["high"]
    assert first["p"] < 1e-3


@pytest.mark.slow
def test_a_run_fails_on_what_its_texts_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = written_texts.rollouts(written_texts.LOOPHOLES["hedge"], 4, steps=40, prompts=4, onset=20, truth=False)
    place = str(written(tmp_path / "rollouts.jsonl", rows))
    assert cli.main(["diagnose", place, "--fail-on", "hedges"]) == 1
    assert cli.main(["diagnose", place, "--fail-on", "magic string", "--alert-on", "hedges"]) == 0
    capsys.readouterr()
    assert cli.main(["diagnose", place, "--fail-on", "hedge"]) == 2
    assert "'hedge' is neither a grade nor a fault; give failing" in capsys.readouterr().err


@pytest.mark.parametrize(("paid", "grade"), [(1.0, "warning"), (0.0, "note")])
def test_mixed_languages_are_worse_where_they_are_paid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], paid: float, grade: str
) -> None:
    habit = replace(written_texts.LOOPHOLES["scripts"], paid=paid)
    place = written(tmp_path / "rollouts.jsonl", written_texts.rollouts(habit, 3, steps=30, prompts=4, onset=15))
    cli.main(["diagnose", str(place), "--json"])
    named = [
        finding for finding in json.loads(capsys.readouterr().out)["findings"] if finding["fault"] == "language mixing"
    ]
    assert [finding["grade"] for finding in named] == [grade]
    assert ("this alone earns nothing" in named[0]["remedy"]) == (paid > 0)


def test_what_diagnose_names_is_what_logs_and_texts_show() -> None:
    of_logs = [name for name, fault in catalogue.faults().items() if fault.log is not None]
    facts = {"right answers unpaid", "invented observations", "reward not repeatable"}
    assert {*catalogue.seen_in_runs()} == {*of_logs, *exploits.FAULTS, *facts}


@pytest.mark.slow
def test_an_honest_run_keeps_its_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = written_texts.rollouts(None, 4, steps=40, prompts=4)
    cli.main(["diagnose", str(written(tmp_path / "rollouts.jsonl", rows)), "--json"])
    found = {finding["fault"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    shown_by_texts = {
        name for name, fault in catalogue.faults().items() if any(proof.name == "texts" for proof in fault.rollouts)
    }
    assert len(shown_by_texts) == 15
    assert not found & shown_by_texts
