"""Instruments: each answers a question that can be asked of a run; those that share their mathematics share a folder.

A new one is a folder and a line in FOLDERS. A folder that is not there is passed over: everything else works, and what
had declared its use says what it needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from grposcope.core.instrument import Instrument

if TYPE_CHECKING:  # the list of commands does not wait for NumPy
    from grposcope.core.answer import Answer
    from grposcope.core.run import Run

FOLDERS: Mapping[str, str] = {
    "diagnosis": "diagnosis",
    "autopilot": "autopilot",
    "overview": "runs",
    "compare": "runs",
    "reference": "runs",
    "forecast": "dynamics",
    "stability": "dynamics",
    "dead_groups": "group_size",
    "course": "runs",
    "agents": "agents",
    "gradient": "gradient",
    "group_size": "group_size",
    "credit": "credit",
    "timing": "runs",
    "rewards": "rewards",
    "texts": "texts",
    "rollouts": "runs",
    "settings": "runs",
    "evaluation": "evaluation",
    "lint": "lint",
    "bandit": "dynamics",
    "offpolicy": "offpolicy",
    "claims": "claims",
    "verify": "verify",
}
"""Name of an instrument -> its folder, in the order in which the page shows what they say."""


def has(folder: str) -> bool:
    """Whether this folder of instruments is there."""
    return find_spec(f"{__name__}.{folder}") is not None


def _declared(folder: str) -> tuple[Instrument, ...]:
    """The INSTRUMENTS of a folder that is there, or its only INSTRUMENT."""
    module = importlib.import_module(f"{__name__}.{folder}")
    return getattr(module, "INSTRUMENTS", None) or (module.INSTRUMENT,)


def instrument(name: str) -> Instrument:
    """The declaration of an instrument whose folder is there."""
    return {declared.name: declared for declared in _declared(FOLDERS[name])}[name]


def all_instruments() -> tuple[Instrument, ...]:
    """All instruments that are there, in the order of FOLDERS."""
    return tuple(instrument(name) for name, folder in FOLDERS.items() if has(folder))


def lacking(instrument: Instrument) -> str:
    """What an instrument needs and is not there, as a sentence; empty where nothing is lacking."""
    return needed([folder for folder in instrument.uses if not has(folder)])


def unavailable(name: str) -> str:
    """Why this instrument cannot answer: its folder or what it needs is not there; empty where it can."""
    return lacking(instrument(name)) if has(FOLDERS[name]) else needed([FOLDERS[name]])


def needed(absent: Sequence[str]) -> str:
    """That these folders of instruments are needed and not there, as a sentence; empty for none."""
    if not absent:
        return ""
    plural = "s" * (len(absent) > 1)
    return f"Cannot tell: this needs the instrument{plural} {' and '.join(absent)}, which cannot be imported."


def needed_by(error: ModuleNotFoundError) -> str:
    """What an import lacked, as a sentence, where that is a folder of instruments that is not there; else empty."""
    package, _, rest = (error.name or "").partition(f"{__name__}.")
    folder = rest.partition(".")[0]
    return needed([folder]) if not package and folder in FOLDERS.values() and not has(folder) else ""


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
