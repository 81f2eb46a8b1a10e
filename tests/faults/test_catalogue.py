"""The catalogue: every file of a family is a fault with its page, and `explain` prints it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import synthetic_series as made
import toy_faults

from grposcope import cli
from grposcope.core.errors import UserError
from grposcope.faults import catalogue, pages
from grposcope.faults.judge import diagnose

FAULTS = catalogue.faults()
ROOT = Path(catalogue.__file__).parent
DOCS = Path(__file__).parents[2] / "docs"

TOY = '''"""A toy.

What it is
    A fault of a test.
How it shows
    It does not.
{heading}
    Nothing.
What to do
    Put it away.
What decides
    Looking again.
Sources
    a test: https://example.org/1
"""
from grposcope.core.fault import Fault

FAULT = Fault("toy", 999, "put it away")
'''


def test_every_file_of_a_family_is_a_fault_of_its_own_name() -> None:
    files = {file.stem for family in catalogue.FAMILIES for file in (ROOT / family).glob("*.py")} - {"__init__"}
    names = {name.replace(" ", "_").replace("-", "_") for name in FAULTS}
    assert files == names


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_has_its_page_and_is_looked_for_somewhere(name: str) -> None:
    page = pages.page(FAULTS[name])
    assert page.summary.endswith(".")
    assert set(pages.HEADINGS[1:]) <= set(page.sections)
    assert pages._looked_for(FAULTS[name])
    assert FAULTS[name].remedy[0].islower() or FAULTS[name].remedy.startswith("GRPO")


def test_explain_prints_a_page_by_any_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    for spelling in ("weights never arrived", "Weights-Never-Arrived", "weights_never_arrived"):
        assert cli.main(["explain", spelling]) == 0
        out = capsys.readouterr().out
        assert out.startswith("weights never arrived (sampler)\n")
        assert all(heading in out for heading in pages.HEADINGS[1:])
        assert "--sampler-weights" in out, "flags are not broken over lines"
    assert cli.main(["explain", "weights never arrived", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["fault"], document["family"]) == ("weights never arrived", "sampler")
    assert document["sections"]["What to do"]


def test_explain_lists_all_by_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (*FAULTS, "sampler:"))
    assert cli.main(["explain", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["faults"]
    assert sorted(name for names in listed.values() for name in names) == sorted(FAULTS)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean reward hacking"):
        catalogue.fault("reward hacked")


def test_a_page_that_lacks_a_section_or_has_another_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_faults.add(tmp_path, monkeypatch, "record", "toy", TOY.format(heading=pages.GRADIENT))
    assert pages.page(catalogue.fault("toy")).sections[pages.DO] == "Put it away."
    assert "[a test](https://example.org/1)" in pages.markdown(catalogue.fault("toy"))


@pytest.mark.parametrize(("heading", "said"), [
    ("What it costs", "has no section 'What it costs'"), ("", "lacks the section 'What it does to the gradient'"),
])  # fmt: skip
def test_a_page_with_a_wrong_heading_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heading: str, said: str
) -> None:
    source = TOY.format(heading=heading) if heading else TOY.replace("{heading}\n    Nothing.\n", "")
    toy_faults.add(tmp_path, monkeypatch, "record", "toy", source)
    with pytest.raises(UserError, match=said):
        pages.page(catalogue.fault("toy"))


def test_two_files_may_not_have_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow = TOY.format(heading=pages.GRADIENT).replace('"toy"', '"reward hacking"')
    toy_faults.add(tmp_path, monkeypatch, "record", "another", shadow)
    with pytest.raises(ValueError, match="are called 'reward hacking'"):
        catalogue.faults()


def test_the_example_of_the_docs_is_a_fault_that_is_found_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRIBUTING's row of faults: one file, and diagnose, explain and the page have it."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "howto" / "add.md").read_text(), flags=re.S)
    (source,) = [block for block in blocks if "FAULT = Fault(" in block]
    toy_faults.add(tmp_path, monkeypatch, "update", "no_warm_up", source)
    warm, cold = np.minimum(np.arange(1, 121) / 10, 1.0), np.linspace(1.0, 0.1, 120)
    found = {
        name: next(f for f in diagnose(made.run({**made.healthy(), "lr": 1e-6 * rate})) if f.fault == "no warm-up")
        for name, rate in (("warm", warm), ("cold", cold))
    }
    assert (found["warm"].status, found["cold"].status) == ("excluded", "present")
    assert found["cold"].remedy == "warm the learning rate up"
    assert found["cold"].decides.startswith("ten steps with and without warm-up")
    assert "too long in directions" in pages.markdown(catalogue.fault("no warm-up"))
