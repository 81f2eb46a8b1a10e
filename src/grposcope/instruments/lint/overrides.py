"""Settings that are given beside a file, in place of those in it: what would go wrong if this were changed?"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from grposcope.core.errors import UserError
from grposcope.core.settings import Dialect, Settings
from grposcope.core.text import visible
from grposcope.faults.pipeline.misspelt_setting import trl_names
from grposcope.instruments.lint.dialects import TRL
from grposcope.logs.trainers import TRAINERS

SWITCH = {"true": True, "false": False, "1": True, "0": False}
"""What a setting that is on or off may be given as."""


def keys(config: Settings) -> set[str]:
    """The names of the trainer's settings that are known here, and those in the file."""
    own = trl_names(config.dialect) if config.dialect.name == TRL.name else frozenset[str]()
    every = {key for several in _names(config.dialect).values() for key in several}
    return {*config.dialect.defaults, *config.given, *config.opaque, *own, *every}


def with_values(config: Settings, values: Mapping[str, Any]) -> Settings:
    """The settings with others in place of them, by the trainer's names or ours (group, lr, …).

    UserError for a name that neither has, with the nearest one, and for a value that is of another type than the
    setting's.
    """
    changed = {}
    for name, value in values.items():
        key = _key(config, name)
        changed[key] = _value(name, value, config.given.get(key, config.dialect.defaults.get(key)))
    if not changed:
        return config
    said = ", ".join(f"{key}={visible(str(value), 40)}" for key, value in changed.items())
    return replace(
        config,
        given={**config.given, **changed},
        lines={key: line for key, line in config.lines.items() if key not in changed},
        opaque=frozenset(config.opaque) - changed.keys(),
        notes=(*config.notes, f"Judged with {said} in place of what the file says."),
    )


def _names(dialect: Dialect) -> dict[str, tuple[str, ...]]:
    """Our name of a setting -> the trainer's, "." between levels."""
    named = [setting for setting in TRAINERS[dialect.name].settings if setting.name]
    return {
        name: tuple(setting.key for setting in named if setting.name == name)
        for name in dict.fromkeys(setting.name for setting in named)
    }


def _key(config: Settings, name: str) -> str:
    """The trainer's key of a setting; UserError, with the nearest name, where it has none."""
    allowed, ours = keys(config), _names(config.dialect)
    if name in allowed:
        return name
    if name in ours:
        there = [key for key in ours[name] if key in config.given or key in config.dialect.defaults]
        return (there or ours[name])[0]
    choices = sorted({*allowed, *ours})
    near = difflib.get_close_matches(name, choices, 1)
    remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(choices)}"
    raise UserError(f"{name}: {config.dialect.title} has no setting {visible(name, 60)!r}; {remedy}")


def _value(name: str, value: Any, present: Any) -> Any:
    """A value of the type of the one that is there; UserError, with what is allowed, for another."""
    if isinstance(present, bool):
        switch = SWITCH.get(str(value).lower())
        if switch is None:
            raise UserError(f"{name}={visible(str(value), 40)}: {name} is on or off; give true or false")
        return switch
    if isinstance(present, int | float) and not isinstance(value, int | float):
        form = "whole number" if isinstance(present, int) else "number"
        said = f"{name}={visible(str(value), 40)}"
        raise UserError(f"{said}: {name} must be a {form}; write for example {name}={present:g}")
    return value
