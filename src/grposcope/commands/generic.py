"""Flags from the fields of settings, and the command of an instrument whose settings say it all.

Each field of the settings is a flag, by its type: int, float, str or a Literal takes a value; bool is a switch with a
`--no-` form; a list or tuple takes values with commas between them; what may be None takes `none` where that is not
the default. The help is what the docstring of the settings says as “name: …”, or `metadata["help"]` of the field.
A field made by `core.flag.flag` says itself what its flag is.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from grposcope.commands import log_flags
from grposcope.commands.output import finish, json_flag, say
from grposcope.core.errors import UserError
from grposcope.core.flag import flag, flags_of
from grposcope.core.instrument import Instrument

METAVARS: Mapping[type, str] = {int: "N", float: "X", str: "TEXT", Path: "FILE"}
"""What stands for a value of each type in the help."""

DESTINATION = "setting "
"""Beginning of the attribute of the arguments that has a setting, which no other flag can have."""


@dataclass(frozen=True)
class _Flags:
    """Flags of every command that `run` serves, beside the settings of its instrument."""

    runs: list[str] = flag(names=(), nargs="+", metavar="RUN", help="folder or log of a run, of any supported trainer")
    json: bool = json_flag()
    log: log_flags.LogFlags = flags_of(log_flags.LogFlags, log_paths="runs")


def add_flags(command: argparse.ArgumentParser, instrument: Instrument) -> None:
    """Declare a flag per setting, and those of all commands that read logs.

    ValueError for a setting that has the name of one of those; TypeError for one of a type that no flag can give.
    """
    declare(command, _Flags)
    try:
        declare(command, instrument.settings, prefix=DESTINATION)
    except ValueError as error:
        raise ValueError(f"instrument {instrument.name}: {error}") from None
    except TypeError as error:
        raise TypeError(f"instrument {instrument.name}, {error}") from None


def declare(command: argparse.ArgumentParser, settings: type, prefix: str = "", unset: bool = False) -> None:
    """Declare a flag per field of `settings`, a dataclass; all commands have theirs from here.

    prefix: what the attributes of the arguments begin with. unset: whether a flag that is not given sets nothing.
    ValueError for a field that has the name of another flag; TypeError for one of a type that no flag can give.
    """
    types, explained = get_type_hints(settings), _explained(settings)
    for field in fields(settings):
        if "fields" in field.metadata:
            declare(command, field.metadata["fields"], prefix, field.metadata["unset"])
            command.set_defaults(**field.metadata["defaults"])
            continue
        try:
            form = _form(field, types[field.name], explained)
        except TypeError as error:
            raise TypeError(f"setting {field.name}: {error}") from None
        names = form.pop("names", (f"--{field.name.replace('_', '-')}",))
        dest = prefix + form.pop("dest", field.name)
        if unset:
            form["default"] = argparse.SUPPRESS
        place = _heading(command, field.metadata.get("group", ""))
        try:
            place.add_argument(*names, dest=dest, **form)
        except argparse.ArgumentError:
            raise ValueError(
                f"every command has a flag {names[0]}; give the setting {field.name} another name"
            ) from None


def _heading(command: argparse.ArgumentParser, group: str) -> Any:
    """What holds the flags of a group, `title: what is said of it`, which is made where there is none."""
    title, _, description = group.partition(": ")
    groups = {known.title: known for known in command._action_groups}
    return groups.get(title) or command.add_argument_group(title, description or None) if group else command


def settings(instrument: Instrument, arguments: argparse.Namespace) -> Any:
    """The settings of an instrument from its flags; UserError, naming the flag, for those that it refuses."""
    chosen = {field.name: getattr(arguments, DESTINATION + field.name) for field in fields(instrument.settings)}
    try:
        return instrument.settings(**chosen)
    except ValueError as error:
        name, space, rest = str(error).partition(" ")
        flag = f"--{name.replace('_', '-')}" if name in chosen else name
        raise UserError(f"{flag}{space}{rest}") from None


def run(arguments: argparse.Namespace, instrument: Instrument) -> int:
    """Print what the instrument says of the runs."""
    from grposcope.instruments import ask
    from grposcope.render import document, terminal

    chosen = settings(instrument, arguments)
    runs = [log_flags.read(path, arguments) for path in arguments.runs]
    answers = ask(instrument, runs, chosen)
    if not answers:
        raise UserError(f"{arguments.runs[0]} has nothing that answers “{instrument.question}”")
    for answer in answers:
        say(arguments, terminal.text(answer))
    finish(arguments, {answer.name: document.of_answer(answer) for answer in answers})
    return 0


def _default(field: Field[Any]) -> Any:
    """What a setting is by default."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def _form(field: Field[Any], kind: Any, explained: Mapping[str, str]) -> dict[str, Any]:
    """What argparse has to know of a field of this type, its `names` and `dest` among it; TypeError for a type that no
    flag can give. explained: what is said of each field that says nothing itself."""
    default, said = _default(field), field.metadata.get("form")
    form = {
        key: value() if key in ("help", "choices") and callable(value) else value for key, value in (said or {}).items()
    }
    if default is not None:
        form["default"] = default
    if said is None:
        text = field.metadata.get("help") or explained.get(field.name) or field.name.replace("_", " ")
        form["help"] = _help(text, default)
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    options = [member for member in members if member is not NoneType]
    kind = options[0] if len(options) == 1 else None
    if kind is bool:
        switch = said is not None and default is False
        return {"action": "store_true" if switch else argparse.BooleanOptionalAction, **form}
    if "choices" in form or "type" in form:
        return form
    if "nargs" in form or "action" in form:
        kind = next(iter(get_args(kind)), kind)
    convert, metavar = _value(kind)
    if len(members) > len(options) and default is not None:
        convert = _or_none(convert)
    return {"type": convert, "metavar": field.metadata.get("metavar", metavar), **form}


