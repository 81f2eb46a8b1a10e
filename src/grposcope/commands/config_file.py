"""`--config FILE` of every command: its flags from a file, where those on the command line win.

A file is YAML or JSON, with a flag per key (`max_tokens: 64` or `max-tokens: 64`); the `config.json` of a record is one
too, of the settings that its run had. Keys become words of the command line, so that types, ranges and messages are
those of the flags. Commands that read a trainer's own settings, `diagnose` and `verify`, take those by `--config`
instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grposcope.commands.flags import FILE_FLAG, FlagParser, likely
from grposcope.core import yaml_files
from grposcope.core.errors import UserError

OF_ITS_RUN = ("out", "resume")
"""Settings of a record that another run does not take over."""


def expanded(words: Sequence[str], command: FlagParser) -> list[str]:
    """The words of a command, its name first, with those that its file says before the others; UserError, with file
    and line, for what is none of its flags."""
    action = command._option_string_actions.get(FILE_FLAG)
    if action is None or action.dest != "config_file":
        return list(words)
    others = [option for option in command._option_string_actions if option != FILE_FLAG]

    def names_file(word: str) -> bool:
        name = word.partition("=")[0]
        return name.startswith("--c") and FILE_FLAG.startswith(name) and not any(o.startswith(name) for o in others)

    files = [
        word.partition("=")[2] or following for word, following in zip(words, [*words[1:], ""], strict=True)
        if names_file(word)
    ]  # fmt: skip
    return [*words[:1], *(word for file in files if file for word in _words(Path(file), command)), *words[1:]]


def _words(path: Path, command: FlagParser) -> list[str]:
    """The words that a file stands for."""
    file = yaml_files.read(path)
    content, above = file.content, ""
    if isinstance(content, dict) and isinstance(content.get("settings"), dict) and "format" in content:
        above = "settings."
        content = {key: value for key, value in content["settings"].items() if key not in OF_ITS_RUN}
    if not isinstance(content, dict):
        raise UserError(f"{path}: there is no flag in it; give lines such as “steps: 100”")
    words: list[str] = []
    for key, value in content.items():
        words += _flag_words(str(key), value, command, file.where(f"{above}{key}"))
    return words


def _flag_words(key: str, value: Any, command: FlagParser, where: str) -> list[str]:
    """The words of a key; none for a value of null, and for a switch that is off."""
    flag = f"--{key.replace('_', '-')}"
    action = command._option_string_actions.get(flag)
    if action is None or flag == FILE_FLAG:
        options = [option for option in command._option_string_actions if option.startswith("--")]
        raise UserError(f"{where}: {key} is no flag of {command.prog}{likely(flag, options)}")
    if value is None:
        return []
    if isinstance(value, Mapping):
        raise UserError(f"{where}: {key} has keys of its own; give one value, or a list of values")
    if action.nargs == 0:
        return _switch_words(flag, value, action, where)
    values = [_text(member) for member in value] if isinstance(value, list) else [_text(value)]
    if isinstance(action, argparse._AppendAction):
        return [f"{flag}={text}" for text in values]
    return [f"{flag}={','.join(values)}"]


def _switch_words(flag: str, value: Any, action: argparse.Action, where: str) -> list[str]:
    """The word of a flag that takes no value."""
    if not isinstance(value, bool):
        raise UserError(f"{where}: {flag.lstrip('-')} is a switch; give true or false")
    if value:
        return [flag]
    return [f"--no-{flag.lstrip('-')}"] if isinstance(action, argparse.BooleanOptionalAction) else []


def _text(value: Any) -> str:
    """A value as it is written on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)
