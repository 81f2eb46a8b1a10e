"""A new instrument is a folder and its name in FOLDERS: everything that lists or shows instruments has it then."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest
from places import ROOT

from grposcope import commands, instruments, read, report
from grposcope.cli import main, parser
from grposcope.commands import generic
from grposcope.commands.flags import FlagParser

LOG = ROOT / "docs" / "example.jsonl"

DECLARED = '''
"""How long is it?"""

from dataclasses import dataclass

from grposcope.core.instrument import Command, Instrument


@dataclass(frozen=True)
class Settings:
    """How it is counted. ValueError, which begins with the name of the field, for a negative one.

    times: how often it is counted, 100% each. least, most: steps that count, None for all. unit: of the count.
    """

    times: int = 1
    least: float = 0.0
    most: float | None = None
    unit: str = "steps"
    loud: bool = False
    run: tuple[int, ...] = (1, 2)

    def __post_init__(self) -> None:
        if self.times < 0:
            raise ValueError(f"times {self.times} must be at least 0")


INSTRUMENT = Instrument(
    "toy",
    "How long is it?",
    answers="grposcope.instruments.toy.answer",
    settings=Settings,
    commands=(Command("toy", "look at a run", "say how long a run is"),),
)
'''

ANSWERED = """
from dataclasses import asdict

from grposcope.core.answer import Answer


def answers(runs, settings):
    steps = settings.times * runs[0].steps
    document = {"steps": steps, "settings": asdict(settings)}
    return [Answer("toy", "How long is it?", sentence=f"It has {steps} {settings.unit}.", document=document)]
"""

Toy = Callable[..., None]


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    """Enters an instrument `toy`, in a folder of its own, after changes to the text of its declaration."""
    folder = tmp_path / "instruments" / "toy"

    def enter(**changes: str) -> None:
        folder.mkdir(parents=True)
        text = DECLARED
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (folder / "__init__.py").write_text(text)
        (folder / "answer.py").write_text(ANSWERED)

    monkeypatch.setattr(instruments, "__path__", [*instruments.__path__, str(folder.parent)])
    monkeypatch.setattr(instruments, "FOLDERS", {**instruments.FOLDERS, "toy": "toy"})
    yield enter
    for name in [name for name in sys.modules if name.startswith("grposcope.instruments.toy")]:
        del sys.modules[name]
    vars(instruments).pop("toy", None)


@pytest.fixture
def toy(declare: Toy) -> None:
    """The package with the instrument `toy`."""
    declare()


@pytest.mark.usefixtures("toy")
def test_it_is_a_command_with_its_settings_as_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert "toy        say how long a run is" in commands.listing()
    assert main(["toy", str(LOG), "--times", "2", "--unit", "rows"]) == 0
    assert "It has 400 rows." in capsys.readouterr().out
    assert main(["toy", str(LOG), "--json", "--most", "9", "--loud", "--run", "3,4,5"]) == 0
    told = json.loads(capsys.readouterr().out)["toy"]
    assert told["steps"] == 200
    assert told["settings"] == {
        "times": 1, "least": 0.0, "most": 9.0, "unit": "steps", "loud": True, "run": [3, 4, 5]
    }  # fmt: skip


@pytest.mark.usefixtures("toy")
def test_its_flags_have_the_help_of_its_docstring(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["toy", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert exit.value.code == 0
    assert "--times N how often it is counted, 100% each (default: 1)" in said
    assert "--most X steps that count, None for all" in said
    assert "--run N,N,…" in said


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("words", "said"),
    [(["--times", "-1"], "--times -1 must be at least 0"), (["--times", "x"], "--times: invalid int value: 'x'"),
     (["--run", "1,x"], "--run: '1,x' is not a list of whole numbers such as 2,4,8")],
)  # fmt: skip
def test_values_that_are_wrong_are_refused_in_a_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit):
        assert main(["toy", str(LOG), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "error", "said"),
    [
        ("times", "json", ValueError, "instrument toy: every command has a flag --json"),
        ("loud: bool = False", "loud: dict = None", TypeError, "instrument toy, setting loud: no flag gives a dict"),
        ("times: int = 1", "times: int", ValueError, "instrument toy: the page needs a default of the setting times"),
        ('Command("toy"', 'Command("diagnose"', ValueError, "instrument toy: there is a command diagnose"),
        ('Command("toy"', 'Command("train"', ValueError, "instrument toy: there is a command train"),
        ("look at a run", "look", ValueError, "command toy has the purpose 'look', which is none of look at a run,"),
    ],
    ids=["the flag of every command", "no type of a flag", "no default", "another instrument's command",
         "another command", "no such purpose"],
)  # fmt: skip
def test_a_declaration_that_cannot_work_says_so(
    declare: Toy, old: str, new: str, error: type[Exception], said: str
) -> None:
    declare(**{old: new})
    with pytest.raises(error, match=re.escape(said)):
        parser(["toy"])


SETTLED = [instrument.name for instrument in instruments.all_instruments() if fields(instrument.settings)]


@pytest.mark.parametrize("name", SETTLED)
def test_the_generic_command_serves_every_instrument_that_has_settings(name: str) -> None:
    instrument = instruments.instrument(name)
    command = FlagParser(prog="toy")
    generic.add_flags(command, instrument)
    assert generic.settings(instrument, command.parse_args(["RUN"])) == instrument.settings()
    assert "(default: " in command.format_help() or not any(vars(instrument.settings()).values())


def test_the_generic_command_answers_for_an_instrument_that_is_shipped(capsys: pytest.CaptureFixture[str]) -> None:
    instrument = instruments.instrument("forecast")
    command = FlagParser(prog="toy")
    generic.add_flags(command, instrument)
    assert generic.run(command.parse_args([str(LOG), "--horizon", "50"]), instrument) == 0
    assert "over 50 more steps" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("toy")
def test_it_is_on_the_page_and_in_its_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = report(read(LOG), tmp_path / "page.html").read_text()
    assert "How long is it?" in page
    assert "It has 200 steps." in page
    assert main(["report", str(LOG), "--out", str(tmp_path / "again.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sections"]["toy"]["steps"] == 200
