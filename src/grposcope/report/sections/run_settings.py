"""Settings of the runs: what differs between several, and all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grposcope.formatting import visible
from grposcope.report.elements import PageTable, Section
from grposcope.runs.run import Run, labels

NO_CHOICE = ("started", "environment.", "settings.out", "format")
"""Prefixes of settings that differ between any two runs and explain nothing."""


def section(runs: Sequence[Run]) -> Section | None:
    """A table of what differs between several runs, and a folded one of all settings."""
    flat = [flattened(run.config) for run in runs]
    names = labels(runs)
    keys = list(dict.fromkeys(key for config in flat for key in config))
    if not keys:
        return None
    chosen = [key for key in keys if not key.startswith(NO_CHOICE)]
    differing = [key for key in chosen if len({config[key] for config in flat if key in config}) > 1]
    partly = [key for key in chosen if key not in differing and any(key not in config for config in flat)]
    tables, text = [], []
    if differing:
        tables.append(_table("What differs", differing, names, flat, folded=False))
    elif len(runs) > 1:
        text.append("All settings that are recorded for more than one run are equal.")
    if partly:
        text.append(f"{len(partly)} further settings are recorded for some of the runs only.")
    tables.append(_table("All settings", keys, names, flat, folded=True))
    numbers = {"differing": {key: {n: c.get(key) for n, c in zip(names, flat, strict=True)} for key in differing}}
    return Section("settings", "Settings", text=text, tables=tables, numbers=numbers if len(runs) > 1 else {})


def flattened(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings under dotted names, each value as text on one line."""
    settings: dict[str, str] = {}
    for key, value in config.items():
        name = f"{prefix}{visible(str(key), 80)}"
        if isinstance(value, Mapping):
            settings |= flattened(value, f"{name}.")
        else:
            settings[name] = "none" if value is None else visible(str(value))
    return settings


def _table(
    title: str, keys: Sequence[str], names: Sequence[str], flat: Sequence[Mapping[str, str]], folded: bool
) -> PageTable:
    rows = [(key, *(config.get(key, "not recorded") for config in flat)) for key in keys]
    return PageTable(title, ("setting", *names), rows, folded=folded)
