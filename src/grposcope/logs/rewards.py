"""Which key of a log is the reward, where its trainer has none for it: told by the words of the keys, else asked.

A key of the reward's own words (`reward/mean`, `avg_r`) goes first, then one of the whole of it (`final_reward`,
`avg_r_total`). Of others (`reward/selected_mean`, `score`) there must be one alone. Spreads, extremes, counts, losses
and the like are no level of anything, and what pays for one thing, such as the format, is no reward by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from grposcope.core.run import Floats
from grposcope.core.text import number, visible
from grposcope.logs.hints import Seen, UndecidedError
from grposcope.logs.words import words_of

SIGNAL = re.compile(r"reward|score|return|accuracy|acc\b|pass@|success|solve", re.I)
"""Keys that have to do with what is rewarded."""

_REWARD = frozenset(("reward", "rewards", "rew", "r"))
_SCORE = frozenset(("score", "scores", "return", "returns"))
_WHOLE = frozenset(
    ("total", "overall", "final", "sum", "summed", "all", "task", "raw", "full", "combined", "aggregate", "aggregated",
     "scalar", "weighted", "outcome", "env")
)  # fmt: skip
_PART = frozenset(
    ("format", "formatting", "length", "len", "tag", "tags", "style", "language", "repetition", "thinking", "xml")
)  # fmt: skip
_NO_LEVEL = frozenset(
    ("std", "stddev", "var", "variance", "sem", "se", "spread", "range", "min", "max", "best", "worst", "running",
     "ema", "count", "num", "n", "weight", "weights", "coef", "coefficient", "threshold", "target", "baseline", "loss",
     "error", "errors", "time", "seconds", "frac", "fraction", "zero", "nonzero", "dead", "clip", "clipped", "norm",
     "kl", "penalty", "entropy", "advantage", "advantages", "token", "tokens", "gap", "diff", "delta", "model", "lr",
     "hist", "quantile", "median", "scale", "requests", "calls", "workers", "bonus")
)  # fmt: skip


def found(keys: Iterable[str]) -> str | None:
    """The one key that is the reward by its words; None where there is none, or more than one."""
    ranked = _ranked(keys)
    best = [key for key, rank in ranked.items() if rank == min(ranked.values())]
    alone = len(best) == 1 and (ranked[best[0]] < 2 or len(ranked) == 1)
    return best[0] if alone and not _PART & set(_words(best[0])) else None


def is_reward(key: str) -> bool:
    """Whether the words of a key say that it is the reward, or a part of it, and no spread, count or the like."""
    words = set(_words(key))
    return bool(words & _REWARD) and not words & _NO_LEVEL


def candidates(keys: Iterable[str]) -> list[str]:
    """Keys that may be the reward, the likeliest first."""
    keys = list(keys)
    ranked = _ranked(keys)
    others = [key for key in keys if key not in ranked and SIGNAL.search(key) and not _NO_LEVEL & set(_words(key))]
    return [*sorted(ranked, key=lambda key: ranked[key]), *others]


def _words(key: str) -> list[str]:
    return words_of(key).split()


def _ranked(keys: Iterable[str]) -> dict[str, int]:
    """Keys by their words: 0 the reward, 1 the whole of it, 2 with other words, 3 a score or return."""
    ranks = {}
    for key in keys:
        words = set(_words(key))
        if words & _NO_LEVEL or not words & (_REWARD | _SCORE):
            continue
        rest = words - _REWARD
        ranks[key] = 3 if not words & _REWARD else 0 if not rest else 1 if rest <= _WHOLE else 2
    return ranks


def seen(columns: Mapping[str, Floats], may_be: Iterable[str] = ()) -> list[Seen]:
    """What each key of a log has, those that may be the reward first."""
    first = [key for key in may_be if key in columns]
    return [
        Seen(key, len(there), float(there[0]), float(there[-1]), key in first)
        for key in dict.fromkeys((*first, *columns))
        if len(there := columns[key][~np.isnan(columns[key])])
    ]


def taken(key: str, column: Floats) -> str:
    """The note that a key is taken for the reward."""
    there = column[~np.isnan(column)]
    levels = f" ({number(float(there[0]))} → {number(float(there[-1]))})" if len(there) else ""
    return f"{visible(key, 60)}{levels} is read as the reward, because no key has that name"


def undecided(source: object, kind: str, keys: list[Seen]) -> UndecidedError:
    """The question which key is the reward. kind: what has the keys, such as "key"; keys: the candidates first."""
    may_be = [one for one in keys if one.candidate]
    if may_be:
        some = ", ".join(map(str, may_be[:8]))
        said = f"{source}: cannot tell which {kind} is the reward; candidates: {some}"
        return UndecidedError(said, "columns", keys, f"reward={may_be[0].key}")
    some = ", ".join(map(str, keys[:8])) or "only steps and times"
    said = f"{source}: no key is named as a reward; is this a log of supervised training? Its keys: {some}"
    return UndecidedError(said, "columns", keys, f"reward={keys[0].key}" if keys else "")
