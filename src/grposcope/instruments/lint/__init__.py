"""Checks of the settings of a run that has not begun."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from grposcope.core.instrument import Command, Instrument

if TYPE_CHECKING:
    from grposcope.instruments.lint.ask_checks import lint
    from grposcope.instruments.lint.config import Known, TrainerConfig
    from grposcope.instruments.lint.findings import LintResult

__all__ = ["INSTRUMENT", "Known", "LintResult", "TrainerConfig", "lint"]

INSTRUMENT = Instrument(
    "lint",
    "What will go wrong with these settings?",
    commands=(
        Command(
            "lint",
            "plan the next one",
            "say what will go wrong with the settings of TRL or verl, before the run",
            "grposcope.instruments.lint.command",
        ),
    ),
    uses=(
        "diagnosis",
        "stability",
    ),
)

_PLACES = {"lint": "ask_checks", "Known": "config", "TrainerConfig": "config", "LintResult": "findings"}
"""Public name -> the module that has it, imported when it is asked for: a declaration must be light."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


class _Callable(ModuleType):
    """This package as the function `lint` of it: `grposcope.lint` is promised as both, whichever is imported first."""

    def __call__(self, config: str | Path | TrainerConfig, known: Known | None = None) -> LintResult:
        """All findings on a configuration or the file with it, the worst first; `known`: what is known beside it."""
        result: LintResult = self.lint(config, known)
        return result


sys.modules[__name__].__class__ = _Callable
