"""The settings of a run that has not begun, as its trainer would take them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grposcope.core.finding import Sign


@dataclass(frozen=True)
class Dialect:
    """How one trainer writes its settings.

    name: as in `logs.trainers.TRAINERS`. version: whose defaults these are.
    defaults: key, with "." between levels, -> the value where it is not given. recognises: whether keys are this
    trainer's. keys: those that only this trainer has.
    """

    name: str
    title: str
    version: str
    defaults: Mapping[str, Any]
    recognises: Callable[[Collection[str]], bool]
    keys: Collection[str] = ()


@dataclass(frozen=True)
class Settings:
    """What a file says of the settings of a run.

    source: the file. form: what it was read as, in words. given: key as the trainer writes it, "." between levels, ->
    value. lines: key -> its line. opaque: keys whose value is an expression that only running the code would tell; no
    default is assumed for them. partial: whether more settings may be given than can be read, so that no default is
    assumed at all. reward_functions: how many, None if it is not said. adapters: whether adapters (LoRA)
    are trained rather than all weights, None if it is not said. notes: what the reader assumed, a sentence each.
    script: what a script has beside its settings, in the words of `instruments.lint.python_source`, -> its line; None
    where no call of a trainer was read. resolved: whether these are the arguments of a trainer that had started, which
    had filled in those that follow.
    """

    source: Path
    form: str
    dialect: Dialect
    given: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    opaque: Collection[str] = ()
    partial: bool = False
    reward_functions: int | None = None
    adapters: bool | None = None
    notes: tuple[str, ...] = ()
    resolved: bool = False
    script: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        """Whole numbers that are beyond float are infinite, as decimal ones are."""
        object.__setattr__(self, "given", {key: _bounded(value) for key, value in self.given.items()})

    def get(self, key: str) -> Any:
        """The value of one of the trainer's keys, its default where it is not given; None if it is not known."""
        if key in self.opaque:
            return None
        value = self.given.get(key)
        return value if value is not None or self.partial else self.dialect.defaults.get(key)

    def says(self, key: str) -> bool:
        """Whether the file gives this key, be it by an expression."""
        return self.given.get(key) is not None or key in self.opaque

    def whole(self, key: str) -> int | None:
        """The value of a key that has to be a whole number; None if it is not known or no whole number."""
        value = self.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(self, key: str) -> float | None:
        """The value of a key that has to be a number; None if it is not known or none."""
        value = self.get(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def on(self, key: str) -> bool:
        """Whether a switch is known to be on."""
        return self.get(key) is True

    def off(self, key: str) -> bool:
        """Whether a switch is known to be off."""
        return self.get(key) is False

    def signs(self, *keys: str) -> tuple[Sign, ...]:
        """Each of these settings as it stands, without those that are not known: "num_generations = 8" with its line,
        "… = 8 by default", or "… = an expression"."""
        return tuple(sign for key in keys for sign in self._signs(key))

    def _signs(self, key: str) -> tuple[Sign, ...]:
        where = f"line {self.lines[key]}" if key in self.lines else ""
        if key in self.opaque:
            return (Sign(f"{key} = an expression", where=where),)
        value = self.get(key)
        if value is None:
            return ()
        number = self.number(key)
        default = "" if self.given.get(key) is not None else " by default"
        return (Sign(f"{key} = {value}{default}", math.nan if number is None else number, where=where),)


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return math.inf if value > 0 else -math.inf
    return value


@dataclass(frozen=True)
class SettingsAskedFor:
    """Settings that were asked for, in a file beside a run.

    taken: those under our names that the log does not state, so that the run has them from the file. recorded: whether
    these are what the trainer logged of its settings, so that they are those in force.
    """

    settings: Settings
    taken: frozenset[str] = frozenset()
    recorded: bool = False
