"""A metric that the trainer logs wrongly: a note of the diagnosis, said once, that changes no headline."""

from __future__ import annotations

from dataclasses import replace

import synthetic_series as made
from alike import alike

from grposcope.core.run import Reading, Run
from grposcope.faults.judge import diagnose
from grposcope.instruments.diagnosis import answer
from grposcope.instruments.diagnosis.verdict import verdict
from grposcope.logs.trainers import defect as named

NAME = "metric logged wrongly"
DEFECT = named("share of high sequences", "verl")


def verl(*wrong: str) -> Run:
    """A healthy run of verl, with defects of these names."""
    run = made.run(made.healthy())
    notes = tuple(str(named(name, "verl")) for name in wrong)
    return replace(run, meta=replace(run.meta, engine="verl", notes=notes), reading=Reading(defects=wrong))


def test_it_is_a_note_with_the_key_the_versions_and_the_thread() -> None:
    (finding,) = [each for each in diagnose(verl(DEFECT.name)) if each.fault == NAME]
    assert (finding.status, finding.basis, finding.grade) == ("present", "fact", "note")
    assert all(word in finding.because for word in (DEFECT.keys[0], DEFECT.thread, DEFECT.versions))
    assert finding.evidence[0].where == DEFECT.keys[0]
    assert "a version of the trainer that logs it correctly" in finding.remedy


def test_several_are_one_finding() -> None:
    (finding,) = [each for each in diagnose(verl(DEFECT.name, "share at the limit")) if each.fault == NAME]
    assert len(finding.evidence) == 2
    assert "#6806" in finding.because
    assert "#7817" in finding.because


def test_a_log_without_any_is_judged_as_before() -> None:
    assert [each for each in diagnose(verl()) if each.fault == NAME] == []
    plain = diagnose(replace(made.run(made.healthy()), reading=Reading()))
    assert alike(diagnose(made.run(made.healthy())), plain)


def test_no_headline_changes_and_it_is_said_once() -> None:
    plain, wrong = verl(), verl(DEFECT.name)
    judged = verdict(wrong, diagnose(wrong))
    assert judged.line == verdict(plain, diagnose(plain)).line
    assert any(DEFECT.keys[0] in note for note in judged.notes)
    assert not any(line.startswith("Note: ") for line in answer.about(wrong))
