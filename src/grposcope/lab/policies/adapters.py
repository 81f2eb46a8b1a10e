"""Adapters of PEFT: which base model a folder of them belongs to, and the base model with the adapters in place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from grposcope.core.errors import UserError, lost_device
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


def attached(base: Any, folder: Path, dtype: torch.dtype) -> Any:
    """The model `base` with the adapters of `folder` in its layers, its own weights frozen; UserError without PEFT.

    Only safetensors are read.
    """
    if not (folder / "adapter_model.safetensors").is_file():
        raise UserError(
            f"{folder} has no adapter_model.safetensors, the only kind that is read; save the adapters again in that "
            "format"
        )
    try:
        from peft import PeftModel
    except ImportError:
        raise UserError(f"{folder} holds adapters, which need peft; pip install peft") from None
    try:
        model = PeftModel.from_pretrained(base, str(folder), is_trainable=True)
    except Exception as error:  # of PEFT, for what a damaged folder holds: of any kind
        if isinstance(error, ImportError) or lost_device(error):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"cannot load the adapters in {folder}: {reason}; give the whole folder of the checkpoint"
        ) from None
    return model.get_base_model().to(dtype)
