"""The claims that a screen of `diagnose` makes of a log, each a pattern and the check of its groups.

A check returns what is wrong, or nothing. Numbers agree if the value, rounded to the digits that are shown, is the one
that is shown.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Callable, Sequence

from raw_log import LATE, RawLog, mean_over, window_rows

Check = Callable[[RawLog, re.Match[str]], str]

NUMBER = r"-?(?:\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?|∞)"
NAME = r"[\w/@.…+:-]+"
SINCE = r"(?: since step (?P<since>[\d,]+))?"
POSITIVE = ("entropy", "kl", "kl_old", "length", "grad_norm")
"""Metrics whose noise is a factor: their levels are geometric means."""


def value_of(text: str) -> float:
    """A number as it is written in a sentence."""
    return float(text.replace(",", "").rstrip("%"))


def agrees(text: str, value: float, digits: int) -> bool:
    """Whether a number is shown to `digits` significant digits, or more where more are written; a share in per cent."""
    if text.endswith("%"):
        decimals = len(text.rstrip("%").partition(".")[2])
        return abs(value_of(text) - 100 * value) <= 0.5 * 10.0**-decimals + 1e-6
    if not math.isfinite(value):
        return False
    written = len(re.sub(r"e.*|[^\d]", "", text).lstrip("0").rstrip("0")) if "." in text else 0
    size = math.floor(math.log10(abs(value))) if value else -20
    unit = 10.0 ** (size - max(digits, written) + 1)
    return abs(value_of(text) - value) <= 0.5 * min(unit, 1 if abs(value) >= 1000 else unit) * (1 + 1e-6) + 1e-12


def key_of(raw: RawLog, name: str, scored: bool = False) -> str | None:
    """The key that a sentence means by a name, which may be cut at its beginning."""
    names = {**{key: key for key in raw.columns}, **raw.names, **({} if not scored else raw.scored)}
    lower = {known.lower(): key for known, key in names.items()}
    if name.lower() in lower:
        return lower[name.lower()]
    if name.startswith("…"):
        return next((key for known, key in names.items() if known.endswith(name[1:].lstrip("/"))), None)
    return None


def level(raw: RawLog, key: str, low: float, high: float) -> list[float]:
    """What may be said to be the level of a column over a part of the run: its mean, or the mean of its logarithms."""
    values = raw.values(key)
    rows = window_rows(len(values), low, high) if values else range(0)
    part = [values[i] for i in rows]
    found = [mean_over(values, low, high)]
    names = {name for name, known in raw.names.items() if known == key}
    positive = [value for value in values if value > 0]
    if names & set(POSITIVE) and len(positive) >= 0.95 * len(values) and part:
        kept = window_rows(len(positive), low, high)
        found.append(math.exp(statistics.fmean(math.log(positive[i]) for i in kept)))
    return found


def any_of(text: str, values: Sequence[float], digits: int) -> str:
    return "" if any(agrees(text, value, digits) for value in values) else f"not {text} but {values}"


def tail_of(raw: RawLog, key: str, step: int) -> list[float]:
    """Means of the last rows that begin behind a sudden fall at a step: three rows at least, a fifth at most."""
    values, steps = raw.values(key), [at for at, _ in raw.finite(key)]
    n = len(values)
    first = next((i for i, at in enumerate(steps) if at >= step), 0)
    return [statistics.fmean(values[i:]) for i in range(max(first, int(0.8 * n) - 1), n - 2)]


def is_step(raw: RawLog, text: str | None) -> str:
    """Whether a date is a step of the log."""
    steps = set(raw.steps) | {step for series in raw.columns.values() for step, _ in series}
    return "" if text is None or int(value_of(text)) in steps else f"step {text} is not in the log"


def outcome(raw: RawLog, match: re.Match[str]) -> str:
    """ "held-out X a → b in N steps": both levels and the length."""
    held, name = bool(match["held"]), match["name"]
    key = scored_key(raw, name) if held else key_of(raw, name)
    if key is None:
        return f"no column {name}"
    a, b, digits = match["a"], match["b"], 2
    firsts = [ends_of_score(raw, key)[0] if held else raw.first(key)]
    lasts = lasts_of_score(raw, key) if held else [raw.last(key)]
    if match["at"]:
        lasts += tail_of(raw, key, int(value_of(match["at"])))
        firsts.append(raw.best(key)[0])
        firsts += before(raw, key, int(value_of(match["at"])))
    if match["down"]:
        bests = bests_of_score(raw, key) if held else [raw.best(key)]
        firsts, middle = [top for top, _ in bests], min(step for _, step in bests)
        steps = [step for step, _ in raw.columns[key]]
        began = int(value_of(match["down"]))  # the middle of the best part, or the date of the fall
        if not middle <= began < steps[-1] or began not in {
            step for series in raw.columns.values() for step, _ in series
        }:
            return f"the best was at step {middle}"
    problem = any_of(a, firsts, digits) or any_of(b, lasts, digits)
    if match["steps"] and not problem:
        problem = length(raw, match["steps"])
    return problem


def before(raw: RawLog, key: str, step: int) -> list[float]:
    """Mean of the fifth of the run that ends before a sudden fall about a step."""
    values, steps = raw.values(key), [at for at, _ in raw.finite(key)]
    n = len(values)
    last = next((i for i, at in enumerate(steps) if at >= step), n)
    return [mean_over(values, max(end / n - 0.2, 0.0), end / n) for end in range(max(last - 2, 1), last + 3)]


def length(raw: RawLog, text: str) -> str:
    """The number of steps of a run: a row may count as one step or as those since the row before."""
    gaps = sorted(b - a for a, b in zip(raw.steps, raw.steps[1:], strict=False)) or [1]
    may = {raw.length, raw.steps[-1] - raw.steps[0] + 1, raw.steps[-1] - raw.steps[0] + gaps[len(gaps) // 2]}
    return "" if int(value_of(text)) in may else f"not {text} steps but {sorted(may)}"


def scored_key(raw: RawLog, name: str) -> str | None:
    """The key of a held-out score."""
    for known, key in raw.scored.items():
        said = name.removeprefix("…").lstrip("/")
        if key in raw.columns and (known.endswith(said) or said == "accuracy"):
            return key
    return None


def ends_of_score(raw: RawLog, key: str) -> tuple[float, float]:
    """The first evaluation, and the mean of the last fifth of them."""
    values = raw.values(key)
    return values[0], mean_over(values, 1 - LATE, 1.0, least=1)


def falls_of_score(values: list[float]) -> list[int]:
    """Where within the last fifth of evaluations they fall, two or more being behind it, all below half of the way.

    By three times what neighbouring evaluations before it differ by, in the middle.
    """
    n, found = len(values), []
    late = n - max(round(n * LATE), 1)
    for begin in range(late + 1, n - 1):
        apart = statistics.median(abs(b - a) for a, b in itertools.pairwise(values[:begin]))
        before, after = statistics.fmean(values[max(begin - 5, 0) : begin]), statistics.fmean(values[begin:])
        at_once = values[begin - 1] - values[begin] >= 0.6 * (before - after)
        if at_once and 2 * max(values[begin:]) <= before + after and before - after > 3 * apart:
            found.append(begin)
    return found


def lasts_of_score(raw: RawLog, key: str) -> list[float]:
    """What the last level of a score may be: that of the last fifth, or of what lies behind a fall in it."""
    values = raw.values(key)
    return [ends_of_score(raw, key)[1]] + [statistics.fmean(values[i:]) for i in falls_of_score(values)]


def bests_of_score(raw: RawLog, key: str) -> list[tuple[float, int]]:
    """What the best level of a score may be, with the step in its middle: the best mean of a fifth of the evaluations,
    of what lies before a fall in the last one, or the last level."""
    values, steps = raw.values(key), [step for step, _ in raw.finite(key)]
    n = len(values)
    fifths = [(k / 10, k / 10 + 0.2) for k in range(7)]
    bests = []
    for begin in [0, *falls_of_score(values)]:
        parts = [*fifths, (1 - LATE, begin / n)] if begin else fifths
        part = max(parts, key=lambda part: mean_over(values, *part, least=1))
        top = mean_over(values, *part, least=1)
        last = statistics.fmean(values[begin:]) if begin else ends_of_score(raw, key)[1]
        middle = steps[min(int(sum(part) / 2 * n), n - 1)]
        bests.append((top, middle) if top > last else (last, steps[-1]))
    return bests


def clause(raw: RawLog, match: re.Match[str]) -> str:
    """ "Training reward rose from a to b": the levels of the sentence on the outcome, each by its place in it."""
    groups = match.groupdict()
    held = "held" in groups and bool(groups["held"])
    name = "reward" if match["name"].lower() == "training reward" else match["name"]
    key = scored_key(raw, re.sub("^[Hh]eld-out ", "", name)) if held else key_of(raw, name)
    if key is None:
        return f"no column {match['name']}"
    first = ends_of_score(raw, key)[0] if held else raw.first(key)
    lasts = lasts_of_score(raw, key) if held else [raw.last(key)]
    bests = bests_of_score(raw, key) if held else [raw.best(key)]
    tops, middles = [top for top, _ in bests], [step for _, step in bests]
    around = groups.get("around")
    if around and not held:
        lasts += tail_of(raw, key, int(value_of(around)))
        tops += [t for s in raw.steps for t in ([] if s < int(value_of(around)) else before(raw, key, s))]
    problem = ""
    for group, values in (("first", [first]), ("best", tops), ("last", lasts)):
        if groups.get(group):
            problem = problem or any_of(groups[group], values, 3)
    if around and not problem and int(value_of(around)) not in middles and held:
        problem = f"the best was around step {middles}"
    if groups.get("steps"):
        problem = problem or length(raw, groups["steps"])
    return problem


OUTCOME = (
    rf"(?P<held>held-out )?(?P<name>{NAME}) (?P<a>{NUMBER}%?) → (?P<b>{NUMBER}%?)"
    r"(?: in (?P<steps>[\d,]+) steps?\b| at step (?P<at>[\d,]+)|, down since step (?P<down>[\d,]+))"
)
SUBJECT = r"^(?P<name>(?P<held>[Hh]eld-out )\S+|[Tt]raining reward|[A-Za-z]\S*)"
V = rf"{NUMBER}%?"

OF_OUTCOME: Sequence[tuple[str, Check]] = (
    (rf"{SUBJECT} fell from (?P<best>{V}) \(around step (?P<around>[\d,]+)\) to (?P<last>{V})", clause),
    (
        rf"{SUBJECT} rose from (?P<first>{V}) to (?P<best>{V}) around step (?P<around>[\d,]+) and then"
        rf" fell to (?P<last>{V})",
        clause,
    ),
    (
        rf"{SUBJECT} went from (?P<first>{V}) to (?P<best>{V}) around step (?P<around>[\d,]+) and"
        rf" ended at (?P<last>{V})",
        clause,
    ),
    (
        rf"{SUBJECT} (?:rose|went|fell) from (?P<first>{V}) to (?P<last>{V})(?: over (?P<steps>[\d,]+)"
        rf" steps?)?(?=,| and|\.|;)"
        rf"(?:[^.;]*; its best was (?P<best>{V}) around step (?P<around>[\d,]+))?",
        clause,
    ),
    (
        rf"{SUBJECT} stayed at (?P<last>{V}) over (?P<steps>[\d,]+) steps?(?:, no gain shown over"
        rf" (?P<first>{V}) at first)?",
        clause,
    ),
    (rf"{SUBJECT} was near the top of its range from the start and ended at (?P<last>{V})", clause),
    (rf"{SUBJECT} was (?P<last>{V}) in every row over (?P<steps>[\d,]+) steps?", clause),
    (OUTCOME, outcome),
)
"""Pattern -> check, the longest first; `claims_of_rules` has those of single rules."""
