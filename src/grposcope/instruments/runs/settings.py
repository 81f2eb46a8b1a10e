"""Settings of the runs: what differs between several, and all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from grposcope.core.answer import Answer, Table
from grposcope.core.metrics import COMPLETIONS, COMPONENT, CRITIC, GEOMETRY, LOGGED, METRICS, POLICY, SPREAD, UPDATE
from grposcope.core.run import Run, labels
from grposcope.core.text import listed, visible
from grposcope.instruments.runs import SETTINGS
from grposcope.render.curves import of_metrics

ELSEWHERE = ("step", "time", "reward", "dead_fraction", "seconds_sample", "seconds_grade", "seconds_update",
             "tokens_per_second", "tokens", "seconds_probe")  # fmt: skip
"""Metrics that other sections show."""

NO_CHOICE = ("started", "environment.", "settings.out", "format")
"""Prefixes of settings that differ between any two runs and explain nothing."""

NAMED = 5
"""Settings that differ which the sentence names at most; the table has all."""


def _section(runs: Sequence[Run]) -> Answer | None:
    """A table of what differs between several runs, and a folded one of all settings."""
    flat = [_flattened(run.config) for run in runs]
    names = labels(runs)
    keys = list(dict.fromkeys(key for config in flat for key in config))
    if not keys:
        return None
    chosen = [key for key in keys if not key.startswith(NO_CHOICE)]
    differing = [key for key in chosen if len({config[key] for config in flat if key in config}) > 1]
    partly = [key for key in chosen if key not in differing and any(key not in config for config in flat)]
    tables, text = [], []
    sentence = "One setting is recorded." if len(keys) == 1 else f"{len(keys):,} settings are recorded."
    if differing:
        more = [f"{len(differing) - NAMED} more"] if len(differing) > NAMED else []
        sentence = f"The runs differ in {listed([*differing[:NAMED], *more])}."
        tables.append(_table("What differs", differing, names, flat, folded=False))
    elif len(runs) > 1:
        sentence = "All settings recorded for more than one run are equal."
    if partly:
        text.append(f"{len(partly)} further settings are recorded for some of the runs only.")
    tables.append(_table("All settings", keys, names, flat, folded=True))
    numbers = {"differing": {key: {n: c.get(key) for n, c in zip(names, flat, strict=True)} for key in differing}}
    document = numbers if len(runs) > 1 else {}
    return Answer(
        "settings", "Which settings were used?", sentence=sentence, text=text, tables=tables, document=document
    )


def _flattened(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings under dotted names, each value as text on one line."""
    settings: dict[str, str] = {}
    for key, value in config.items():
        name = f"{prefix}{visible(str(key), 80)}"
        if isinstance(value, Mapping):
            settings |= _flattened(value, f"{name}.")
        else:
            settings[name] = "none" if value is None else visible(str(value))
    return settings


def _table(
    title: str, keys: Sequence[str], names: Sequence[str], flat: Sequence[Mapping[str, str]], folded: bool
) -> Table:
    rows = [(key, *(config.get(key, "not recorded") for config in flat)) for key in keys]
    return Table(title, ("setting", *names), rows, folded=folded)


def _other(runs: Sequence[Run]) -> Answer | None:
    """Curves of every recorded metric that no other section shows; unknown ones folded by the prefix of their name."""
    shown = {*ELSEWHERE, *SPREAD, *POLICY, *COMPLETIONS, *UPDATE, *CRITIC}
    recorded = dict.fromkeys(name for run in runs for name in run.table)
    rest = [name for name in [*METRICS, *recorded] if name in recorded and name not in shown]
    rest = list(dict.fromkeys(name for name in rest if not name.startswith((GEOMETRY, *COMPONENT))))
    return of_metrics("other", SETTINGS.question, rest, _by_prefix(rest))(runs)


def _by_prefix(metrics: Sequence[str]) -> dict[str, str]:
    """Metric that is not in the vocabulary -> the part of its name before the first slash, "others" for single ones."""
    prefixes = {name: name.partition("/")[0] for name in metrics if name not in METRICS and name not in LOGGED}
    sizes = Counter(prefixes.values())
    return {name: visible(prefix, 60) if sizes[prefix] > 1 else "others" for name, prefix in prefixes.items()}


def answers(runs: Sequence[Run], settings: Any) -> list[Answer]:
    """What no other instrument shows, and the settings."""
    return [one for one in (_other(runs), _section(runs)) if one is not None]
