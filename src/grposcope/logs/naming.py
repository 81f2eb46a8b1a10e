"""The first steps from a log to a Run: its keys as trainers write them, its trainer, and the key of the reward.

A metric may change its key in mid-run, as when a trainer is upgraded before a resume: two columns that are one. One
ends before the other begins, with hardly a row between, and both names mean the same: to the trainer, or by their
words, which are equal but for NEUTRAL ones. Evaluations are left alone. Where only the ends meet, nothing is put
together, since a reward after a penalty is another quantity than one before it; a note says where the reward ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.metrics import VARIANTS
from grposcope.core.run import Floats
from grposcope.core.text import visible
from grposcope.logs import keys
from grposcope.logs.columns import RawLog
from grposcope.logs.hints import Seen
from grposcope.logs.keys import CLOCKS, words_of
from grposcope.logs.table import LogTable
from grposcope.logs.trainers import TRAINERS, generic, trainer_of

OF_A_POLICY = frozenset(("entropy", "clip_fraction"))
"""Metrics that together are logged only where a policy is trained by its rewards."""

OTHER_TRAININGS: tuple[tuple[str, frozenset[str]], ...] = (
    ("preference training, such as DPO", frozenset(("rewards/chosen", "rewards/rejected"))),
    ("the training of a reward model", frozenset(("margin", "mean_reward", "min_reward", "max_reward"))),
    ("supervised fine-tuning", frozenset(("mean_token_accuracy", "loss"))),
)
"""What other trainings log: all keys of one, where no key is the reward of rollouts."""

FEWEST = 5
"""Values that either column of a metric with two keys has at least."""

NEUTRAL = frozenset(("mean", "avg", "average", "approx", "rollout", "train", "training", "metric", "batch"))
"""Words of a key, in the singular, that do not say which quantity it is."""

BETWEEN = 3
"""Rows between both at most, in distances of their values."""

_FACTOR = re.compile(r"(?P<key>.*\S)\s*\(\s*(?P<factor>\d+(?:\.\d*)?[eE][-+]?\d+)\s*\)")
_COMMA = re.compile(r"[-+]?\d+,\d+")
_DOT = re.compile(r"(?<=[A-Za-z_\])])\.(?=[A-Za-z_])")


def _plain_keys_and_trainer(table: LogTable) -> LogTable:
    """Keys without prefixes that all share, with slashes between their parts, and the trainer whose keys they are.

    Where a trainer recognises the keys only as logged, as one whose keys all share a prefix, they stay so, but for
    clocks and evaluations. The trainer is that which the reader knows, or one that leaves the same files and whose keys
    these are; else the keys tell it.
    """
    name, columns = table.log.engine, dict(table.columns)
    plain, raw = _unprefixed(columns)
    trainer = TRAINERS.get(name, generic.GENERIC) if name else trainer_of(columns)
    if trainer.recognises(columns.keys()) and not trainer.recognises(plain.keys()):
        renamed = {new: key for new, key in raw.items()
                   if new in CLOCKS or (keys.BY_PATH.fullmatch(new) and trainer.metric(key) is None)}  # fmt: skip
        shorter = {key: new for new, key in renamed.items()}
        own = {shorter.get(key, key): column for key, column in columns.items()}
        plain, raw = (own, renamed) if trainer.recognises(own.keys()) else (columns, {})
    same_files = (one for one in TRAINERS.values() if one.leaves_files_of == name and one.recognises(plain.keys()))
    trainer = next(same_files, trainer) if name else trainer_of(plain)
    own_trainer = TRAINERS["grposcope"] if table.log.canonical else trainer
    return replace(table, columns=plain, raw=raw, engine=trainer.name, trainer=own_trainer)


def _keys_of_the_user(table: LogTable) -> LogTable:
    """The keys that the user says; UserError for one that is not in the log, or that already counts steps."""
    given: dict[str, str] = {}
    source = table.log.source
    for metric, key in table.hints.columns.items():
        same = _same(key, table.columns, table.raw)
        if len(same) != 1:
            some = ", ".join([visible(table.key_in_log(name), 60) for name in table.columns][:12])
            raise UserError(f"{source}: no key {visible(key, 60)!r}; its keys are {some}")
        if same[0] == "step" and metric != "step":
            raise UserError(
                f'{source}: the key "step" counts steps and cannot be {metric}; give another key for '
                f"{metric}, or rename it in the log"
            )
        given[metric] = same[0]
    return replace(table, given=given) if given else table


def _of_rollouts(table: LogTable) -> LogTable:
    """The table; UserError where the log is that of a training without rollouts, and the user names no reward."""
    for training, own in OTHER_TRAININGS:
        others = [key for key in table.columns if key not in own]
        paid = any(table.trainer.metric(key, usual=True) in VARIANTS["reward"] for key in others)
        if own <= table.columns.keys() and not paid and "reward" not in table.given:
            some = ", ".join(key for key in table.columns if key in own)
            raise UserError(
                f"{table.log.source} is the log of {training} ({some}): no rollouts are rewarded in it; give the log "
                "of the run with GRPO"
            )
    return table


def _reward_by_words(table: LogTable) -> LogTable:
    """The key that is the reward by its words, where neither user nor trainer know one; UserError where it is unclear.

    None in a log of nothing but evaluations, and where other metrics are those of a policy.
    """
    if "reward" in table.given:
        return table
    trainer, log = table.trainer, table.log
    trained = {key: table.columns[key] for key in trained_keys(table)}
    if set(trainer.definitions(trained, {}, 1)[0].values()) & set(VARIANTS["reward"]):
        return table
    if (key := keys.reward_among(trained)) is not None:
        named = table.key_in_log(key)
        notes = [] if named == "reward" else [keys.taken_for_reward(named, table.columns[key])]
        return table.noting(*notes, given={**table.given, "reward": key})
    if trainer.without_reward:
        return table.noting(trainer.without_reward)
    may_be = keys.reward_candidates(trained)
    if not may_be and {trainer.metric(key, usual=True) for key in trained} >= OF_A_POLICY:
        return table.noting("no key is named as a reward, but the other metrics are those of reinforcement learning")
    own = trainer.usual_keys is not None
    if (own and may_be) or not any(keys.SIGNAL.search(key) for key in table.columns):
        raise _text_reward(log) or keys.which_is_the_reward(log.source, "key", _listed(table, may_be))
    return table


def _one_key_per_metric(table: LogTable) -> LogTable:
    """A metric whose key changes in mid-run under one key: a column that ends, filled with the one that goes on."""
    columns, meaning, notes = dict(table.columns), partial(table.trainer.metric, usual=True), list[str]()
    reward = table.given.get("reward") or next((key for key in columns if meaning(key) == "reward"), None)
    ends = {
        key: (int(rows[0]), int(rows[-1]), int(np.median(np.diff(rows))))
        for key in trained_keys(table)
        if len(rows := np.flatnonzero(np.isfinite(columns[key]))) >= FEWEST
    }
    begun = max((first for first, *_ in ends.values()), default=0)
    for old, (_, last, each) in ends.items():
        if last >= begun:  # nothing begins after it, as in nearly any log
            continue
        after = [
            key for key, (first, _, other) in ends.items()
            if last < first <= last + BETWEEN * max(each, other) and key in columns and old in columns
        ]  # fmt: skip
        same = [key for key in after if _is_same(old, key, meaning)]
        if len(same) == 1:
            kept = same[0] if same[0] == reward else old
            other = same[0] if kept == old else old
            columns[kept] = np.where(np.isfinite(columns[kept]), columns[kept], columns.pop(other))
            notes.append(
                f"{visible(old, 60)} is called {visible(same[0], 60)} from mid-run on; both are read as one metric"
            )
        elif old == reward and after and last < len(columns[old]) - BETWEEN * max(each, 1):
            some = ", ".join(visible(key, 60) for key in after[:3])
            notes.append(f"{visible(old, 60)} ends mid-run, where {some} begins; the reward is judged up to there only")
    return table.noting(*notes, columns=columns) if notes else table


def _without_factors(table: LogTable) -> LogTable:
    """A key that says a factor, such as lr(1e-4), as the key without it."""
    columns, notes = dict(table.columns), []
    for key, column in table.columns.items():
        if (match := _FACTOR.fullmatch(key)) and match["key"] not in columns:
            columns[match["key"]] = column * float(match["factor"])
            notes.append(
                f"{visible(key, 60)} is used; {visible(match['key'], 60)} equals it times {float(match['factor']):g}"
            )
    return table.noting(*notes, columns=columns) if notes else table


def trained_keys(table: LogTable) -> list[str]:
    """Keys of metrics that are not evaluated, as far as their names say."""
    patterns = (keys.BY_PATH, keys.BY_ROWS)
    return [
        key for key in table.columns if key not in CLOCKS and not any(pattern.fullmatch(key) for pattern in patterns)
    ]


def _unprefixed(columns: dict[str, Floats]) -> tuple[dict[str, Floats], dict[str, str]]:
    """Columns under the keys that `_plain` makes, and new key -> key in the log.

    A common prefix train/ is taken off, as are metrics/ and what all keys begin with.
    """
    plain = {key: _plain(key) for key in columns}
    firsts = {key.partition("/")[0] for key in plain.values()}
    meaning = any(one in keys.WORDS or keys.SIGNAL.search(one) for one in firsts)
    if len(firsts) == 1 < len(plain) and all("/" in key for key in plain.values()) and not meaning:
        plain = {key: short.partition("/")[2] for key, short in plain.items()}
    strip = sum(key.startswith("train/") for key in plain.values()) >= 3
    renamed: dict[str, Floats] = {}
    raw: dict[str, str] = {}
    for key, column in columns.items():
        new = plain[key].removeprefix("train/") if strip else plain[key]
        new = new if new not in columns and new not in renamed else key
        renamed[new] = column
        if new != key:
            raw[new] = key
    return renamed, raw


def _plain(key: str) -> str:
    """A key with slashes between its parts, without spaces around them and without the word metrics in front."""
    key = re.sub(r" */ *", "/", key) if " / " in key else key
    key = _DOT.sub("/", key) if "/" not in key or key.startswith("metrics/") else key
    return key.removeprefix("metrics/")


def _same(key: str, columns: Mapping[str, Floats], raw: Mapping[str, str]) -> list[str]:
    """Columns that a user may mean by a key: of that name, else of that name in the log, else of one that is alike."""
    exact = [name for name in columns if name == key] or [name for name in columns if raw.get(name) == key]
    alike = [name for name in columns if _loose(key) in (_loose(name), _loose(raw.get(name, name)))]
    return exact or alike


def _loose(key: str) -> str:
    """A key in lower case, with slashes for dots, and without train/ in front."""
    return _plain(key.lower()).removeprefix("train/")


def _listed(table: LogTable, may_be: Sequence[str]) -> list[Seen]:
    """The keys of a log without a reward: candidates first, then those without a known meaning, then clocks."""
    metric = table.trainer.metric
    order = sorted(table.columns, key=lambda key: (_is_time(key), metric(key, usual=True) is not None))
    columns = {table.key_in_log(key): table.columns[key] for key in order}
    return keys.seen(columns, [table.key_in_log(key) for key in may_be])


def _text_reward(log: RawLog) -> UserError | None:
    """Why the rewards of a log cannot be read that are texts with a decimal comma; None where there are none."""
    for key, texts in log.rows.texts.items():
        if keys.SIGNAL.search(key) and (example := next(filter(_COMMA.fullmatch, texts.examples), None)):
            where = f"{log.source}, {log.place} {texts.line}"
            said = (
                f"{visible(key, 60)} is {visible(example, 40)!r}, a number with a decimal comma; write a decimal point"
            )
            return UserError(f"{where}: {said}")
    return None


_OF_TIME = frozenset(
    ("time", "walltime", "wall", "clock", "elapsed", "timestamp", "ts", "date", "datetime", "runtime", "relative",
     "process", "seconds", "second", "secs", "sec", "s", "ms", "minutes", "min", "hours", "h")
)  # fmt: skip


def _is_time(key: str) -> bool:
    """Whether a key counts steps or says when a row was written, by all of its words."""
    return key in CLOCKS or (bool(words := set(words_of(key).split())) and words <= _OF_TIME)


def _is_same(one: str, other: str, meaning: Callable[[str], str | None]) -> bool:
    known = meaning(one), meaning(other)
    if None not in known:
        return known[0] == known[1]
    short, long = sorted((_words(one), _words(other)), key=len)
    return bool(short) and short <= long and long - short <= NEUTRAL


def _words(key: str) -> set[str]:
    """The words of a key in the singular."""
    return {word.rstrip("s") for word in re.split(r"[^a-z0-9]+", key.lower()) if word}


NAMING: tuple[Callable[[LogTable], LogTable], ...] = (
    _plain_keys_and_trainer,
    _keys_of_the_user,
    _of_rollouts,
    _reward_by_words,
    _one_key_per_metric,
    _without_factors,
)
"""Steps of reading that find the trainer and the metric of each key, in order."""