def _value(kind: Any) -> tuple[Callable[[str], Any], str]:
    """What makes a value of this type of a text, and what stands for it in the help."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in METAVARS:
        return kind, METAVARS[kind]
    if origin is Literal:
        return _one_of(arguments), "|".join(map(str, arguments))
    members = [member for member in arguments if member is not Ellipsis]
    if origin in (list, tuple, Sequence) and len(members) == 1 and members[0] in METAVARS:
        metavar = METAVARS[members[0]]
        return _several(members[0], list if origin is list else tuple), f"{metavar},{metavar},…"
    raise TypeError(
        f"no flag gives a {getattr(kind, '__name__', kind)}; use int, float, str, bool, a Literal, one of these or "
        "None, or a list or tuple[…, ...] of them"
    )


def _one_of(choices: Sequence[Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        """The choice that is written so; argparse's error for any other text."""
        if (choice := next((choice for choice in choices if str(choice) == text), None)) is None:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(map(str, choices))}")
        return choice

    return read


def _several(kind: type, container: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        """The values between commas; argparse's error where one is none."""
        try:
            return container(kind(value.strip()) for value in text.split(",") if value.strip())
        except ValueError:
            words = {int: "whole numbers such as 2,4,8", float: "numbers such as 0.5,1"}[kind]
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of {words}") from None

    return read


def _or_none(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        """The value, or None for the word none."""
        return None if text.lower() == "none" else convert(text)

    read.__name__ = getattr(convert, "__name__", "value")  # which argparse names in its error
    return read


def _help(text: str, default: Any) -> str:
    """The help of a flag, with its default where there is one to name."""
    if isinstance(default, list | tuple):
        default = ",".join(map(str, default))
    shown = "" if default in (None, "") or isinstance(default, bool) else f" (default: {default})"
    return f"{text}{shown}".replace("%", "%%")


def _explained(settings: type) -> dict[str, str]:
    """What the docstring of settings says of each field, as in “budget: what it may cost. first, last: steps.”."""
    name = f"(?:{'|'.join(field.name for field in fields(settings))})"
    text = " ".join((settings.__doc__ or "").split())
    _, *pieces = re.split(rf"(?:^|(?<=\. ))({name}(?:, {name})*): ", text)
    return {
        name: said.strip().removesuffix(".")
        for names, said in zip(pieces[::2], pieces[1::2], strict=True)
        for name in names.split(", ")
    }
