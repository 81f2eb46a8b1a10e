"""What lies in the folder of a probe: gram.npz, probe.json, tokens.jsonl; of an interrupted one what is done."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from grposcope.commands import probe_rollouts
from grposcope.commands.probe_rollouts import Drawn
from grposcope.errors import UserError
from grposcope.files import dumps, write_json
from grposcope.geometry import summary
from grposcope.geometry.probe import Probe
from grposcope.policies import Policy
from grposcope.ustat import gram_file


def folder(out: str | None, place: Path | None) -> Path | None:
    """The folder for results, `out` or else the `place` in the run: empty, new, or of a probe that was stopped."""
    found = Path(out) if out is not None else place
    if found is None:
        return None
    try:
        found.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {found}: {error.strerror}; choose another --out") from None
    if any(found.iterdir()) and not probe_rollouts.waiting(found):
        what = "this model was probed before, " if out is None else ""
        raise UserError(f"{found} is not empty: {what}nothing was changed; choose another --out, or delete it first")
    return found


def write(folder: Path, content: dict[str, Any], found: Probe, drawn: Drawn, policy: Policy) -> dict[str, str]:
    """Write a probe; returns the paths. An interrupted one leaves the Gram of the layers that are done in partial/."""
    group = found.rewards.shape[1]
    lines = []
    for row, text in enumerate(drawn.texts):
        ids = drawn.rollouts.tokens[row][drawn.rollouts.mask[row]].tolist()
        problem = drawn.problems[row // group]
        lines.append(
            dumps(
                {
                    "problem": problem.id,
                    "prompt": problem.prompt,
                    "completion": text,
                    "reward": float(found.rewards.flat[row]),
                    "tokens": [policy.tokenizer.decode([i]) for i in ids],
                    **summary.tokens(found, row),
                }
            )
        )
    names = [layer.name for layer in found.layers]
    stacked = np.stack([layer.gram for layer in found.layers])
    whole = content | {"layers": summary.layers(found), "baselines": summary.prompts(found)}
    paths = {"gram": folder / "gram.npz", "probe": folder / "probe.json", "tokens": folder / "tokens.jsonl"}
    try:
        paths["tokens"].write_text("\n".join(lines) + "\n")
        where = folder if found.complete else folder / "partial"
        paths["gram"] = gram_file.write(where, found.gram, found.rewards, found.truncated, stacked, names)
        write_json(paths["probe"], whole)  # last: who reads it finds the others
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {error.strerror or error}; make room and give the same command"
        ) from None
    if found.complete:
        probe_rollouts.forget(folder)
        shutil.rmtree(folder / "partial", ignore_errors=True)
    return {name: str(path) for name, path in paths.items()}
