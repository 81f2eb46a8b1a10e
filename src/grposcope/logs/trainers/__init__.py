"""Trainers whose logs are read: one file holds all that is known of an engine. A new one is a file and a line here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from grposcope.core.text import listed
from grposcope.logs.columns import flat
from grposcope.logs.trainers import (
    agent_lightning,
    areal,
    art,
    cosmos_rl,
    generic,
    grposcope,
    mlx_lm_lora,
    ms_swift,
    nemo_rl,
    open_instruct,
    openrlhf,
    prime_rl,
    roll,
    skyrl,
    slime,
    tinker,
    trinity,
    trl,
    twinkle,
    verifiers,
    verl,
)
from grposcope.logs.trainers.trainer import Defect, Trainer

TRAINERS: dict[str, Trainer] = {
    "trl": trl.TRL,
    "verl": verl.VERL,
    "openrlhf": openrlhf.OPENRLHF,
    "grposcope": grposcope.GRPOSCOPE,
    "tinker": tinker.TINKER,
    "slime": slime.SLIME,
    "prime-rl": prime_rl.PRIME_RL,
    "skyrl": skyrl.SKYRL,
    "nemo-rl": nemo_rl.NEMO_RL,
    "areal": areal.AREAL,
    "ms-swift": ms_swift.MS_SWIFT,
    "roll": roll.ROLL,
    "twinkle": twinkle.TWINKLE,
    "art": art.ART,
    "verifiers": verifiers.VERIFIERS,
    "agent-lightning": agent_lightning.AGENT_LIGHTNING,
    "trinity": trinity.TRINITY,
    "cosmos-rl": cosmos_rl.COSMOS_RL,
    "open-instruct": open_instruct.OPEN_INSTRUCT,
    "mlx-lm-lora": mlx_lm_lora.MLX_LM_LORA,
}
"""Trainers by name."""

DEFECTS = tuple(defect for trainer in TRAINERS.values() for defect in trainer.defects)
"""Every metric that a trainer is known to log wrongly."""


def defect(name: str, engine: str) -> Defect:
    """The defect of this name of an engine."""
    return next(defect for defect in DEFECTS if (defect.name, defect.engine) == (name, engine))


FIRST = ("ms-swift", "verifiers", "twinkle", "roll", "agent-lightning", "trinity")
"""Those whose logs have keys of another trainer as well, and which are asked before it whether a log is theirs."""


def in_order() -> list[Trainer]:
    """The trainers in the order in which they are asked whether keys or files are theirs."""
    return sorted(TRAINERS.values(), key=lambda trainer: trainer.name not in FIRST)


def trainer_of(keys: Iterable[str]) -> Trainer:
    """The trainer whose keys these are; `generic.GENERIC` if they are nobody's."""
    present = set(keys)
    return next((trainer for trainer in in_order() if trainer.recognises(present)), generic.GENERIC)


def trainer_named(name: str) -> Trainer:
    """The trainer of this name; `generic.GENERIC` for any other."""
    return TRAINERS.get(name, generic.GENERIC)


_ASKED = re.compile(r"([\w.]*\w\.\w+)(?:=(\w+))?")
"""A setting that a way to log something names, and its value."""


def how_to_log(quantity: str, engine: str = "", logged: Mapping[str, Any] | None = None) -> str:
    """Advice how to have the trainer `engine`, else any, log a quantity; "log it" if nobody is known to log it.

    logged: the run's own configuration, nested or joined by "/" or "."; what it has as advised is said to be set.
    """
    own_settings = {str(key).replace("/", "."): value for key, value in flat(logged or {}).items()}
    ways: dict[str, list[str]] = {}
    known = TRAINERS.get(engine)
    own = known is not None and quantity in known.how_to_log
    asked = (
        [known]
        if known is not None and own
        else [trainer for trainer in TRAINERS.values() if not trainer.leaves_files_of]
    )
    for trainer in (*asked, generic.GENERIC):
        if quantity in trainer.how_to_log:
            way = _beside(trainer.how_to_log[quantity], own_settings)
            ways.setdefault(way, []).append(trainer.title)
    return "; ".join(f"{listed(titles)}: {way}" for way, titles in ways.items()) or "log it"


def _beside(way: str, settings: Mapping[str, Any]) -> str:
    """A way to log something; what its settings leave to do, where the run has all of them as it says."""
    asked = [(match[1], match[2]) for match in _ASKED.finditer(way)]
    if not asked or not all(_is_set(settings, key, value) for key, value in asked):
        return way
    said = listed([f"{key}{'' if value is None else f'={value}'}" for key, value in asked])
    are = "is" if len(asked) == 1 else "are"
    if all(value is None for _, value in asked):
        return f"{said} {are} set already: give the files that come of it"
    return f"{said} {are} set already, and yet none of its metrics is in this log"


def _is_set(settings: Mapping[str, Any], key: str, value: str | None) -> bool:
    """Whether settings with dots have a key, or one that ends in it, at a value; None: at any that is not off."""
    found = [own for name, own in settings.items() if name == key or name.endswith(f".{key}")]
    if value is not None:
        return any(str(own).lower() == value.lower() for own in found)
    return any(own not in (None, False, "", 0) and not (isinstance(own, int | float) and own < 0) for own in found)
