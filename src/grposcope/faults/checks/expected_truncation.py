"""The check of settings for completions that will be cut, by the lengths of an earlier run."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import percent
from grposcope.faults.known_task import Known
from grposcope.maths.timeseries.change import LATE
from grposcope.signs.settings.names import EVERY, key_of

MANY, SOME = 0.5, 0.1
"""Shares of cut completions from which most, and from which many, rollouts are lost."""

_SHORT = 64
"""Tokens up to which a completion has no room for a reasoned answer: those of GSM8K have 100 to 200."""

_REASONED = re.compile(r"gsm[-_]?8k|\bmath|aime|numina|deepscaler|think|reason|\bcot\b", re.IGNORECASE)
_SAID_BY = re.compile(r"data|files|reward|task|env|source|prompt|template", re.IGNORECASE)
"""Names of data, rewards and templates whose answers are reasoned, and words of the keys that they stand under."""

MASK = "mask_truncated_completions"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The share of completions that will be cut, from an earlier run with a limit at least as high."""
    key = key_of(config, "max_tokens")
    limit = config.whole(key)
    if limit is None:
        yield cannot_tell(f"{key} is not known", key)
        return
    if 0 < limit <= _SHORT and config.says(key):
        yield _too_short(config, key, limit)
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


def _too_short(config: Settings, key: str, limit: int) -> Finding:
    """A limit that no reasoned answer keeps; worse where the data or the rewards are of such answers."""
    reasoned = [name for name, value in config.given.items() if _SAID_BY.search(name) and _REASONED.search(str(value))]
    loaded = [name for name in config.script or {} if _SAID_BY.search(name) and _REASONED.search(name)]
    told = f", and {(reasoned or loaded)[0]} is of such answers" if reasoned or loaded else ""
    lines = [Sign(name, where=f"line {(config.script or {})[name]}") for name in loaded[:1] if not reasoned]
    return fact(
        True,
        f"completions are cut after {limit} tokens, about {limit * 3 // 4} words: a reasoned answer does not come to "
        f"its end{told}",
        (*config.signs(key, *[name for name in reasoned[:1] if isinstance(config.get(name), str)]), *lines),
        grade="warning" if reasoned or loaded else "note",
        explains=("never paid", "starved", "constant reward"),
        brief=f"completions of at most {limit} tokens",
        remedy=f"set {key} to two or three times a finished answer, 512 or more where it is reasoned",
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
    _settings,
    EVERY,
    "completions that will be cut, judged by the lengths of an earlier run; a limit without room for a reasoned one",
    ("failing", "warning", "note"),
    "arXiv:2503.14476 §3.4 (overlong samples)",
)
