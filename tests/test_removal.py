"""Any folder of instruments can be taken away, and a new one is a folder and a line."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hiding
import pytest
import removal
import synthetic

from grposcope import instruments, runs_page
from grposcope.cli import main, parser
from grposcope.commands import known, listing
from grposcope.instruments import FOLDERS
from grposcope.logs import read
from grposcope.render.page import html


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("removal")
    removal.subject(place)
    return place


@pytest.fixture(scope="module")
def whole(folder: Path) -> removal.Removal:
    """What a report says with everything in place."""
    return removal.without((), {"report": removal.quick(folder)["report"]})


def check_the_rest(hidden: str, left: removal.Removal, whole: removal.Removal, folder: Path) -> None:
    """Help lists every other command, and every answer that has nothing to do with what is hidden is the same."""
    gone = tuple(f"  {name} " for name in removal.own_commands([hidden]))
    assert [line for line in whole.listing.splitlines() if line.strip() and not line.startswith(gone)] == [
        line for line in left.listing.splitlines() if line.strip()
    ]
    of, touching = removal.origins(folder / "runs" / "one"), removal.touching(hidden)
    others = [name for name in whole.sections if of[name] not in touching]
    assert others
    for name in others:
        assert left.sections[name] == whole.sections[name], name
    assert not [name for name in left.sections if FOLDERS[of[name]] == hidden and name != "headline"]


@pytest.mark.slow
@pytest.mark.parametrize("hidden", ["diagnosis", "gradient", "runs"])
def test_without_an_instrument_the_rest_says_the_same(hidden: str, whole: removal.Removal, folder: Path) -> None:
    left = removal.without((hidden,), {"report": removal.quick(folder)["report"]})
    assert left.works == ("report",)
    check_the_rest(hidden, left, whole, folder)


def check_refusals(hidden: str, left: removal.Removal) -> None:
    """Commands end as before, but for those that declared its use, which say what they need."""
    assert not left.broken
    others = {name: own for name, (_, own) in known().items() if own is not None and FOLDERS[own.name] != hidden}
    declared = {name for name, own in others.items() if hidden in own.uses}
    reached = {name for name, own in others.items() if hidden in hiding.using(own.uses)}
    beside = {"watch"} if hidden == "diagnosis" else set()
    assert declared <= set(left.refused) <= declared | reached | beside


@pytest.mark.slow
@pytest.mark.parametrize("hidden", sorted(set(FOLDERS.values())))
def test_without_any_instrument_every_quick_command_works_or_names_it(
    hidden: str, whole: removal.Removal, folder: Path
) -> None:
    left = removal.without((hidden,), removal.quick(folder))
    check_the_rest(hidden, left, whole, folder)
    check_refusals(hidden, left)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", ["diagnosis", "gradient", "group_size", "runs"])
def test_without_an_instrument_the_commands_that_load_a_model_work_or_name_it(
    hidden: str, whole: removal.Removal, folder: Path, tmp_path: Path
) -> None:
    report = {"report": removal.quick(folder)["report"]}
    left = removal.without((hidden,), {**report, **removal.slow(tmp_path)})
    assert not left.broken
    assert "train" in left.works


@pytest.mark.slow
@pytest.mark.parametrize("hidden", ["group_size", "runs"])
def test_the_tests_of_others_are_found_without_an_instrument(hidden: str) -> None:
    skipped, _, left = removal.skipped(hidden).partition(" of ")
    assert int(skipped) < int(left)


@pytest.mark.slow
def test_what_an_instrument_needs_is_said_before_its_work(folder: Path) -> None:
    asked = removal.quick(folder)
    plan, runs = hiding.commands(("gradient", "dynamics"), asked["plan"], asked["runs"])
    lacks = "Cannot tell: this needs the instrument gradient, which cannot be imported."
    assert (plan.status, json.loads(plan.out), plan.err) == (2, {"error": lacks}, f"grposcope: error: {lacks}\n")
    assert runs.status == 0


TOY = """
\"\"\"How long the run is.\"\"\"
from dataclasses import dataclass, field

from grposcope.core.instrument import Command, Instrument


@dataclass(frozen=True)
class ToySettings:
    long_from: int = field(default=10, metadata={"help": "steps from which a run is long", "metavar": "N"})


INSTRUMENT = Instrument(
    "toy", "How long is this run?", answers="grposcope.instruments.toy.answer", settings=ToySettings,
    commands=(Command("toy", "look at a run", "say how long a run is"),),
)
"""

ANSWER = """
from grposcope.core.answer import Answer


def answers(runs, settings):
    long = [run.steps >= settings.long_from for run in runs]
    return [Answer("toy", "How long is this run?", sentence="It is long." if all(long) else "It is short.",
                   document={"steps": [run.steps for run in runs]})]
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A further folder with an instrument, and its name in FOLDERS."""
    (tmp_path / "more" / "toy").mkdir(parents=True)
    (tmp_path / "more" / "toy" / "__init__.py").write_text(TOY)
    (tmp_path / "more" / "toy" / "answer.py").write_text(ANSWER)
    monkeypatch.setattr(instruments, "__path__", [*instruments.__path__, str(tmp_path / "more")])
    monkeypatch.setattr(instruments, "FOLDERS", {**FOLDERS, "toy": "toy"})
    importlib.invalidate_caches()
    yield
    for name in [name for name in sys.modules if name.startswith("grposcope.instruments.toy")]:
        del sys.modules[name]
    if hasattr(instruments, "toy"):
        del instruments.toy


@pytest.mark.usefixtures("toy")
def test_a_new_instrument_is_a_folder_and_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], build: ModuleType
) -> None:
    """It is in the help, a command with its settings as flags, on the page, in JSON and in the docs."""
    run = synthetic.make(tmp_path / "run", steps=12)
    assert "  toy        say how long a run is" in listing()
    assert listing() in parser([]).format_help()

    assert main(["toy", str(run)]) == 0
    assert "It is long." in capsys.readouterr().out
    assert main(["toy", str(run), "--long-from", "13", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["toy"]["sentence"] == "It is short."

    assert main(["report", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sections"]["toy"] == {"steps": [12]}
    shown = html(runs_page.document([read(run)]))
    assert "How long is this run?" in shown
    assert "It is long." in shown

    written = build.cli()
    assert "- [`toy`](#grposcope-toy): say how long a run is" in written
    assert "| `--long-from N` | steps from which a run is long (default: 10) |" in written


def test_without_the_line_the_folder_is_not_there(tmp_path: Path) -> None:
    assert "toy" not in known()
    assert main(["report", str(synthetic.make(tmp_path / "run", steps=12)), "--json"]) == 0
