"""Documentation cannot drift: generated pages are current, public names are documented, README commands exist."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import pkgutil
import re
import shlex
from pkgutil import resolve_name
from types import ModuleType

import pytest
from places import ROOT

import grposcope
from grposcope import logs as runs
from grposcope.cli import parser
from grposcope.instruments.diagnosis import answer, screen
from grposcope.instruments.diagnosis.verdict import findings_of, verdict
from grposcope.logs.trainers import TRAINERS
from grposcope.logs.trainers.trainer import Trainer
from grposcope.render import wrapping

DOCS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
TOLD = ["README.md", "CONTRIBUTING.md", *(page for page in DOCS if page.startswith(("docs/tutorials/", "docs/howto/")))]
"""Pages that tell the reader what to type."""
TABLES = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("benchmarks/*.md"), *ROOT.glob("experiments/*.md")))
PAGES = ["README.md", "CONTRIBUTING.md", *DOCS, *TABLES]
HOMES = ("", "src", "src/grposcope", "benchmarks", "experiments", "tests")
"""Folders that a path in the docs may start from."""
EXAMPLES = {"rewards.py", "path/to/file.py", "train.py"}
"""Files of the reader's own that the docs take as examples."""
ROOMS = "|".join(path.parent.name for path in (ROOT / "src" / "grposcope").glob("*/__init__.py"))


@pytest.mark.parametrize("page", ["cli", "api", "faults", "checks", "diagnosis", "questions", "readers", "verify"])
def test_generated_pages_are_current(build: ModuleType, page: str) -> None:
    assert (ROOT / "docs" / f"{page}.md").read_text() == getattr(build, page)(), "run: python docs/build.py"


def test_the_docs_can_be_read(build: ModuleType) -> None:
    """At most 30,000 words by hand, 1,500 on a page: who adds a page shortens another."""
    words = build.words_by_hand()
    assert "docs/cli.md" not in words
    assert words["README.md"] > 300
    assert not {page: count for page, count in words.items() if count > 1_500}
    assert sum(words.values()) <= 30_000, dict(sorted(words.items(), key=lambda one: -one[1])[:8])


def test_a_new_trainer_has_a_column_among_the_keys(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"reward": ("toy/reward",), "advantage_min": ("toy/least",)}
    monkeypatch.setitem(TRAINERS, "toy", Trainer("toy", "Toy", recognises=lambda keys: False, keys=keys))
    rows = [line.split(" | ") for line in build.readers().splitlines()]
    assert [row[-1] for row in rows if row[0] in ("| name", "| `reward`", "| `advantage_min`")] == [
        "Toy |", "`toy/reward` |", "Toy |", "`toy/least` |"
    ]  # fmt: skip


def modules() -> list[ModuleType]:
    """The package and all its public modules, in order."""
    found = [grposcope]
    for info in pkgutil.walk_packages(grposcope.__path__, "grposcope."):
        if not info.name.rsplit(".", 1)[-1].startswith("_"):
            found.append(importlib.import_module(info.name))
    return found


def public(module: ModuleType) -> list[object]:
    """Functions and classes that a module defines and does not hide."""
    return [
        value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    ]


def test_what_is_promised_is_what_is_documented(build: ModuleType) -> None:
    """`__all__` of each promised package names what docs/api.md documents of it, names or modules that have some."""
    for package, (_, names) in build.PROMISED.items():
        exported = set(importlib.import_module(package).__all__) - {"__version__", "INSTRUMENT"}
        assert exported == {name.partition(".")[0] for name in names}, package
        assert all(names.values()), package
        assert not [name for name in names if not _exists(f"{package}.{name}")]
    assert 55 <= sum(len(names) for _, names in build.PROMISED.values()) <= 75


