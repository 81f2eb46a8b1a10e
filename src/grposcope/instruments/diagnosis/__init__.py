"""What is wrong with a run, since when, how sure that is, and what to do; one rule per failure mode. And whether it
learned."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from grposcope.core.instrument import Command, Instrument

if TYPE_CHECKING:
    from grposcope.core.finding import Finding
    from grposcope.faults.judge import diagnose

__all__ = ["INSTRUMENT", "Finding", "diagnose"]

INSTRUMENT = Instrument(
    "diagnosis",
    "What is wrong with this run, since when, why, and what to do?",
    answers="grposcope.instruments.diagnosis.answer",
    commands=(
        Command(
            "diagnose",
            "look at a run",
            "say what is wrong with a run, since when, why, and what to do",
            "grposcope.instruments.diagnosis.command",
        ),
    ),
)

_PLACES = {"diagnose": "grposcope.faults.judge", "Finding": "grposcope.core.finding"}
"""Public name -> the module that has it, imported when it is asked for: a declaration must be light."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
