"""The claims of kinds that metrics show together, each a pattern and its check, as in `claims`."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence

from claims import NAME, Check, V, any_of, is_step, key_of, value_of
from claims_of_causes import STEP, column
from raw_log import RawLog, mean_over


def _fitted(raw: RawLog, key: str) -> float:
    """The multiple of a column that the loss is by least squares."""
    loss, other = dict(raw.finite(raw.names["loss"])), dict(raw.finite(key))
    pairs = [(loss[step], value) for step, value in other.items() if value > 0 and step in loss]
    return sum(y * x for y, x in pairs) / sum(x * x for _, x in pairs)


def of_the_loss(raw: RawLog, match: re.Match[str]) -> str:
    """ "LOSS is V × KEY but for noise(, which N rows show)"; the coefficient that is fitted."""
    said = match.groupdict()
    key = key_of(raw, said["x"]) if said.get("x") else raw.names["kl"]
    wrong = any_of(said["v"], [_fitted(raw, key or "")], 3)
    return wrong or ("" if not said.get("n") or int(said["n"]) <= len(raw.values(raw.names["loss"])) else "more rows")


def goes_on_from(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY goes on from A to B nats …; its penalty, C × B = P": levels of the middle fifth and of the last."""
    values, said = column(raw, match), match.groupdict()
    levels = [mean_over(values, 0.4, 0.6), mean_over(values, 0.8, 1.0)]
    product = value_of(said["c"]) * value_of(said["b"])
    return (
        any_of(said["a"], levels[:1], 3) or any_of(said["b"], levels[1:], 3)
        or ("" if abs(product / value_of(said["p"]) - 1) < 0.02 else f"{product}")
        or any_of(said["c"], [_fitted(raw, raw.names["kl"])], 2)
    )  # fmt: skip


def _about(raw: RawLog, key: str, step: int, rows: int) -> list[float]:
    """Medians of the sizes of so many steps before a step, and of as many from it on."""
    series = raw.finite(key)
    parts = ([abs(v) for at, v in series if step - rows <= at < step],
             [abs(v) for at, v in series if step <= at < step + rows])  # fmt: skip
    return [statistics.median(part) for part in parts]


