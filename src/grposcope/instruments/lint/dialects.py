"""How trainers write their settings, as their files in `logs/trainers/` have it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from grposcope.core.settings import Dialect
from grposcope.logs.trainers import TRAINERS, openrlhf, trl
from grposcope.logs.trainers.trainer import Trainer


def dialect(trainer: Trainer, keys: Collection[str] = ()) -> Dialect:
    """The dialect of a trainer. keys: those that only this trainer has."""
    return Dialect(
        name=trainer.name,
        title=trainer.title,
        version=trainer.version,
        defaults=trainer.defaults,
        recognises=lambda keys: trainer.configured is not None and trainer.configured(keys),
        keys=keys,
    )


TRL = dialect(trl.TRL, trl.OWN_SETTINGS)
RLOO = dialect(trl.RLOO, trl.OWN_SETTINGS)
VERL = dialect(TRAINERS["verl"])
NEMO_RL = dialect(TRAINERS["nemo-rl"])
MS_SWIFT = dialect(TRAINERS["ms-swift"])
SLIME = dialect(TRAINERS["slime"])
SKYRL = dialect(TRAINERS["skyrl"])
OPENRLHF = dialect(TRAINERS["openrlhf"])
OPENRLHF_BEFORE = dialect(
    replace(
        TRAINERS["openrlhf"],
        version="0.9",
        settings=openrlhf.BEFORE_0_10,
        configured=lambda keys: "n_samples_per_prompt" in keys and bool(openrlhf.OLD_FLAGS & set(keys)),
    )
)
PRIME_RL = dialect(TRAINERS["prime-rl"])
OPEN_INSTRUCT = dialect(TRAINERS["open-instruct"])
ROLL = dialect(TRAINERS["roll"])
AREAL = dialect(TRAINERS["areal"])
MLX_LM_LORA = dialect(TRAINERS["mlx-lm-lora"])
OWN = dialect(replace(TRAINERS["grposcope"], title="GRPOscope"))

DIALECTS = (VERL, SKYRL, NEMO_RL, PRIME_RL, OPENRLHF, OPENRLHF_BEFORE, ROLL, AREAL, SLIME, MS_SWIFT,
            OPEN_INSTRUCT, MLX_LM_LORA, OWN, TRL)  # fmt: skip
"""Every trainer whose settings can be read, in the order in which they are tried."""


def recognise(keys: Collection[str]) -> Dialect | None:
    """The trainer whose keys these are; None if none knows them."""
    return next((dialect for dialect in DIALECTS if dialect.recognises(keys)), None)
