"""Adapters of PEFT: which base model a folder of them belongs to, and the base model with the adapters in place."""

from __future__ import annotations

import json
from pathlib import Path

from grposcope.core.errors import UserError
from grposcope.core.files import read_whole

CONFIG = "adapter_config.json"


def base_of(folder: Path) -> str:
    """Name or folder of the base model of the adapters in `folder`; UserError where it is not known."""
    path = folder / CONFIG
    try:
        base = json.loads(read_whole(path))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}: {error}); restore it from a copy") from None
    if not isinstance(base, str) or not base:
        raise UserError(
            f"{path} does not name the base model of these adapters, as it was given to the trainer in memory; write "
            "its folder there as base_model_name_or_path"
        )
    if base.startswith((".", "/", "~")) and not Path(base).expanduser().is_dir():
        raise UserError(
            f"{path}: the base model {base} is not here; copy it there, or write its folder as base_model_name_or_path"
        )
    return base
