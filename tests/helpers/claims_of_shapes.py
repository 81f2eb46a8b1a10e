"""The claims of shapes in time that metrics have, each a pattern and its check, as in `claims`."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from claims import NAME, Check, V, any_of, ends_of_score, is_step, key_of, lasts_of_score, scored_key, value_of
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


def _about(raw: RawLog, key: str, step: int, rows: int, level: Callable[[Sequence[float]], float]) -> list[float]:
    """Levels of so many rows before a step, and of as many from it on."""
    series = raw.finite(key)
    at = next(k for k, (there, _) in enumerate(series) if there >= step)
    return [
        level([value for _, value in series[at - rows : at]]),
        level([value for _, value in series[at : at + rows]]),
    ]


def rises_again(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY, which had fallen, rises from A to B within 15 rows of step S, and the mean reward of 25 rows goes from C
    before it to D behind it": the rates, and the rewards up to the step and behind it."""
    rates, step = raw.finite(key_of(raw, match["name"]) or ""), int(value_of(match["step"]))
    behind = [rate for there, rate in rates if there >= step][:15]
    rewards = _about(raw, raw.names["reward"], step + 1, 25, statistics.fmean)
    return (
        any_of(match["a"], behind[:1], 3) or any_of(match["b"], [max(behind)], 3)
        or any_of(match["c"], rewards[:1], 2) or any_of(match["d"], rewards[1:], 2)
    )  # fmt: skip


