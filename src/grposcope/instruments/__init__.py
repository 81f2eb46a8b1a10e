"""One folder for each question that can be asked of a run. A new one is a folder and its name in NAMES.

A folder that is not there is passed over: everything else works, and what had declared its use says what it needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from grposcope.core.instrument import Instrument

if TYPE_CHECKING:  # the list of commands does not wait for NumPy
    from grposcope.core.answer import Answer
    from grposcope.core.run import Run

NAMES = (
    "diagnosis",
    "autopilot",
    "overview",
    "compare",
    "reference",
    "forecast",
    "stability",
    "dead_groups",
    "course",
    "agents",
    "gradient",
    "group_size",
    "credit",
    "timing",
    "rewards",
    "texts",
    "rollouts",
    "settings",
    "evaluation",
    "lint",
    "bandit",
    "offpolicy",
    "claims",
    "verify",
)
"""The instruments in the order in which the page shows what they say."""


def has(name: str) -> bool:
    """Whether this instrument is there."""
    return find_spec(f"{__name__}.{name}") is not None


def instrument(name: str) -> Instrument:
    """The declaration of an instrument that is there."""
    declared: Instrument = importlib.import_module(f"{__name__}.{name}").INSTRUMENT
    return declared


def all_instruments() -> tuple[Instrument, ...]:
    """All instruments that are there, in the order of NAMES."""
    return tuple(instrument(name) for name in NAMES if has(name))


def lacking(instrument: Instrument) -> str:
    """What an instrument needs and is not there, as a sentence; empty where nothing is lacking."""
    return needed([name for name in instrument.uses if not has(name)])


def unavailable(name: str) -> str:
    """Why this instrument cannot answer: it or what it needs is not there; empty where it can."""
    return lacking(instrument(name)) if has(name) else needed([name])


def needed(absent: Sequence[str]) -> str:
    """That these instruments are needed and not there, as a sentence; empty for none."""
    if not absent:
        return ""
    plural = "s" * (len(absent) > 1)
    return f"Cannot tell: this needs the instrument{plural} {' and '.join(absent)}, which cannot be imported."


def needed_by(error: ModuleNotFoundError) -> str:
    """What an import lacked, as a sentence, where that is an instrument that is not there; else empty."""
    package, _, rest = (error.name or "").partition(f"{__name__}.")
    name = rest.partition(".")[0]
    return needed([name]) if not package and name in NAMES and not has(name) else ""


def ask(instrument: Instrument, runs: Sequence[Run], settings: Any = None) -> tuple[Answer, ...]:
    """What an instrument says of these runs, by the given settings or else its defaults."""
    if not instrument.answers:
        return ()
    if reason := lacking(instrument):
        return (_cannot_tell(instrument, reason),)
    try:
        answers = importlib.import_module(instrument.answers).answers
        return tuple(answers(runs, instrument.settings() if settings is None else settings))
    except ModuleNotFoundError as error:  # what an instrument uses may lack what that one uses
        if reason := needed_by(error):
            return (_cannot_tell(instrument, reason),)
        raise


def _cannot_tell(instrument: Instrument, reason: str) -> Answer:
    from grposcope.core.answer import Answer

    return Answer(instrument.name, instrument.question, "cannot tell", reason)
