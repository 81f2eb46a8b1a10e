"""Models below the folder of a run, by the optimiser step that their folders are named after.

A folder whose name ends in a number counts where a model lies in it or at one of INSIDE: checkpoint-20 of TRL,
checkpoints/step-000100/model of our own record, global_step_40/actor/huggingface of verl, or anybody's ckpt_20.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from grposcope.core.files import read_whole
from grposcope.core.rollouts import Rollout
from grposcope.logs.trainers import trl_output

ADAPTERS = "adapter_config.json"
"""What PEFT writes beside adapters."""

INSIDE = ("", "model", "policy", "hf", "huggingface", "actor/huggingface")
"""Where a model may lie in the folder of a checkpoint."""

WITHIN = ("", "checkpoints", "ckpt", "models", "weights")
"""Folders of a run that may hold its checkpoints."""

_NUMBERED = re.compile(
    r"(?:checkpoint|ckpt|global[-_]?step|step|iter(?:ation)?|update|model|weights|policy|actor)?[-_.]?0*(\d+)", re.I
)

SECONDS = 60.0
"""Work on checkpoints that nobody asked for, at FLOPS."""

FLOPS = 2e10
"""Operations per second of a CPU, low."""

PASSES = 2.0
"""Operations per weight and token of a forward pass."""

CHARACTERS = 3.0
"""Characters of a token, where ids are not written."""


MOST = 8
"""Checkpoints of one run that are scored; of more, those are taken that should have drawn rollouts that are here."""


def unasked(folder: Path, rows: Sequence[Rollout]) -> tuple[bool, str]:
    """Whether to score rollouts under the checkpoints below a folder without being asked, and a note if not.

    Not where that would take longer than SECONDS, by the size of the files.
    """
    found = models(folder)
    tokens = sum(map(_tokens, rows))
    if not found or not tokens:
        return False, ""
    where = f"{len(found):,} checkpoint{'s' * (len(found) != 1)} in {folder}"
    if find_spec("torch") is None:
        return False, f"{where} {'was' if len(found) == 1 else 'were'} not used, which takes torch"
    weights = max(map(_size, found.values())) / 4
    seconds = PASSES * weights * tokens * min(len(found), MOST) / FLOPS
    if seconds > SECONDS:
        minutes = max(1, round(seconds / 60))
        return False, (
            f"{where} {'was' if len(found) == 1 else 'were'} not used: scoring under {min(len(found), MOST)} of them "
            f"may take {minutes:,} minutes on a CPU; name {folder} as the model to do it"
        )
    return True, ""


def _tokens(row: Rollout) -> float:
    """About how many tokens a rollout has with its prompt; 0 where nothing can be scored."""
    if row.completion_ids is not None and row.prompt_ids is not None:
        return float(len(row.completion_ids) + len(row.prompt_ids))
    text = isinstance(row.completion, str) and row.prompt is not None
    return (len(str(row.completion)) + len(str(row.prompt))) / CHARACTERS if text else 0.0


def models(folder: Path) -> Mapping[int, Path]:
    """Step -> folder of the model, in the order of steps; empty where none lies there."""
    if not folder.is_dir():
        return {}
    return trl_output.models(folder) or _numbered(folder)


def _numbered(folder: Path) -> Mapping[int, Path]:
    """The models of folders whose names end in a number, in `folder` and its WITHIN; the first of equal numbers."""
    paths: dict[int, Path] = {}
    for place in (folder / name for name in WITHIN):
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            step = step_of(path)
            if step is not None and (model := _inside(path)) is not None:
                paths.setdefault(step, model)
    return dict(sorted(paths.items()))


def step_of(path: Path) -> int | None:
    """The step that a folder is named after; None where its name is not that of a checkpoint."""
    match = _NUMBERED.fullmatch(path.name)
    return int(match[1]) if match else None


def _inside(folder: Path) -> Path | None:
    """Where in the folder of a checkpoint its model lies; None without one that can be read."""
    if not folder.is_dir():
        return None
    return next((path for name in INSIDE if is_model(path := folder / name)), None)


def is_model(folder: Path) -> bool:
    """Whether a folder has weights as safetensors, of a whole model or of adapters."""
    whole = (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))
    return whole or ((folder / ADAPTERS).is_file() and any(folder.glob("adapter_model*.safetensors")))


def _size(folder: Path) -> int:
    """Bytes of the weights in a folder, with those of the base model where adapters name one that lies here."""
    own = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if (folder / "config.json").is_file() or not (folder / ADAPTERS).is_file():
        return own
    try:
        base = json.loads(read_whole(folder / ADAPTERS))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return own
    return own + (_size(Path(base).expanduser()) if base and isinstance(base, str) and Path(base).is_dir() else 0)
