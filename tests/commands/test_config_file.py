"""`--config FILE`: the flags of any command from a file, under those of the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grposcope import cli
from grposcope.commands import known
from grposcope.commands.config_file import expanded
from grposcope.commands.flags import FILE_FLAG
from grposcope.core.errors import UserError

OWN = ("diagnose", "verify")
"""Commands whose --config is a trainer's."""


def written(tmp_path: Path, text: str, *given: str, command: str = "train") -> list[str]:
    """The words of a command with a file of this text, as they are written."""
    file = tmp_path / "flags.yaml"
    file.write_text(text)
    return [command, FILE_FLAG, str(file), *given]


def words(tmp_path: Path, text: str) -> list[str]:
    """The words that they stand for."""
    said = written(tmp_path, text)
    return list(cli._with_file(said, cli.parser(said[:1])))


def parsed(tmp_path: Path, text: str, *given: str) -> dict[str, object]:
    return vars(cli._parsed(written(tmp_path, text, *given)))


def test_a_file_sets_flags_and_the_command_line_wins(tmp_path: Path) -> None:
    text = "steps: 3\nmax-tokens: 9\nkl: 1e-3\ncheckpointing: true\nresume: null\ntrl: [a=1, b=2]\nengine: trl\n"
    said = parsed(tmp_path, text, "--steps", "5")
    assert said["steps"] == 5
    assert (said["max_tokens"], said["kl"], said["checkpointing"], said["resume"]) == (9, 1e-3, True, None)
    assert said["trl"] == ["a=1", "b=2"]


def test_switches_that_are_off_and_lists(tmp_path: Path) -> None:
    assert not parsed(tmp_path, "checkpointing: false\n").get("checkpointing")
    assert "--model=a,b" in words(tmp_path, "model: [a, b]\n")


def test_the_settings_of_a_record_are_taken_over_but_for_its_folder(tmp_path: Path) -> None:
    record = {"format": 2, "settings": {"out": "runs/a", "steps": 7, "reward": None}, "model": {"name": "tiny"}}
    assert words(tmp_path, json.dumps(record))[1:2] == ["--steps=7"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("steps: 1\nstepz: 2\n", "line 2: stepz is no flag of grposcope train; did you mean --steps?"),
        ("steps: {a: 1}\n", "line 1: steps has keys of its own"),
        ("checkpointing: 3\n", "line 1: checkpointing is a switch; give true or false"),
        ("- steps\n", "there is no flag in it"),
        ("config: other.yaml\n", "line 1: config is no flag"),
        ("steps: 1\nsteps: 2\n", "line 2: steps is given twice"),
    ],
)
def test_what_is_no_flag_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UserError, match=r"flags\.yaml") as error:
        words(tmp_path, text)
    assert says in str(error.value)


def test_a_file_that_is_not_there_is_refused_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--conf=/nowhere/flags.yaml"]) == 2
    assert "there is no /nowhere/flags.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(set(known()) - set(OWN)))
def test_every_command_has_it(command: str) -> None:
    top = cli.parser([command])
    action = next(a for a in top._actions if a.dest == "command")
    parser = action.choices[command]  # type: ignore[index]
    assert parser._option_string_actions[FILE_FLAG].dest == "config_file"
    assert expanded([command], parser) == [command]
