"""Which run this is: model, task or data, trainer, version, the settings that matter, and when; as far as known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from grposcope.core.run import Run
from grposcope.core.text import number, visible

SETTINGS = {
    "recipe": "recipe", "advantage": "advantage", "group": "group size", "prompts": "prompts per step",
    "lr": "learning rate", "kl": "KL coefficient", "optimizer": "optimizer", "temperature": "temperature",
    "max_tokens": "token limit", "seed": "seed",
}  # fmt: skip
"""Settings that matter -> their names for people."""

LONGEST = 80
"""Characters of a name or a value."""

COMMIT = 10
"""Characters of a commit."""


def of_run(run: Run) -> tuple[str, ...]:
    """Two lines: what was trained, by what and when; and the settings that are recorded. The second may be lacking."""
    what = [
        _named(run, "model"),
        _named(run, "task") or _named(run, "dataset"),
        _trainer(run),
        _steps(run),
        _began(run),
        _end(run),
    ]
    settings = [
        f"{label} {_shown(value)}" for key, label in SETTINGS.items() if (value := _setting(run, key)) is not None
    ]
    lines = (" · ".join(text for text in what if text), " · ".join(settings))
    return tuple(line for line in lines if line)


def _setting(run: Run, name: str) -> Any:
    """A setting, from the trainer's settings or from the top or the sampling of a record."""
    for settings in (run.config.get("settings"), run.config, run.config.get("sampling")):
        if isinstance(settings, Mapping) and isinstance(settings.get(name), str | int | float):
            return settings[name]
    return None


def _named(run: Run, name: str) -> str:
    """The name of the model or of the data; empty where it is not recorded."""
    value = run.config.get(name)
    value = value.get("name") if isinstance(value, Mapping) else value
    value = value if value is not None else run.setting(name)
    return f"{name} {visible(value, LONGEST)}" if isinstance(value, str) and value else ""


def _trainer(run: Run) -> str:
    """The trainer, with the version of this package or the commit where the record has them."""
    environment = run.config.get("environment")
    if not isinstance(environment, Mapping):
        return visible(run.meta.engine, LONGEST)
    git = environment.get("git")
    commit = git.get("commit") if isinstance(git, Mapping) else None
    version = environment.get(run.meta.engine) or environment.get("grposcope")
    parts = [run.meta.engine, str(version or ""), f"commit {str(commit)[:COMMIT]}" if commit else ""]
    return visible(" ".join(text for text in parts if text), LONGEST)


def _steps(run: Run) -> str:
    """The rows, and the steps from which to which they are."""
    step = run.table["step"][np.isfinite(run.table["step"])] if "step" in run.table else np.array([])
    if not len(step):
        return ""
    rows = f"{run.steps:,} row{'s' * (run.steps != 1)}"
    return f"{rows}, steps {int(step[0]):,} to {int(step[-1]):,}"


def _began(run: Run) -> str:
    """When the run began, as its record says; else when its log was last written."""
    if isinstance(started := run.config.get("started"), str) and started:
        return f"began {visible(started[:16].replace('T', ' '), LONGEST)}"
    try:
        written = datetime.fromtimestamp(run.meta.source.stat().st_mtime).astimezone()
    except OSError:
        return ""
    return f"log written {written:%Y-%m-%d %H:%M}"


def _end(run: Run) -> str:
    """That nobody knows whether the run has ended; how it ended, where that is known, is a sentence of its own."""
    return "the log does not say whether the run ended" if run.meta.status == "unknown" and run.steps else ""


def _shown(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}" if abs(value) < 1e-3 else number(value)
    return f"{value:,}" if isinstance(value, int) and abs(value) > 9999 else visible(str(value), LONGEST)