def test_examples_of_promised_names_run(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one package in order, each going on where the one before ended."""
    monkeypatch.chdir(ROOT)
    runner, parse = doctest.DocTestRunner(), doctest.DocTestParser()
    said: list[str] = []
    for package, (_, names) in build.PROMISED.items():
        known = {name: resolve_name(f"{package}.{name}") for name in {one.partition(".")[0] for one in names}}
        text = "\n".join(example for example in names.values() if example.startswith(">>>"))
        runner.run(parse.get_doctest(text, known, package, None, None), out=said.append)
    assert not said, "".join(said)
    assert runner.summarize(verbose=False).attempted > 80


def test_every_public_name_has_a_docstring() -> None:
    bare = [m.__name__ for m in modules() if not inspect.getdoc(m)]
    for module in modules():
        for value in public(module):
            if not value.__doc__ or (inspect.isclass(value) and value.__doc__.startswith(f"{value.__name__}(")):
                bare.append(f"{module.__name__}.{value.__name__}")
    assert not bare


def test_every_flag_has_help(build: ModuleType) -> None:
    for command in build._commands(parser()).values():
        assert not [a.dest for a in command._actions if not a.help]


@pytest.mark.parametrize("page", TOLD)
def test_commands_of_the_pages_parse(page: str) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```(?:sh|bash|console)?\n(.*?)```", text, re.S)
    lines = [line.removeprefix("venv/bin/") for block in blocks for line in block.splitlines()]
    for line in lines:
        if line.startswith("grposcope "):
            parser().parse_args(shlex.split(line, comments=True)[1:])
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M))
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.parametrize("page", PAGES)
def test_files_named_in_the_docs_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    files = set(re.findall(r"(?<![\w./-])\w[\w./-]*\.py\b", text)) - EXAMPLES
    assert not [name for name in files if not any((ROOT / home / name).exists() for home in HOMES)]


@pytest.mark.parametrize("page", PAGES)
def test_modules_named_in_the_docs_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    spans = " ".join(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S)))
    names = set(re.findall(rf"(?<![\w./-])(?:grposcope|{ROOMS})(?:\.[A-Za-z_]\w*)+", spans))
    for module, imported in re.findall(r"^from (grposcope[\w.]*) import ([\w, ]+)", text, re.M):
        names |= {f"{module}.{name.split()[0]}" for name in imported.split(",")}
    assert not [name for name in names if not name.endswith((".md", ".py")) and not _exists(name)]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Files that a page links exist, and so do the headings in them."""
    text = re.sub(r"```.*?```|`[^`\n]+`", "", (ROOT / page).read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http:", "https:")):
            continue
        name, _, heading = target.partition("#")
        linked = (ROOT / page).parent / name if name else ROOT / page
        assert linked.exists(), target
        inside = linked.resolve().is_relative_to(ROOT / "docs")
        assert inside or not page.startswith("docs/"), f"{target} is not part of the site"
        assert not heading or heading in _anchors(linked.read_text()), target


def _anchors(text: str) -> set[str]:
    """The anchors that renderers of Markdown give to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _exists(name: str) -> bool:
    """Whether `name`, with or without the leading "grposcope.", is a module of the package or an attribute of one."""
    try:
        resolve_name(f"grposcope.{name.removeprefix('grposcope.')}")
    except (AttributeError, ImportError):
        return False
    return True


def test_the_example_of_the_readme_gets_the_verdict_that_is_printed_there() -> None:
    log = ROOT / "docs" / "example.jsonl"
    run = runs.read(log)
    findings = findings_of(run)
    judged = verdict(run, findings)
    printed = screen.text(run, judged, findings, answer.of_run(run, findings), "", wrapping.PLAIN)
    word = judged.word.capitalize()
    for page in ("README.md", "docs/tutorials/log.md"):
        blocks = re.findall(rf"```\n({word}: .*?)\n```", (ROOT / page).read_text(), re.S)
        assert blocks
        assert all(printed.startswith(f"{block}\n") for block in blocks), page


def test_the_readme_installs_the_cpu_build_of_torch_before_the_laboratory() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    torch = next(
        n for n, line in enumerate(lines) if line.startswith("pip install torch --index-url https://download.py")
    )
    assert lines[torch + 1] == "pip install -e '.[lab]'"
