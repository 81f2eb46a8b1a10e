"""The claims of the ladder of a flat run, each a pattern and its check, as in `claims`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from claims import NAME, NUMBER, Check, V, agrees, any_of, ends_of_score, key_of, length, level, value_of
from claims_of_rules import largest_rate
from raw_log import LATE, RawLog

N = r"(?P<n>\d+(?:,\d{3})*)"


def stands_still(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is V nats in the last fifth of N steps": the last level and the steps."""
    key = key_of(raw, match["name"])
    if key is None:
        return f"no column {match['name']}"
    problem = any_of(match["v"], level(raw, key, 1 - LATE, 1.0), 2)
    return problem or length(raw, match["n"])


def dead_by_formula(raw: RawLog, match: re.Match[str]) -> str:
    """ "at least P of groups of G have equal rewards at a success rate of p": p by some share, and p^G + (1 − p)^G."""
    lasts = [raw.last(key) for key in raw.columns if raw.values(key)]
    p = next((value for value in lasts if 0 <= value <= 1 and agrees(match["p"], value, 2)), math.nan)
    share = p ** int(match["n"]) + (1 - p) ** int(match["n"])
    return "" if agrees(match["share"], share, 2) else f"not {match['share']} but {share}"


def success_rate(raw: RawLog, match: re.Match[str]) -> str:
    """A success rate in a command: the last level of some column."""
    return any_of(match["p"], [raw.last(key) for key in raw.columns if raw.values(key)] or [math.nan], 2)


def smallest_gain(raw: RawLog, match: re.Match[str]) -> str:
    """ "a gain below X would hardly have been seen (the change is D ± E)": X is 2.5 E, and D joins two levels."""
    if not 0.93 < value_of(match["v"]) / (2.5 * value_of(match["se"])) < 1.07:
        return f"{match['v']} is not 2.5 × {match['se']}"
    keys = [key for key in raw.columns if raw.values(key)]
    ends = [(raw.first(key), raw.last(key)) for key in keys] + [ends_of_score(raw, key) for key in keys]
    changes = [last - first for first, last in ends]
    return any_of(match["d"], changes, 1) or length(raw, match["n"])


def small_gain(raw: RawLog, match: re.Match[str]) -> str:
    """ "a gain below X would hardly be seen": no more than ten times the spread of some column."""
    spans = [max(values) - min(values) for key in raw.columns if (values := raw.values(key))]
    return "" if 0 < value_of(match["v"]) < 10 * max(spans) else f"a gain of {match['v']} is not of this log"


OF_LADDER: Sequence[tuple[str, Check]] = (
    (rf"(?P<name>{NAME}) is (?P<v>{V}) nats in the last fifth of {N} steps", stands_still),
    (
        rf"[Tt]he largest learning rate is (?P<rate>{V}), too little for [^.]*? take [\de-]+(?: or (?:so|more))?",
        largest_rate,
    ),
    (
        rf"(?P<name>{NAME}) rose from (?P<a>{V}) to (?P<b>{V}), beyond noise",
        lambda raw, m: (
            any_of(m["a"], [raw.first(key_of(raw, m["name"]) or "")], 2)
            or any_of(m["b"], [raw.last(key_of(raw, m["name"]) or "")], 2)
        ),
    ),
    (rf"at a learning rate of up to (?P<rate>{V}): the policy hardly moved", largest_rate),
    (rf"the learning rate reaches (?P<rate>{V}), which is no low one", largest_rate),
    (
        r"coefficient of the KL with 0\.001 to 0\.04, which is usual: one of 1 or more|give adapters \(LoRA\) 1e-5",
        lambda raw, match: "",
    ),
    (rf"a learning rate of (?P<rate>{V}) for (?:adapters|all weights)", largest_rate),
    (r"raise the learning rate to 1e-[56]", lambda raw, match: ""),
    (rf"at least (?P<share>{V}) of groups of {N} have equal rewards at a success rate of (?P<p>{V})", dead_by_formula),
    (rf"given a success rate of (?P<p>{V})", success_rate),
    (
        rf"[Aa] gain below (?P<v>{V}) would hardly have been seen in {N} steps \(the change is"
        rf" \+?(?P<d>{NUMBER}) ± (?P<se>{NUMBER})\)",
        smallest_gain,
    ),
    (rf"a gain below (?P<v>{V}) would hardly be seen", small_gain),
)
"""Pattern -> check."""
