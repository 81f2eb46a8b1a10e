"""The claims of shapes in time that metrics have, each a pattern and its check, as in `claims`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from claims import NAME, Check, V, any_of, ends_of_score, is_step, lasts_of_score, scored_key
from claims_of_causes import STEP
from raw_log import RawLog


def in_evaluations(raw: RawLog, match: re.Match[str]) -> str:
    """ "held-out NAME is A to B in all N evaluations, the first at step S": the least, the largest, and where."""
    key = scored_key(raw, match["name"]) or ""
    values = raw.values(key)
    wrong = any_of(match["a"], [min(values)], 3) or any_of(match["b"], [max(values)], 3)
    return wrong or any_of(match["n"], [len(values)], 9) or is_step(raw, match["step"])


def never_above(raw: RawLog, match: re.Match[str]) -> str:
    return any_of(match["b"], [max(raw.values(scored_key(raw, match["name"]) or ""))], 3)


def rose_beside(raw: RawLog, match: re.Match[str]) -> str:
    """ "while NAME rose from A to B": levels of another held-out score."""
    key = scored_key(raw, match["name"]) or ""
    return any_of(match["a"], ends_of_score(raw, key)[:1], 2) or any_of(match["b"], lasts_of_score(raw, key), 2)


def at_first(raw: RawLog, match: re.Match[str]) -> str:
    return any_of(match["v"], [raw.first(raw.names["reward"])], 2)


OF_SHAPES: Sequence[tuple[str, Check]] = (
    (
        rf"held-out (?P<name>{NAME}) is (?P<a>{V}) to (?P<b>{V}) in all (?P<n>\d+) evaluations, the first at step "
        rf"{STEP}",
        in_evaluations,
    ),
    (rf"held-out (?P<name>{NAME})(?:, largest:| never above) (?P<b>{V})", never_above),
    (rf"where the reward is as at first, (?P<v>{V})", at_first),
    (rf"while (?P<name>{NAME}) rose from (?P<a>{V}) to (?P<b>{V})", rose_beside),
)
"""Patterns and checks."""
