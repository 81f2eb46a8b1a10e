"""What an existing run says of itself, and whether it can be gone on with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from grposcope.errors import UserError
from grposcope.runs.native.writer import FORMAT
from grposcope.training.config import TrainConfig


def settings(folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of a run that can be resumed; its "settings" fit `TrainConfig`.

    Raises UserError where there is no run, the run is finished, its record is of a newer version,
    or a setting in `given` differs from the run's.
    """
    path = folder / "config.json"
    try:
        content = json.loads(path.read_text())
        kept, version = dict(content["settings"]), int(content["format"])
    except FileNotFoundError:
        raise UserError(f"{folder} holds no run: there is no config.json; give the folder that --out named") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error}); it is no record of grposcope train") from None
    known = {f.name for f in fields(TrainConfig)}
    if version != FORMAT or kept.keys() - known:
        newer = version > FORMAT or kept.keys() - known
        remedy = "update grposcope" if newer else "it can be read, but not resumed"
        raise UserError(f"{folder} has a record of version {version}, and this is version {FORMAT}; {remedy}")
    different = [
        f"--{name.replace('_', '-')} {value} (the run: {kept.get(name)})"
        for name, value in given.items()
        if value != kept.get(name) and name != "out"
    ]
    if different:
        raise UserError(
            f"a resumed run keeps its settings, and these differ: {', '.join(different)}; leave them out, or start "
            "a new run with --model of a checkpoint"
        )
    if _finished(folder):
        raise UserError(f"{folder} is finished; start a new run from its model with --model {folder}/model")
    return {**content, "settings": kept}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs in the environment and can change the last bits of a number, a line each."""
    old, new = before["environment"], now["environment"]
    names = ("torch", "transformers", "device", "threads", "platform")
    return [f"{name} was {old.get(name)} and is {new.get(name)}" for name in names if old.get(name) != new.get(name)]


def _finished(folder: Path) -> bool:
    try:
        return not json.loads((folder / "summary.json").read_text())["interrupted"]
    except (OSError, ValueError, KeyError):
        return False
