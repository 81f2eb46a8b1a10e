"""The trainers whose settings can be checked; their keys and defaults stand in `logs.trainers`, a file per engine."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from grposcope.instruments.lint.config import Dialect
from grposcope.logs.trainers import TRAINERS, trl

TRL = Dialect(trl.TRL)
RLOO = Dialect(trl.RLOO)
VERL = Dialect(TRAINERS["verl"])
NEMO_RL = Dialect(TRAINERS["nemo-rl"])
OWN = Dialect(replace(TRAINERS["grposcope"], title="GRPOscope"))

DIALECTS = (VERL, NEMO_RL, OWN, TRL)
"""Every trainer whose settings can be read, in the order in which they are tried."""


def recognise(keys: Collection[str]) -> Dialect | None:
    """The trainer whose keys these are; None if none knows them."""
    return next((dialect for dialect in DIALECTS if dialect.recognises(keys)), None)