def warms_up(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY rises from A in the first row to B in the last of N (C in the middle)"."""
    rates = raw.values(key_of(raw, match["name"]) or "")
    return (
        any_of(match["a"], rates[:1], 3) or any_of(match["b"], rates[-1:], 3)
        or any_of(match["c"], [rates[len(rates) // 2]], 3) or ("" if int(match["n"]) == len(rates) else "rows")
    )  # fmt: skip


def _jumps(raw: RawLog, match: re.Match[str]) -> str:
    """ "the reward rises from A to B … at step S": medians of twelve rows on either side."""
    levels = _about(raw, raw.names["reward"], int(value_of(match["step"])), 12, statistics.median)
    return any_of(match["a"], levels[:1], 2) or any_of(match["b"], levels[1:], 2)


def goes_back(raw: RawLog, match: re.Match[str]) -> str:
    """ "epoch goes back from A to B at step S(…; the reward rises from C to D there)"."""
    epochs, step = raw.finite("epoch"), int(value_of(match["step"]))
    at = next(k for k, (there, _) in enumerate(epochs) if there == step)
    return any_of(match["a"], [epochs[at - 1][1]], 3) or any_of(match["b"], [epochs[at][1]], 3)


def every(raw: RawLog, match: re.Match[str]) -> str:
    """ "they come every N rows": rows without a gradient."""
    rows = [k for k, norm in enumerate(raw.values(raw.names["grad_norm"])) if norm == 0]
    return "" if {b - a for a, b in pairwise(rows)} == {int(match["n"])} else "at another interval"


def with_the_spikes(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is B in their rows and A in others": medians in rows of norms over three times their median, and else."""
    norms, sizes = raw.values(raw.names["grad_norm"]), raw.values(key_of(raw, match["name"]) or "")
    usual = statistics.median(norms)
    inside, outside = (
        [v for v, norm in zip(sizes, norms, strict=True) if (norm > 3 * usual) == far] for far in (True, False)
    )
    return any_of(match["b"], [statistics.median(inside)], 1) or any_of(match["a"], [statistics.median(outside)], 1)


def pinned(raw: RawLog, match: re.Match[str]) -> str:
    values = raw.values(key_of(raw, match["name"]) or "")
    return any_of(match["v"], [min(values)], 4) or any_of(match["v"], [max(values)], 4)


def counted(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY A → B rollouts of a step": its first and last level."""
    key = key_of(raw, match["name"]) or ""
    return any_of(match["a"], [raw.first(key)], 2) or any_of(match["b"], [raw.last(key)], 2)


def differ_by(raw: RawLog, match: re.Match[str]) -> str:
    """ "rewards of a group that differ do so by A, about a mean of B": median spread over the share of live groups."""
    spread, dead = (statistics.median(raw.values(raw.names[name])) for name in ("reward_std", "dead_fraction"))
    wrong = any_of(match["a"] or match["a2"], [spread / (1 - dead)], 2)
    return wrong or ("" if match["v"] is None else any_of(match["v"], [raw.last(raw.names["reward"])], 2))


def clipped_at_first(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is A in the N rows with up to 0.3 × the largest learning rate and B in those at full size": medians."""
    rates, shares = raw.values(raw.names["lr"]), raw.values(key_of(raw, match["name"]) or "")
    full = next(k for k, rate in enumerate(rates) if rate >= 0.8 * max(rates))
    warm = [shares[k] for k in range(full) if rates[k] <= 0.3 * max(rates)]
    said = match.groupdict()
    wrong = any_of(said["a"], [statistics.median(warm)], 2)
    if wrong or not said.get("b"):
        return wrong
    wrong = any_of(said["b"], [statistics.median(shares[full : full + 30])], 2)
    return wrong or ("" if int(said["n"]) == len(warm) else f"{len(warm)} rows")


def on_end(raw: RawLog, match: re.Match[str]) -> str:
    """ "the mean reward is exactly V … in all N rows from step A to B": one reward without a spread there."""
    said = match.groupdict()
    spread_key = next(key for name, key in raw.names.items() if name.startswith("reward_std"))
    rows, spreads = raw.finite(raw.names["reward"]), raw.values(spread_key)
    alike = [step for (step, value), spread in zip(rows, spreads, strict=True)
             if spread < 1e-6 and not any_of(said["v"], [value], 3)]  # fmt: skip
    wrong = any_of(said["n"], [len(alike)], 9) or any_of(said["step"], alike[:1], 9)
    return wrong or ("" if said.get("b") is None else any_of(said["b"], alike[-1:], 9))


def always_full(raw: RawLog, match: re.Match[str]) -> str:
    """ "held-out NAME is 100% in all N evaluations": each of them is 1."""
    values = raw.values(scored_key(raw, match["name"]) or "")
    return any_of(match["n"], [len(values)], 9) or ("" if {*values} == {1.0} else "not full")


def at_both_ends(raw: RawLog, match: re.Match[str]) -> str:
    reward = raw.names["reward"]
    return any_of(match["a"], [raw.first(reward)], 2) or any_of(match["b"], [raw.last(reward)], 2)


OF_SHAPES: Sequence[tuple[str, Check]] = (
    (
        rf"(?P<name>{NAME}), which had fallen, rises from (?P<a>{V}) to (?P<b>{V}) within 15 rows of step {STEP}, and "
        rf"the mean reward of 25 rows goes from (?P<c>{V}) before it to (?P<d>{V}) behind it",
        rises_again,
    ),
    (
        rf"(?P<name>{NAME}) rises from (?P<a>{V}) in the first row to (?P<b>{V}) in the last of (?P<n>\d+) "
        rf"\((?P<c>{V}) in the middle\)",
        warms_up,
    ),
    (rf"the reward rises from (?P<a>{V}) to (?P<b>{V})(?= from one row to the next at step {STEP})", _jumps),
    (rf"reward (?P<a>{V}) → (?P<b>{V}) at step {STEP} alone", _jumps),
    (rf"epoch goes back from (?P<a>{V}) to (?P<b>{V}) at step {STEP}", goes_back),
    (rf"epoch (?P<a>{V}) → (?P<b>{V}) at step {STEP}", goes_back),
    (rf"; the reward rises from {V} to {V} there", lambda raw, match: ""),
    (rf"(?P<name>{NAME}) is (?P<b>{V}) in their rows and (?P<a>{V}) in others", with_the_spikes),
    (rf"(?P<name>{NAME}) stays at (?P<v>{V}) tokens while the mean grows from {V} to {V}", pinned),
    (rf"(?P<name>{NAME}) (?P<a>{V}) → (?P<b>{V}) rollouts(?: of a step| a step)", counted),
    (
        rf"rewards of a group that differ do so by (?P<a>{V}), about a mean of (?P<v>{V})|"
        rf"rewards differ by (?P<a2>{V})",
        differ_by,
    ),
    (
        rf"(?P<name>{NAME}) is (?P<a>{V}) in the (?P<n>\d+) rows of the warm-up with up to 0\.3 × the largest learning "
        rf"rate and (?P<b>{V}) in the \d+ rows from 0\.8 × on",
        clipped_at_first,
    ),
    (rf"(?P<name>{NAME}) is (?P<a>{V}) from the first rows on", clipped_at_first),
    (r"they come every (?P<n>\d+) rows", every),
    (
        rf"held-out (?P<name>{NAME}) is (?P<a>{V}) to (?P<b>{V}) in all (?P<n>\d+) evaluations, the first at step "
        rf"{STEP}",
        in_evaluations,
    ),
    (rf"held-out (?P<name>{NAME})(?:, largest:| never above) (?P<b>{V})", never_above),
    (rf"where the reward is as at first, (?P<v>{V})", at_first),
    (
        rf"the mean reward is exactly (?P<v>{V}) and rewards of a group do not differ in all (?P<n>\d+) rows from step "
        rf"{STEP} to (?P<b>{V})",
        on_end,
    ),
    (rf"one reward of (?P<v>{V}) in (?P<n>\d+) rows from step {STEP} on", on_end),
    (rf"held-out (?P<name>{NAME}) is 100% in all (?P<n>\d+) evaluations(?:, the first at step [\d,]+)?", always_full),
    (rf"rollouts are paid (?P<a>{V}) at first and (?P<b>{V}) at last", at_both_ends),
    (rf"while (?P<name>{NAME}) rose from (?P<a>{V}) to (?P<b>{V})", rose_beside),
)
"""Patterns and checks."""

SHAPES_CONSTANTS: Sequence[tuple[str, str]] = (
    (
        r"(?:learning_rate|lr), (?:at step \d+|largest of the rows behind|last row|rows? before): [\d.e-]+",
        "told before",
    ),
    (r"reward, 12 rows (?:before|from there): [\d.]+|epoch of the row before: [\d.]+", "told before"),
    (
        r"mean reward and its gradient [\d.]+ × as much as at first|last over first: [\d.]+ \(counts up to 0\.5\)",
        "of those",
    ),
    (r"limit in tokens: [\d,]+", "told before"),
    (r"median of the warm-up: [\d.]+ \(counts from 0\.04\)|far\s+below 0\.2 \(GSPO\)", "told before, words of advice"),
    (r"warm-up 10 to 50 steps", "words of advice"),
    (r"rows on end of one reward: \d+ \(counts from 5\)|held-out [\w/@.-]+, least: 1(?:\.0)?", "told before"),
)
"""Numbers that are no statement about the log, and why."""
