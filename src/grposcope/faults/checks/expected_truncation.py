"""The check of settings for completions that will be cut, by the lengths of an earlier run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import percent
from grposcope.faults.known_task import Known
from grposcope.maths.timeseries.change import LATE

MANY, SOME = 0.5, 0.1
"""Shares of cut completions from which most, and from which many, rollouts are lost."""

KEYS = {"trl": "max_completion_length", "verl": "data.max_response_length"}
"""The key of the longest completion."""

MASK = "mask_truncated_completions"


def settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The share of completions that will be cut, from an earlier run with a limit at least as high."""
    key = KEYS[config.dialect.name]
    limit = config.whole(key)
    if limit is None:
        yield cannot_tell(f"{key} is not known", key)
        return
    if facts.run is None:
        yield cannot_tell("the lengths of completions are not known: give an earlier run", "earlier run")
        return
    run, before = facts.run, facts.run.setting("max_tokens")
    cut = _late(run.table.get("truncated", run.table.get("at_limit")))
    length = _late(run.table.get("length"))
    if length is not None and limit < length:
        yield fact(
            True,
            f"the limit is {limit} tokens, but at the end of {run.meta.name} completions were {length:.0f} tokens "
            "long on average",
            config.signs(key),
            grade="failing",
            brief="most completions will be cut",
            remedy=f"set {key} to {2 * length:.0f} or more",
        )
    elif cut is not None and cut >= SOME and (before is None or limit <= before):
        masked = config.on(MASK)
        at = f"a limit of {before} tokens" if before else "an unknown limit"
        what = "are left out of the loss" if masked else "are graded as they are, mostly as wrong"
        yield fact(
            True,
            f"{percent(cut)} of the completions of {run.meta.name} were cut, at {at}; they {what}",
            config.signs(key, *([MASK] if masked else [])),
            grade="warning" if cut >= MANY else "note",
            brief="many completions will be cut",
            remedy=f"raise {key}",
        )


def _late(column: np.ndarray | None) -> float | None:
    """Mean of the last part of a column, LATE; None where it has no finite value there."""
    if column is None:
        return None
    late = column[int(LATE[0] * len(column)) :]
    late = late[np.isfinite(late)]
    return float(late.mean()) if len(late) else None


CHECK = SettingsCheck(
    "length",
    settings,
    ("trl", "verl"),
    "completions that will be cut, judged by the lengths of an earlier run",
    ("failing", "warning", "note"),
    "arXiv:2503.14476 §3.4 (overlong samples)",
)
