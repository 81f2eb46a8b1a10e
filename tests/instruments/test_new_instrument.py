"""A new instrument is a folder and its name in NAMES: everything that lists or shows instruments has it then."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

from grposcope import commands, instruments, read, report
from grposcope.cli import main, parser

LOG = ROOT / "docs" / "example.jsonl"

DECLARED = '''
"""How long is it?"""

from dataclasses import dataclass, field

from grposcope.core.instrument import Command, Instrument


@dataclass(frozen=True)
class Settings:
    times: int = field(default=1, metadata={"help": "how often it is counted"})


INSTRUMENT = Instrument(
    "toy",
    "How long is it?",
    answers="grposcope.instruments.toy.answer",
    settings=Settings,
    commands=(Command("toy", "look at a run", "say how long a run is"),),
)
'''

ANSWERED = """
from grposcope.core.answer import Answer


def answers(runs, settings):
    steps = settings.times * runs[0].steps
    return [Answer("toy", "How long is it?", sentence=f"It has {steps} steps.", document={"steps": steps})]
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package with an instrument `toy`, in a folder of its own."""
    folder = tmp_path / "instruments" / "toy"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(DECLARED)
    (folder / "answer.py").write_text(ANSWERED)
    monkeypatch.setattr(instruments, "__path__", [*instruments.__path__, str(folder.parent)])
    monkeypatch.setattr(instruments, "NAMES", (*instruments.NAMES, "toy"))
    yield
    for name in [name for name in sys.modules if name.startswith("grposcope.instruments.toy")]:
        del sys.modules[name]
    vars(instruments).pop("toy", None)


@pytest.mark.usefixtures("toy")
def test_it_is_a_command_with_its_settings_as_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert "toy        say how long a run is" in commands.listing()
    assert parser().parse_args(["toy", str(LOG)]).times == 1
    assert main(["toy", str(LOG), "--times", "2"]) == 0
    assert "It has 400 steps." in capsys.readouterr().out
    assert main(["toy", str(LOG), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["toy"]["steps"] == 200


@pytest.mark.usefixtures("toy")
def test_it_is_on_the_page_and_in_its_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = report(read(LOG), tmp_path / "page.html").read_text()
    assert "How long is it?" in page
    assert "It has 200 steps." in page
    assert main(["report", str(LOG), "--out", str(tmp_path / "again.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sections"]["toy"] == {"steps": 200}
