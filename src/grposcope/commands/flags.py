"""The parser of a command's flags: help that begins with the common ones, errors of one line with the likely flag."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from grposcope.core.text import visible


def whole(least: int, most: int) -> Callable[[str], int]:
    """A type of a flag: whole numbers from `least` to `most`."""

    def read(text: str) -> int:
        """The number; argparse's error for what is none, or out of range."""
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number; give one from {least} to {most}"
            ) from None
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{number} is out of range; give a number from {least} to {most:,}")
        return number

    return read


threads = whole(0, 4096)
"""A number of CPU threads, 0 for all cores."""


FILE_FLAG = "--config"
"""The flag that names a file of flags (`config_file`)."""


class FlagParser(argparse.ArgumentParser):
    """An argument parser whose `--help` shows the `common` flags where there are such, and `--help-all` shows all."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.common: tuple[str, ...] = ()
        self.add_argument("--help-all", action=_HelpAll, help=argparse.SUPPRESS)

    def add_file_flag(self) -> None:
        """Declare FILE_FLAG, unless the command has one of this name for something else."""
        if FILE_FLAG not in self._option_string_actions:
            self.add_argument(
                FILE_FLAG, dest="config_file", metavar="FILE",
                help="a YAML or JSON file with a flag per key, or the config.json of a record; other flags win over it",
            )  # fmt: skip

    def print_help(self, file: Any = None) -> None:
        """Print the help: of a command with many flags the common ones; `format_help` has all."""
        self._print_message(self.format_common() if self.common else self.format_help(), file or sys.stdout)

    def format_common(self) -> str:
        """The help with the common flags alone, in their order."""
        shown = [self._option_string_actions[flag] for flag in self.common]
        every = {id(action) for action in self._option_string_actions.values() if action.help != argparse.SUPPRESS}
        positional = [
            action for action in self._actions if not action.option_strings and action.help != argparse.SUPPRESS
        ]
        formatter = self._get_formatter()
        positionals = "".join(f" [{action.metavar}]" for action in positional)
        formatter.add_usage(f"{self.prog}{positionals} [FLAG ...]", [], [])
        formatter.add_text(self.description)
        formatter.start_section("common flags")
        formatter.add_arguments([*positional, *shown])
        formatter.end_section()
        formatter.add_text(f"{self.prog} --help-all shows all {len(every) - 1} flags.")
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong with the flags, with what was likely meant, and exit with status 2."""
        said = re.sub(r"^argument ", "", message)
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", said, re.DOTALL)
        if choice:
            choices = [name.strip("' ") for name in choice[2].split(",")]
            said = f"{said[: choice.start()]}there is no {choice[1]!r}{likely(choice[1], choices)}; choose " + (
                ", ".join(choices)
            )
        self.exit(2, f"grposcope: error: {visible(said, 2000)}; {self.prog} --help shows the flags\n")

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Say that these words are none of its flags, and exit with status 2."""
        word = next((dashed for dashed in unknown if dashed.startswith("-")), unknown[0])
        flag = word.partition("=")[0]
        if not flag.startswith("-"):
            self.error(f"unexpected argument {flag!r}")
        options = [option for option in self._option_string_actions if option.startswith("--")]
        self.error(f"there is no flag {flag}{likely(flag, options)}")


def likely(word: str, options: Sequence[str]) -> str:
    """ "; did you mean …?" where a known word is close; else empty."""
    bare = {option.lstrip("-"): option for option in options}
    close = difflib.get_close_matches(word.lstrip("-"), bare, n=1)
    return f"; did you mean {bare[close[0]]}?" if close else ""


class _HelpAll(argparse.Action):
    """Prints the help with all flags."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None):
        super().__init__(option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        parser._print_message(parser.format_help(), sys.stdout)
        parser.exit()
