"""What a key of a log says by its name: whether it counts steps, was evaluated apart from training, is the reward.

The reward, where the trainer has no key for it, is told by words. A key of the reward's own words (`reward/mean`,
`avg_r`) goes first, then one of the whole of it (`final_reward`, `avg_r_total`). Of others (`reward/selected_mean`,
`score`) there must be one alone. Spreads, extremes, counts, losses and the like are no level of anything, and what pays
for one thing, such as the format, is no reward by itself. Else the user is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

from grposcope.core.run import Floats
from grposcope.core.text import number, visible
from grposcope.logs.hints import Seen, UndecidedError

STEPS = (
    "step", "global_step", "train/global_step", "training/global_step", "trainer/global_step", "progress/step", "Step",
    "steps", "Steps", "training_step", "system/global_step", "iteration", "iter", "update", "_step",
)  # fmt: skip
"""Keys that count steps, the most reliable first: _step counts calls of wandb.log, not optimiser steps."""

CLOCKS = frozenset(
    ("epoch", "timestamp", "_timestamp", "_runtime", "time", "wall_time", "progress/done_frac", "progress/epoch",
     "rollout/step", "train/step", "eval/step",
     "train_speed(s/it)", "train_speed(iter/s)", "memory(GiB)",
     "Relative Time (Process)", "Wall Time", "relative_time", "train/epoch", "training/epoch", *STEPS)
)  # fmt: skip
"""Keys that say when a row was written, or how fast; a row with only these holds no metric."""

TIMES = ("time/", "timing/", "timing_s/", "perf/", "system/")
"""Beginnings of keys about the machine, which parts of a trainer log at the same step with values of their own."""

KINDS = frozenset(
    ("split", "phase", "mode", "type", "event", "kind", "stage", "set", "subset", "partition", "context", "section",
     "row_type", "event_type", "record_type", "log_type", "source", "job", "job_type", "data_split", "dataset_split",
     "name", "msg", "message", "event_name")
)  # fmt: skip
"""Names of columns that say what kind of row it is."""

FILLING = frozenset(
    ("avg", "average", "mean", "train", "training", "batch", "current", "cur", "the", "policy", "metric", "metrics",
     "rollout", "rollouts", "episode", "log", "logs", "data", "scalars", "stats")
)  # fmt: skip
"""Words of a key that do not change which metric it is. (max, best, running, total and the like do.)"""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


@lru_cache(1 << 17)
def words_of(key: str) -> str:
    """The words of a key in lower case and without FILLING: "Avg_ResponseLen" is "response len"."""
    words = [word.lower() for word in _WORD.findall(key[:200])]
    return " ".join(word for word in words if word not in FILLING)


WORDS = frozenset(
    ("eval", "evals", "evaluation", "evaluate", "evaluating", "val", "valid", "validation", "validate", "test",
     "testing", "dev", "heldout")
)  # fmt: skip
"""Words for what is no training."""

BY_PATH = re.compile(
    r"(?:(?:evals?|evaluation|val|validation|test|dev|held[-_]?out)/|(?:eval|val|test)(?:-[a-z]+)+/"
    r"|(?:eval|val|held_?out)_)(?P<name>.+)",
    re.I,
)
VERSION = re.compile(r"(?:.*/)?(?:policy|weights?|model|param)_version", re.I)
"""Names of what was evaluated, which is no score of it."""

BY_ROWS = re.compile(r"(?:valid|validation|test|dev)[_/](?P<name>.+)", re.I)
ANY_SCORE = re.compile(
    r"(?:.*[_/ ])?(?:acc|accuracy|success|success_rate|solve_rate|pass_rate|exact_match|pass@1)", re.I
)


SIGNAL = re.compile(r"reward|\brew\b|score|return|accuracy|acc\b|pass@|success|solve", re.I)
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


def reward_among(keys: Iterable[str]) -> str | None:
    """The one key that is the reward by its words; None where there is none, or more than one."""
    ranked = _ranked(keys)
    best = [key for key, rank in ranked.items() if rank == min(ranked.values())]
    alone = len(best) == 1 and (ranked[best[0]] < 2 or len(ranked) == 1)
    return best[0] if alone and not _PART & set(words_of(best[0]).split()) else None


def is_reward(key: str) -> bool:
    """Whether the words of a key say that it is the reward, or a part of it, and no spread, count or the like."""
    words = set(words_of(key).split())
    return bool(words & _REWARD) and not words & _NO_LEVEL


def reward_candidates(keys: Iterable[str]) -> list[str]:
    """Keys that may be the reward, the likeliest first."""
    keys = list(keys)
    ranked = _ranked(keys)
    others = [
        key for key in keys if key not in ranked and SIGNAL.search(key) and not _NO_LEVEL & set(words_of(key).split())
    ]
    return [*sorted(ranked, key=lambda key: ranked[key]), *others]


def _ranked(keys: Iterable[str]) -> dict[str, int]:
    """Keys by their words: 0 the reward, 1 the whole of it, 2 with other words, 3 a score or return."""
    ranks = {}
    for key in keys:
        words = set(words_of(key).split())
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


def taken_for_reward(key: str, column: Floats) -> str:
    """The note that a key is taken for the reward."""
    there = column[~np.isnan(column)]
    levels = f" ({number(float(there[0]))} → {number(float(there[-1]))})" if len(there) else ""
    return f"{visible(key, 60)}{levels} is read as the reward, because no key has that name"


def which_is_the_reward(source: object, kind: str, keys: list[Seen]) -> UndecidedError:
    """The question which key is the reward. kind: what has the keys, such as "key"; keys: the candidates first."""
    may_be = [key for key in keys if key.candidate]
    if may_be:
        some = ", ".join(map(str, may_be[:8]))
        said = f"{source}: cannot tell which {kind} is the reward; candidates: {some}"
        return UndecidedError(said, "columns", keys, f"reward={may_be[0].key}")
    some = ", ".join(map(str, keys[:8])) or "only steps and times"
    if keys and all(key.values == 1 for key in keys):
        settings = "no key of its one row is named as a reward; settings are read by grposcope lint"
        said = f"{source}: {settings}. Its keys: {some}"
        return UndecidedError(said, "columns", keys, "")
    said = f"{source}: no key is named as a reward; is this a log of supervised training? Its keys: {some}"
    return UndecidedError(said, "columns", keys, f"reward={keys[0].key}" if keys else "")
