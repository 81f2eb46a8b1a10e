"""Checks of the settings of a run that has not begun."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from grposcope.core.instrument import Command, Instrument

if TYPE_CHECKING:
    from grposcope.core.finding import Finding
    from grposcope.core.settings import Settings
    from grposcope.faults.known_task import Known
    from grposcope.instruments.lint.ask import lint

__all__ = ["INSTRUMENT", "Known", "Settings", "lint"]

INSTRUMENT = Instrument(
    "lint",
    "What will go wrong with these settings?",
    commands=(
        Command(
            "lint",
            "check a pipeline",
            "say what will go wrong with the settings of TRL or verl, before the run",
            "grposcope.instruments.lint.command",
        ),
    ),
    uses=("dynamics",),
)

_PLACES = {
    "lint": "grposcope.instruments.lint.ask",
    "Known": "grposcope.faults.known_task",
    "Settings": "grposcope.core.settings",
}
"""Public name -> the module that has it, imported when it is asked for: a declaration must be light."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


class _Callable(ModuleType):
    """This package as the function `lint` of it: `grposcope.lint` is promised as both, whichever is imported first."""

    def __call__(self, config: str | Path | Settings, known: Known | None = None) -> tuple[Finding, ...]:
        """All findings on a configuration or the file with it, the worst first; `known`: what is known beside it."""
        result: tuple[Finding, ...] = self.lint(config, known)
        return result


sys.modules[__name__].__class__ = _Callable
