"""Every fault that settings may show is found in settings that have it, and in clean ones it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy_faults
from fault_settings import examples

from grposcope.core.settings import Settings
from grposcope.faults import catalogue
from grposcope.faults.judge_settings import lint
from grposcope.faults.known_task import Known
from grposcope.instruments.lint.dialects import DIALECTS, TRL

TOY = '''"""A toy.

What it is
    A toy.
How it shows
    At once.
What it does to the gradient
    Nothing.
What to do
    Nothing.
What decides
    Nothing.
Sources
    here
"""
from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import fact


def settings(config, known):
    yield fact(True, "because", config.signs("beta"), grade="warning", brief="a toy")


FAULT = Fault(name="NAME", rank=0.1, remedy="nothing",
              settings=SettingsCheck("NAME", settings, ("trl",), "a toy", ("warning",)))
'''


@pytest.mark.needs("rewards", "dynamics")
@pytest.mark.parametrize("fault", catalogue.seen_in_settings())
def test_settings_with_the_fault_and_without(fault: str, tmp_path: Path) -> None:
    """A fault with a check of settings and without an example in `fault_settings` fails here."""
    example = examples(tmp_path)[fault]
    findings = lint(example.settings(with_it=True), example.known)
    present = [one for one in findings if one.present and one.fault == fault]
    assert present
    for finding in present:
        check = catalogue.faults()[fault].settings
        assert check is not None
        assert finding.basis == "fact"
        assert finding.grade in check.grades
        assert finding.brief
        assert finding.because
        assert finding.remedy
        assert finding.source
    clean = lint(example.settings(with_it=False), example.well or example.known)
    assert fault not in [one.fault for one in clean if one.present]


def test_checks_name_faults_trainers_and_grades() -> None:
    trainers = {dialect.name for dialect in DIALECTS}
    for check in catalogue.settings_checks():
        assert catalogue.faults()[check.fault].settings is check
        assert set(check.trainers) <= trainers
        assert check.finds
        assert check.grades


def test_a_new_fault_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_faults.add(tmp_path, monkeypatch, "pipeline", "toy", TOY.replace("NAME", "toy fault"))
    settings = Settings(Path("x"), "a file", TRL, {"beta": 0.1})
    (finding,) = [one for one in lint(settings, Known()) if one.fault == "toy fault"]
    assert (finding.grade, finding.source, finding.evidence[0].what) == ("warning", "here", "beta = 0.1")
    assert "toy fault" in catalogue.seen_in_settings()


def test_two_faults_of_one_name_are_refused_however_they_are_spelt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one would hide the other where `explain` and `catalogue.fault` look for it."""
    toy_faults.add(tmp_path, monkeypatch, "pipeline", "shadow", TOY.replace("NAME", "Group-of-One"))
    with pytest.raises(
        ValueError, match=r"'group of one': \S+groups\.group_of_one and \S+pipeline\.shadow; rename one"
    ):
        catalogue.faults()
