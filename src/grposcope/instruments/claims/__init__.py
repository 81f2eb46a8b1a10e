"""The headline statements of the three papers, derived anew on this machine: `grposcope claims`.

claim          what a statement is, and what came out of it
enumerated     softmax policies small enough to list every outcome
foundations    [PG] arXiv:2606.29238      ustatistic     [U] arXiv:2603.01162      dynamics     [D] arXiv:2606.30789
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grposcope.core.errors import UserError
from grposcope.core.instrument import Command, Instrument

if TYPE_CHECKING:
    from grposcope.instruments.claims.claim import PaperClaim

INSTRUMENT = Instrument(
    "claims",
    "Which statements of the papers hold?",
    commands=(
        Command(
            "claims",
            "plan the next one",
            "check the statements of the three papers on this machine",
            "grposcope.instruments.claims.command",
        ),
    ),
    uses=("dynamics", "gradient", "group_size"),
)

MODULES = {"pg": "foundations", "u": "ustatistic", "d": "dynamics"}
"""Paper -> the module with its CLAIMS; only the first needs torch."""


def chosen(names: Sequence[str]) -> list[PaperClaim]:
    """The statements of papers, or of one name each; all without names. UserError for a name that is neither."""
    papers = [name for name in MODULES if name in names]
    single = [name for name in names if name not in MODULES]
    claims = [claim for paper in (papers if papers or single else MODULES) for claim in _of(paper)]
    for name in single:
        match = next((claim for paper in reversed(MODULES) for claim in _of(paper) if claim.name == name), None)
        if match is None:
            names_known = ", ".join((*MODULES, *(claim.name for paper in MODULES for claim in _of(paper))))
            raise UserError(f"there is no statement {name!r}; choose among {names_known}")
        claims += [match] if match not in claims else []
    return claims


def _of(paper: str) -> Sequence[PaperClaim]:
    claims: Sequence[PaperClaim] = importlib.import_module(f"{__name__}.{MODULES[paper]}").CLAIMS
    return claims
