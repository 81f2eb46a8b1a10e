"""GRPOscope: instrument panel and laboratory for group-relative policy optimization."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from grposcope import aliases
from grposcope.core import display

if TYPE_CHECKING:
    from grposcope.core.answer import Answer
    from grposcope.core.errors import UserError
    from grposcope.core.estimate import Estimate
    from grposcope.core.run import Run
    from grposcope.faults.pages import explain
    from grposcope.instruments.diagnosis import Finding, diagnose
    from grposcope.instruments.lint import lint
    from grposcope.instruments.verify import verify
    from grposcope.logs import read
    from grposcope.runs_page import report

__version__ = "0.1.0"
__all__ = [
    "Answer", "Estimate", "Finding", "Run", "UserError", "__version__", "diagnose", "explain", "lint", "read", "report",
    "verify",
]  # fmt: skip

PLACES = {
    "Answer": "grposcope.core.answer",
    "Estimate": "grposcope.core.estimate",
    "Finding": "grposcope.instruments.diagnosis",
    "Run": "grposcope.core.run",
    "UserError": "grposcope.core.errors",
    "diagnose": "grposcope.instruments.diagnosis",
    "explain": "grposcope.faults.pages",
    "read": "grposcope.logs",
    "report": "grposcope.runs_page",
    "verify": "grposcope.instruments.verify",
}
"""Promised name -> the module that has it, imported when it is asked for."""

PACKAGES = ("diagnosis", "dynamics", "engines", "geometry", "lint", "objectives", "runs", "training", "ustat")
"""Promised packages, imported when they are asked for; `lint` is a function too."""

aliases.install()

display.DRAWS |= {
    "Run": ("grposcope.instruments.runs.notebook", "card"),
    "Answer": ("grposcope.instruments.runs.notebook", "of_answer"),
    "Finding": ("grposcope.instruments.runs.notebook", "of_finding"),
    "picture": ("grposcope.instruments.runs.notebook", "picture"),
    "Figure": ("grposcope.render.charts", "chart"),
}


def __getattr__(name: str) -> Any:
    if name in PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    """What is there, and the promised names, of which none is imported for it."""
    return sorted({*globals(), *PLACES, *PACKAGES})


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext grposcope`: runs show themselves in the notebook, as `instruments.runs.notebook` draws them."""
    from grposcope.instruments.runs import notebook

    notebook.register(shell)
