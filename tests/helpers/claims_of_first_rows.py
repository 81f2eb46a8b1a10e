"""Claims of what the first rows of a log say exactly (`signs.first_rows`), each a pattern and its check."""

from __future__ import annotations

import re
from collections.abc import Sequence

from claims import NAME, Check, V, any_of, key_of, value_of
from raw_log import RawLog

ALL = r"(?:all (?P<n>\d+) (?:rows|steps)|the one row that is logged)"


def _all_rows(raw: RawLog, match: re.Match[str], key: str | None) -> str:
    """That the column has as many rows as are said."""
    rows = len(raw.values(key or ""))
    said = int(match["n"] or 1)
    return "" if said == rows else f"not {said} but {rows} rows"


def no_gradient(raw: RawLog, match: re.Match[str]) -> str:
    """ "X is 0 in all N rows, and so is the KL, although … differ": no value is another, and how rewards differ."""
    key = key_of(raw, match["name"])
    wrong = _all_rows(raw, match, key) or ("a gradient" if any(raw.values(key or "")) else "")
    if match["kl"]:
        wrong = wrong or ("a KL" if any(raw.values(raw.names["kl"])) else "")
    if match["live"]:
        dead = raw.values(raw.names["dead_fraction"])
        return wrong or any_of(match["live"], [1 - sum(dead) / len(dead)], 2)
    spread = raw.values(key_of(raw, match["spread"]) or "")
    return wrong or any_of(match["mean"], [sum(spread) / len(spread)], 2)


def nearly_all_cut(raw: RawLog, match: re.Match[str]) -> str:
    """ "at least P% of completions are cut in all N rows": in each of them."""
    key = raw.names["truncated"]
    low = 100 * min(raw.values(key)) < value_of(match["share"])
    return _all_rows(raw, match, key) or ("a row has fewer" if low else "")


def all_cut(raw: RawLog, match: re.Match[str]) -> str:
    """ "every completion is cut in all N rows"."""
    key = raw.names["truncated"]
    return _all_rows(raw, match, key) or ("not in each" if min(raw.values(key)) < 1 else "")


def tokens(raw: RawLog, match: re.Match[str]) -> str:
    """ "after V tokens": all of them."""
    return any_of(match["v"], [min(raw.values(raw.names["length"]))], 2)


def nothing_paid(raw: RawLog, match: re.Match[str]) -> str:
    """ "the reward is V and X 0 in all N rows"."""
    reward = raw.values(raw.names["reward"])
    norm = raw.values(key_of(raw, match["name"]) or "")
    other = len(set(reward)) > 1 or any(norm)
    return _all_rows(raw, match, raw.names["reward"]) or any_of(match["v"], reward[:1], 2) or ("not in each" * other)


def each_of(raw: RawLog, match: re.Match[str]) -> str:
    """ "rewards within every group are equal in all N rows, each of V"."""
    reward = raw.values(raw.names["reward"])
    return any_of(match["v"], reward[:1], 2) if len(set(reward)) == 1 else "rewards differ"


def least_cut(raw: RawLog, match: re.Match[str]) -> str:
    """The least share of cut completions."""
    return any_of(match["v"], [min(raw.values(raw.names["truncated"]))], 2)


def never_a_number(raw: RawLog, match: re.Match[str]) -> str:
    """ "X is NaN in all N rows": it has no number."""
    return "a number" if raw.values(key_of(raw, match["name"]) or match["name"]) else ""


OF_FIRST_ROWS: Sequence[tuple[str, Check]] = (
    (
        rf"(?P<name>{NAME}) is 0 in {ALL}(?P<kl>, and so is the KL)?, although (?:(?P<live>{V}) of groups have"
        rf" different rewards|rewards vary(?: within groups)? \((?P<spread>{NAME}) (?P<mean>{V})\))",
        no_gradient,
    ),
    (r"largest gradient norm: 0", lambda raw, m: "one is not 0" if any(raw.values(raw.names["grad_norm"])) else ""),
    (
        rf"every completion is cut at the token limit in {ALL}, after (?P<v>{V}) tokens",
        lambda raw, m: all_cut(raw, m) or tokens(raw, m),
    ),
    (r"every completion is cut at the token limit in (?P<n>)the one row that is logged", all_cut),
    (rf"at least (?P<share>\d+%) of completions are cut at the token limit in {ALL}(?!,)", nearly_all_cut),
    (
        rf"at least (?P<share>\d+%) of completions are cut at the token limit in {ALL}, after (?P<v>{V}) tokens",
        lambda raw, m: nearly_all_cut(raw, m) or tokens(raw, m),
    ),
    (
        r"rows of one value without a gradient: (?P<n>\d+)",
        lambda raw, m: (
            _all_rows(raw, m, raw.names["reward"]) or ("a gradient" * any(raw.values(raw.names["grad_norm"])))
        ),
    ),
    (rf"least share of cut completions: (?P<v>{V})", least_cut),
    (
        r"least share of dead groups: 1",
        lambda raw, m: "fewer" if min(raw.values(raw.names["dead_fraction"])) < 1 else "",
    ),
    (rf"rewards within every group are equal in {ALL}, each of (?P<v>{V})", each_of),
    (rf"the reward is (?P<v>{V}) and (?P<name>{NAME}) 0 in {ALL}", nothing_paid),
    (rf"(?P<name>{NAME}) is NaN in all \d+ rows, and is treated as not measured", never_a_number),
)
