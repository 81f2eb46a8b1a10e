"""The claims of faults that rows combined show, each a pattern and its check, as in `claims`."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence

from claims import NAME, Check, V, agrees, any_of, key_of, value_of
from raw_log import RawLog, mean_over

N = r"(?P<n>\d+(?:,\d{3})*)"
STEP = r"(?P<step>[\d,]*\d)"


def column(raw: RawLog, match: re.Match[str]) -> list[float]:
    """The values of the column that a claim names."""
    return raw.values(key_of(raw, match["name"]) or "")


def at_step(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is V … at step S"."""
    at = dict(raw.finite(key_of(raw, match["name"]) or ""))
    return any_of(match["v"], [at.get(int(value_of(match["step"])), math.nan)], 3)


def rate_of_first_row(raw: RawLog, match: re.Match[str]) -> str:
    return any_of(match["rate"], raw.values(raw.names["lr"])[:1], 2)


def middle_of_rows(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY, rows A to B: V": their median."""
    values = column(raw, match)[int(match["a"]) - 1 : int(match["b"])]
    return any_of(match["v"], [statistics.median(values)], 3)


def last_row(raw: RawLog, match: re.Match[str]) -> str:
    return any_of(match["v"], column(raw, match)[-1:], 3)


def from_to(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY A → B": its first row, and its last."""
    values = column(raw, match)
    return any_of(match["a"], values[:1], 1) or any_of(match["b"], values[-1:], 2)


def coefficient(raw: RawLog, match: re.Match[str]) -> str:
    return any_of(match["v"], raw.values(match["name"])[-1:], 2)


def growth(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY grows by R a row at one rate from step S on, to V nats"."""
    values = column(raw, match)
    ratio = (values[-1] / values[0]) ** (1 / (len(values) - 1)) - 1
    return (
        any_of(match["rate"], [ratio], 2)
        if abs(value_of(match["rate"]) / 100 - ratio) > 0.005
        else last_row(raw, match)
    )


def goes_on(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY goes on to V nats although its penalty, C × V = P": a late level, the coefficient and their product."""
    values, product = column(raw, match), value_of(match["c"]) * value_of(match["v"])
    late = [mean_over(values, low, 1.0) for low in (0.7, 0.75, 0.8, 0.9)]
    if not agrees(match["p"], product, 3) and abs(value_of(match["p"]) - product) > 0.005:
        return f"not {match['p']} but {product}"
    return any_of(match["v"], late, 3) or any_of(match["c"], raw.values(match["key"])[-1:], 2)


def back_at_the_start(raw: RawLog, match: re.Match[str]) -> str:
    """The means of five rows before and after a step, of the KL and, where it is said, of the reward."""
    said = match.groupdict()
    for name, before, after in (("kl", "a", "b"), ("reward", "c", "d")):
        if said.get(before) is None:
            continue
        series = raw.finite(raw.names[name])
        steps = [int(value_of(said["step"]))] if said.get("step") else [step for step, _ in series]
        problems = [_around(series, step, said[before], said[after]) for step in steps]
        if all(problems):
            return problems[0]
    return ""


def _around(series: list[tuple[int, float]], step: int, before: str, after: str) -> str:
    first = next((i for i, (at, _) in enumerate(series) if at >= step), len(series))
    parts = [[value for _, value in part] for part in (series[max(first - 5, 0) : first], series[first : first + 5])]
    if not all(parts):
        return f"step {step} is no row"
    levels = [[statistics.median(part), statistics.fmean(part)] for part in parts]
    return any_of(before, levels[0], 2) or any_of(after, levels[1], 2)


def wall(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY stays between A and B tokens while the mean grows from C to D"."""
    values, length = column(raw, match), raw.values(raw.names["length"])
    ends = [mean_over(length, 0.0, 0.15), mean_over(length, 0.8, 1.0)]
    return (
        any_of(match["a"], [min(values)], 3) or any_of(match["b"], [max(values)], 3)
        or any_of(match["c"], ends[:1], 3) or any_of(match["d"], ends[1:], 3)
    )  # fmt: skip


def a_limit(raw: RawLog, match: re.Match[str]) -> str:
    """A limit in tokens: the largest of the longest completions, or the last mean length."""
    names = [raw.names[name] for name in ("length_max", "length") if raw.values(raw.names.get(name, ""))]
    return any_of(match["v"], [max(raw.values(name)) for name in names], 3)


def largest(raw: RawLog, match: re.Match[str]) -> str:
    """ "largest KEY: V"."""
    key = raw.names["grad_norm"] if match["name"] == "gradient norm" else key_of(raw, match["name"])
    return any_of(match["v"], [max(raw.values(key or ""))], 3)


def live_groups(raw: RawLog, match: re.Match[str]) -> str:
    """The share of groups with different rewards."""
    values = raw.values(raw.names["dead_fraction"])
    return any_of(match["v"], [1 - statistics.median(values), 1 - statistics.fmean(values)], 2)


def spread(raw: RawLog, match: re.Match[str]) -> str:
    values = raw.values(raw.names["reward_std"])
    return any_of(match["v"], [statistics.median(values), statistics.fmean(values)], 2)


def loss_and_gradient(raw: RawLog, match: re.Match[str]) -> str:
    """Medians of |loss| and of the gradient norm."""
    loss = statistics.median(abs(value) for value in raw.values(raw.names["loss"]))
    return any_of(match["v"], [loss], 3) or any_of(
        match["g"], [statistics.median(raw.values(raw.names["grad_norm"]))], 3
    )


def no_gradient(raw: RawLog, match: re.Match[str]) -> str:
    late = [float(value == 0) for value in raw.values(raw.names["grad_norm"])]
    return any_of(match["v"], [mean_over(late, low, 1.0) for low in (0.5, 0.8)], 2)


def all_at_the_limit(raw: RawLog, match: re.Match[str]) -> str:
    """Since which step all completions are cut, and the share of them before."""
    series = raw.finite(raw.names["truncated"])
    since = next((i for i in range(len(series)) if all(value >= 0.999 for _, value in series[i:])), len(series) - 1)
    said = match.groupdict()
    if said.get("step") and int(value_of(said["step"])) != series[since][0]:
        return f"not step {said['step']} but {series[since][0]}"
    if said.get("n") and int(value_of(said["n"])) != len(series) - since:
        return f"not {said['n']} but {len(series) - since} rows"
    before = [value for _, value in series[:since]]
    return any_of(said["v"], [statistics.median(before), mean_over(before, 0.8, 1.0)], 1) if said.get("v") else ""


def batches(raw: RawLog, match: re.Match[str]) -> str:
    """The late mean of batches drawn, the largest, and for how many rows it has stood there."""
    values = next(raw.values(key) for key in raw.columns if "num_gen_batches" in key)
    said = match.groupdict()
    stands = next((k for k, value in enumerate(reversed(values)) if value != max(values)), len(values))
    problem = any_of(said["v"], [mean_over(values, 0.8, 1.0)], 2)
    if said.get("top"):
        problem = problem or any_of(said["top"], [max(values)], 1) or any_of(said["n"], [stands], 2)
    return problem


OF_CAUSES: Sequence[tuple[str, Check]] = (
    (rf"(?P<name>{NAME}) is (?P<v>{V}) nats per token at step {STEP}", at_step),
    (rf"(?P<name>{NAME}) (?P<v>{V}) nats at step {STEP}", at_step),
    (rf"at a learning rate of (?P<rate>{V})(?=: sound)", rate_of_first_row),
    (rf"(?P<name>{NAME}), rows (?P<a>\d+) to (?P<b>\d+): (?P<v>{V})", middle_of_rows),
    (rf"(?P<name>{NAME}) is (?P<v>{V}): hardly moved", lambda raw, m: any_of(m["v"], [raw.last(raw.names["kl"])], 2)),
    (rf"(?P<name>{NAME}) (?P<a>{V}) → (?P<b>{V}) against its penalty", from_to),
    (rf"(?P<name>{NAME}) grows by (?P<rate>{V}) a row at one rate from step {STEP} on, to (?P<v>{V}) nats", growth),
    (
        rf"(?P<name>{NAME}) goes on to (?P<v>{V}) nats although its penalty, (?P<c>{V}) × {V} = (?P<p>{V}), is as "
        rf"large as rewards differ: (?P<key>\S+) seems",
        goes_on,
    ),
    (rf"(?:its penalty \()(?P<name>kl\w*coef\w*) (?P<v>{V})\)", coefficient),
    (rf"(?P<name>kl\w*coef\w*): (?P<v>{V})", coefficient),
    (rf"(?P<name>{NAME}), last row: (?P<v>{V})", last_row),
    (rf"{NAME} (?P<a>{V}) → (?P<b>{V}) at step {STEP}, back at the start", back_at_the_start),
    (
        rf"at step {STEP} {NAME} goes back to where it began \((?P<a>{V}) → (?P<b>{V}) nats\)"
        rf"(?: and the reward with it \((?P<c>{V}) → (?P<d>{V})\))?",
        back_at_the_start,
    ),
    (rf"{NAME}, 5 rows before: (?P<a>{V}); {NAME}, 5 rows after: (?P<b>{V})", back_at_the_start),
    (
        rf"(?P<name>{NAME}) stays between (?P<a>{V}) and (?P<b>{V}) tokens while the mean grows from (?P<c>{V}) to "
        rf"(?P<d>{V})",
        wall,
    ),
    (rf"(?:completions are cut at|stands at) (?P<v>{V}) tokens", a_limit),
    (rf"limit in tokens: (?P<v>{V})", a_limit),
    (rf"largest (?P<name>gradient norm|kl\S*): (?P<v>{V})", largest),
    (rf"although (?P<v>{V}) of groups have different rewards", live_groups),
    (rf"rewards vary within groups \({NAME} (?P<v>{V})\)", spread),
    (rf"median \|{NAME}\|: (?P<v>{V}) \(zero below 0\.001\); median gradient norm: (?P<g>{V})", loss_and_gradient),
    (rf"the loss is 0 because there is no signal: (?P<v>{V}) of late gradients are exactly 0", no_gradient),
    (
        r"the KL to the starting policy is exactly 0",
        lambda raw, m: "" if not any(raw.values(raw.names["kl"])) else "not 0",
    ),
    (r"and the reward to 0 with them", lambda raw, m: any_of("0", [raw.values(raw.names["reward"])[-1]], 1)),
    (rf"all completions run to the limit from step {STEP} on", all_at_the_limit),
    (rf"completions at the token limit go from (?P<v>{V}) to all at step {STEP}", all_at_the_limit),
    (rf"cut completions before: (?P<v>{V}); rows up to the end with all cut: {N}", all_at_the_limit),
    (rf"(?P<v>{V}) batches are drawn for each that is kept", batches),
    (
        rf"dynamic sampling draws (?P<v>{V}) batches for each that it keeps \(\S+\)(?:, and it stands at (?P<top>{V}), "
        rf"its largest, in the last {N} steps)?",
        batches,
    ),
    (rf"batches drawn per batch kept: (?P<v>{V}) \(too many from 4\)", batches),
    (
        rf"beside (?P<name>{NAME}) at (?P<v>{V})(?=, so that batches)",
        lambda raw, m: any_of(m["v"], [mean_over(column(raw, m), 0.0, 1.0), statistics.median(column(raw, m)),
                                       mean_over(column(raw, m), 0.8, 1.0)], 2),
    ),
)  # fmt: skip
"""Patterns and checks."""

CAUSES_CONSTANTS: Sequence[tuple[str, str]] = (
    (r"grad is missing or 0|ZeRO stage", "words of advice"),
    (r"1e-6 is usual for all weights|1e-5 for adapters|1e-6 or so|move it by 0\.001", "usual rates, and what they do"),
    (r"max_num_gen_batches=0", "a setting"),
    (r"\(hardly moved below 0\.0003\)|\(limit 0\.6 × the first\)", "limits of rules"),
)
"""Numbers that are no statement about the log, and why."""
