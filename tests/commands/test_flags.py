"""Help that begins with the common flags, errors of one line, and what a shell is told to complete."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from imports import SOURCE

from grposcope.cli import SLOW, main, parser
from grposcope.commands import known
from grposcope.commands.config_file import expanded
from grposcope.commands.flags import FILE_FLAG, FlagParser
from grposcope.core.deferred_imports import deferred


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    with pytest.raises(SystemExit):
        main(list(words))
    said = capsys.readouterr()
    return said.out, said.err


def of(name: str) -> FlagParser:
    with deferred(*SLOW):
        return parser([name])._subparsers._group_actions[0].choices[name]  # type: ignore[union-attr, index]


def flags(command: FlagParser) -> set[str]:
    return {flag for flag in command._option_string_actions if flag.startswith("--")} - {"--help-all"}


def test_a_command_with_many_flags_shows_about_twelve_first(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train", "probe"):
        command = of(name)
        assert len(flags(command)) > 25
        short, long = printed(capsys, name, "--help")[0], printed(capsys, name, "--help-all")[0]
        assert 10 <= len(command.common) <= 16
        assert all(f"{flag} " in short or f"{flag}\n" in short for flag in command.common)
        rest = flags(command) - set(command.common) - {"--help"}
        assert not [flag for flag in rest if f"  {flag}" in short]
        assert not [flag for flag in flags(command) if flag not in long]
        assert f"--help-all shows all {len(flags(command)) - 1} flags" in short
        assert "examples:" in short


def test_a_command_with_few_flags_shows_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "runs", "--help") == printed(capsys, "runs", "--help-all")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("runs", "--srot", "name"), "there is no flag --srot; did you mean --sort?"),
        (("runs", "--zzz"), "there is no flag --zzz; grposcope runs --help shows the flags"),
        (("runs", "--sort", "nmae"), "--sort: there is no 'nmae'; did you mean name?; choose began, heldout"),
        (("runs", "a", "b"), "unexpected argument 'b'"),
        (("train", "--lr", "abc"), "--lr: invalid float value: 'abc'"),
        (("diagnos",), "there is no 'diagnos'; did you mean diagnose?"),
    ],
)
def test_a_wrong_flag_is_told_in_one_line(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = printed(capsys, *words)
    assert out == ""
    assert err.startswith("grposcope: error: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("line", "with_flags"), [("grposcope ", False), ("grposcope runs --so", True)])
def test_the_shell_is_answered_with_the_flags_of_the_command(
    line: str, with_flags: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setitem(sys.modules, "argcomplete", SimpleNamespace(autocomplete=asked.append))
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setenv("COMP_LINE", line)
    main([])
    (told,) = asked
    choices = told._subparsers._group_actions[0].choices
    assert set(choices) == set(known())
    assert ("--sort" in choices["runs"]._option_string_actions) == with_flags


def test_without_argcomplete_the_shell_is_told_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    assert main([]) == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["-1", "two", "1.5", "9" * 25])
def test_numbers_of_threads_that_cannot_be(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before torch is loaded, by the parser itself."""
    try:
        status: object = main(["probe", "tiny", "--threads", text])
    except SystemExit as left:
        status = left.code
    assert status == 2
    assert "from 0 to" in capsys.readouterr().err


OF_EVERY_COMMAND = {"-h", "--help", "--help-all"}
"""Flags of the parser itself."""

MAKERS = {"commands/flags.py", "commands/generic.py", "cli.py", "lab/train/pretrain.py"}
"""Modules that call `add_argument`: the parser's own flags, `declare`, --version, and a script that is no command."""


def declared(settings: type) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Fields of the settings of a command with what is typed for them, those of settings in them too."""
    for field in fields(settings):
        if "fields" in field.metadata:
            yield from declared(field.metadata["fields"])
        else:
            form = field.metadata["form"]
            yield form.get("dest", field.name), form.get("names", (f"--{field.name.replace('_', '-')}",))


@pytest.mark.parametrize("name", [name for name, (command, _) in known().items() if command.module])
def test_every_flag_of_a_command_is_a_field_of_its_settings(name: str, tmp_path: Path) -> None:
    """All but help and the file of flags, which sets the same fields."""
    command = of(name)
    settings = importlib.import_module(known()[name][0].module).Flags
    actions = {
        (action.dest, tuple(action.option_strings))
        for action in command._actions
        if not OF_EVERY_COMMAND.intersection(action.option_strings) and action.dest != "config_file"
    }
    assert actions == {(dest, tuple(names)) for dest, names in declared(settings)}
    typed = {names[-1] for _, names in declared(settings) if names} - {FILE_FLAG}
    if FILE_FLAG in {names[-1] for _, names in declared(settings) if names}:
        return  # the file is a trainer's
    for flag in typed:
        file = tmp_path / "flags.yaml"
        file.write_text(f"{flag.removeprefix('--')}: null\n")
        assert expanded([name, FILE_FLAG, str(file)], command) == [name, FILE_FLAG, str(file)]


def test_flags_are_made_by_one_function() -> None:
    makers = {
        file.relative_to(SOURCE).as_posix() for file in SOURCE.rglob("*.py") if ".add_argument(" in file.read_text()
    }
    assert makers == MAKERS