def scaled_since(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY goes from A to B at step S (medians of up to 60 rows)"."""
    levels = _about(raw, key_of(raw, match["name"]) or "", int(value_of(match["step"])), 60)
    return any_of(match["a"], levels[:1], 2) or any_of(match["b"], levels[1:], 2)


def falls_at_an_interval(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY falls at once at K steps, every E rows from step S on (medians before and after: A and B nats)"."""
    values, said = column(raw, match), match.groupdict()
    rows = [k for k in range(5, len(values)) if 2 * values[k] < values[k - 1]]
    if said.get("k") and int(said["k"]) != len(rows):
        return f"{len(rows)} falls"
    if said.get("every") and int(said["every"]) != rows[1] - rows[0]:
        return f"every {rows[1] - rows[0]} rows"
    if not said.get("a"):
        return ""
    steps = [step for step, _ in raw.finite(key_of(raw, said["name"]) or "")]
    levels = [statistics.median(values[row - 1] for row in rows), statistics.median(values[row] for row in rows)]
    return (
        any_of(said["a"], levels[:1], 2) or any_of(said["b"], levels[1:], 2)
        or ("" if steps[rows[0]] == int(value_of(said["step"])) else f"from step {steps[rows[0]]}")
    )  # fmt: skip


def of_first_row(raw: RawLog, match: re.Match[str]) -> str:
    """ "the reward goes from A to B and KEY from C to D … between the first row and rows 6 to 15": their medians."""
    said = match.groupdict()
    reward = raw.values(raw.names["reward"])
    wrong = any_of(said["a"], reward[:1], 2) or any_of(said["b"], [statistics.median(reward[5:15])], 2)
    if wrong or not said.get("c"):
        return wrong
    values = column(raw, match)
    wrong = any_of(said["c"], values[:1], 3) or any_of(said["d"], [statistics.median(values[5:15])], 3)
    return wrong or any_of(said["rate"], raw.values(raw.names["lr"])[:1], 2)


def cut_and_unpaid(raw: RawLog, match: re.Match[str]) -> str:
    """ "P of completions or more are cut in every row, and the mean reward is never above V"."""
    least, most = min(raw.values(raw.names["truncated"])), max(raw.values(raw.names["reward"]))
    return any_of(match["p"], [least], 2) or any_of(match["v"], [most], 3)


def from_row_to_row(raw: RawLog, match: re.Match[str]) -> str:
    """ "the mean reward is A to B from row to row": the least and the largest."""
    reward = raw.values(raw.names["reward"])
    return any_of(match["a"], [min(reward)], 2) or any_of(match["b"], [max(reward)], 2)


def in_all_rows(raw: RawLog, match: re.Match[str]) -> str:
    return "" if int(match["n"]) == len(raw.values(raw.names["reward"])) else "another number of rows"


def in_all_evaluations(raw: RawLog, match: re.Match[str]) -> str:
    """ "held-out NAME is V in all N evaluations"."""
    values = raw.values(raw.scored[match["name"]])
    wrong = any_of(match["v"], [min(values)], 3) or any_of(match["v"], [max(values)], 3)
    return wrong or any_of(match["n"], [len(values)], 9)


def turns(raw: RawLog, match: re.Match[str]) -> str:
    """ "the policy went from A to B turns per rollout"."""
    values = raw.values("agent/turns")
    return any_of(match["a"], [mean_over(values, 0.0, 0.15)], 2) or any_of(match["b"], [mean_over(values, 0.8, 1.0)], 2)


def drawn(raw: RawLog, match: re.Match[str]) -> str:
    return any_of(match["v"], [max(raw.values("epoch"))], 2)


def before_infinity(raw: RawLog, match: re.Match[str]) -> str:
    """ "V nats at most in the N rows before" the KL was infinite."""
    column = [value for _, value in raw.columns[raw.names["kl"]]]
    place = next(k for k, value in enumerate(column) if value in (math.inf, -math.inf))
    return any_of(match["v"], [max(column[place - int(match["n"]) : place])], 3)


OF_KINDS: Sequence[tuple[str, Check]] = (
    (rf"and was (?P<v>{V}) nats at most in the (?P<n>\d+) rows before", before_infinity),
    (
        rf"(?:the )?{NAME} is (?P<v>{V}) × (?P<x>{NAME}) but for noise(?:, which (?P<n>\d+) rows show)?"
        r"(?:, where 0\.001 to 0\.04 is usual)?",
        of_the_loss,
    ),
    (rf"(?:loss over KL|coefficient of the KL), fitted: (?P<v>{V})", of_the_loss),
    (rf"the term that {NAME} shows: (?P<v>{V})", of_the_loss),
    (
        rf"(?P<name>{NAME}) goes on from (?P<a>{V}) to (?P<b>{V}) nats since the middle of the run, and the reward "
        rf"does not gain; its penalty, (?P<c>{V}) × {V} = (?P<p>{V}), should turn it back",
        goes_on_from,
    ),
    (
        rf"(?P<name>{NAME}) goes from (?P<a>{V}) to (?P<b>{V}) at step {STEP} \(medians of up to 60 rows\)",
        scaled_since,
    ),
    (rf"(?P<name>{NAME}) (?P<a>{V}) → (?P<b>{V}) at step {STEP}, and the loss with it", scaled_since),
    (
        rf"(?P<name>{NAME}) falls at once at (?P<k>\d+) steps, every (?P<every>\d+) rows from step {STEP} on \(medians "
        rf"before and after: (?P<a>{V}) and (?P<b>{V}) nats\)",
        falls_at_an_interval,
    ),
    (rf"(?P<name>{NAME}) falls back every (?P<every>\d+) rows", falls_at_an_interval),
    (rf"falls of (?P<name>{NAME}) by 2 × or more: (?P<k>\d+)", falls_at_an_interval),
    (
        rf"the reward goes from (?P<a>{V}) to (?P<b>{V}) and (?P<name>{NAME}) from (?P<c>{V}) to (?P<d>{V}) nats per "
        rf"token between the first row and rows 6 to 15, at a learning rate of (?P<rate>{V}) in the first row",
        of_first_row,
    ),
    (rf"reward (?P<a>{V}) → (?P<b>{V}) in the first 15 rows", of_first_row),
    (
        rf"(?P<p>{V}) of completions or more are cut in every row, and the mean reward is never above (?P<v>{V})",
        cut_and_unpaid,
    ),
    (rf"the mean reward is (?P<a>{V}) to (?P<b>{V}) from row to row", from_row_to_row),
    (rf"groups never differ, at rewards of (?P<a>{V}) to (?P<b>{V})", from_row_to_row),
    (rf"it is level up to step {STEP} and grows", lambda raw, m: is_step(raw, m["step"])),
    (rf"the policy went from (?P<a>{V}) to (?P<b>{V}) turns per rollout", turns),
    (rf"each training problem was drawn (?P<v>{V}) times, by the epochs", drawn),
    (rf"{NAME} has no number in any of (?P<n>\d+) rows", in_all_rows),
    (rf"held-out (?P<name>{NAME}) is (?P<v>{V}) in all (?P<n>\d+) evaluations", in_all_evaluations),
)
"""Patterns and checks."""

KINDS_CONSTANTS: Sequence[tuple[str, str]] = (
    (r"gradient norm from that step on over that before it: [\d.]+|size of the loss likewise: [\d.]+", "told before"),
    (r"\(counts from 2\.5\)", "a limit of a rule"),
    (r"\(0 × NaN is NaN as a value and 0 as a gradient\)", "arithmetic"),
    (r"warm-up of 10 to 50 steps|temperature above 1;|which ends at 65,504", "words of advice"),
    (r"rows with a number: 0|largest less least: 0|largest less least reward: [\d.]+", "what makes it so"),
)
"""Numbers that are no statement about the log, and why."""
