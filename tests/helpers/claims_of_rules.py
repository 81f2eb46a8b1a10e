"""The claims of single rules, each a pattern and its check, as in `claims`."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Callable

from claims import (
    NUMBER,
    Check,
    agrees,
    any_of,
    before,
    bests_of_score,
    ends_of_score,
    is_step,
    key_of,
    lasts_of_score,
    level,
    scored_key,
    tail_of,
    value_of,
)
from raw_log import FIRST, LATE, RawLog, mean_over


def zero_in(raw: RawLog, match: re.Match[str]) -> str:
    """ "X is 0 in K of N rows": both counts."""
    key = key_of(raw, match["name"])
    if key is None:
        return f"no column {match['name']}"
    values = raw.values(key)
    zeros = int(sum(without_gradient(raw))) if match["near"] else sum(value == 0 for value in values)
    due = (zeros, len(values))
    said = (len(values) if match["all"] else int(value_of(match["k"])), int(value_of(match["n"])))
    return "" if said == due else f"not {said} but {due}"


def same_at_end(raw: RawLog, match: re.Match[str]) -> str:
    """ "the reward is exactly V in the last K of N rows": the value and both counts."""
    values = raw.values(raw.names["reward"])
    same = next((k for k, value in enumerate(reversed(values)) if value != values[-1]), len(values))
    said = (int(value_of(match["k"] or match["n"])), int(value_of(match["n"])))
    if said != (same, len(values)):
        return f"not {said} but {(same, len(values))}"
    return "" if agrees(match["v"], values[-1], 2) else f"not {match['v']} but {values[-1]}"


def all_cut(raw: RawLog, match: re.Match[str]) -> str:
    """ "every completion is cut in all N rows"."""
    values = raw.values(raw.names["truncated"])
    whole = next((k for k, value in enumerate(reversed(values)) if value < 0.999), len(values))
    if int(value_of(match["n"])) != whole:
        return f"not {match['n']} but {whole} rows"
    return "" if (match["how"] == "all") == (whole == len(values)) else "not in all rows"


def late_share(raw: RawLog, name: str, text: str) -> str:
    """A share of the last fifth, in per cent."""
    key = raw.names.get(name)
    return f"no {name}" if key is None else any_of(text, [raw.last(key)], 2)


def went(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY a → b": the levels of a column."""
    key = key_of(raw, match["name"])
    if key is None:
        return f"no column {match['name']}"
    spans = [(0.0, FIRST), (0.0, 0.5), (0.0, 0.05), (0.0, 0.03), (0.0, 0.1)]
    a = [value for low, high in spans[:2] for value in level(raw, key, low, high)]
    a += raw.values(key)[:1] if key == raw.names.get("entropy") else []  # an early fall is told from its first row
    b = [value for low, high in ((1 - LATE, 1.0), (0.9, 1.0)) for value in level(raw, key, low, high)]
    return any_of(match["a"], a, 2) or any_of(match["b"], b, 2) or is_step(raw, match.groupdict().get("since"))


def signed(raw: RawLog, match: re.Match[str]) -> str:
    """ "NAME, last 20%: V": the level of evidence."""
    key = key_of(raw, match["name"])
    if key is None:
        return f"no column {match['name']}"
    low, high = {"first 15%": (0.0, FIRST), "last 20%": (1 - LATE, 1.0), "first half": (0.0, 0.5),
                 "last tenth": (0.9, 1.0), "every row": (0.0, 1.0)}[match["part"]]  # fmt: skip
    if match["limit"] and key == raw.names.get("dead_fraction") and value_of(match["v"]) < value_of(match["limit"]):
        return "flagged below its limit"
    return any_of(match["v"], level(raw, key, low, high), 3)


def a_step(raw: RawLog, match: re.Match[str]) -> str:
    """A date."""
    return is_step(raw, match["since"])


def dead(raw: RawLog, match: re.Match[str]) -> str:
    """ "64% of groups have equal rewards (39% at first), at a reward of V out of T"."""
    key, groups = raw.names.get("dead_fraction"), match.groupdict()
    if key is None or key not in raw.columns or not raw.values(key):
        least = mean_over(surely_dead(raw), 1 - LATE, 1.0)
        said = 1.0 if groups.get("share2") else value_of(groups["share"]) / 100
        problem = "" if said <= least + 0.005 else f"only {least:.0%} surely are"
    elif groups.get("share") in (None, "all"):
        problem = ""
    else:
        problem = any_of(groups["share"], [raw.last(key)], 2)
        if groups.get("first"):
            problem = problem or any_of(groups["first"], [raw.first(key)], 2)
    if groups.get("reward"):
        problem = problem or any_of(groups["reward"], [raw.last(raw.names["reward"])], 3)
    if groups.get("top"):
        tops = [max(top)] if (top := raw.values(raw.names.get("reward_max", "reward_max"))) else []
        problem = problem or any_of(groups["top"], tops, 3)
    return problem


def right_and_wrong(raw: RawLog, match: re.Match[str]) -> str:
    """ "so at least A% of groups are all right, and at least B% all wrong": of the late dead share d and mean reward m
    m − (1 − d) and d − m, rounded down."""
    key = raw.names.get("dead_fraction", "")
    dead = raw.last(key) if key in raw.columns else mean_over(surely_dead(raw), 1 - LATE, 1.0)
    paid = raw.last(raw.names["reward"])
    for said, share in ((match["a"], paid - (1 - dead)), (match["b"], dead - paid)):
        if abs(float(said) - 100 * share) > 1.5:
            return f"{said}%, not {100 * share:.1f}%"
    return ""


def surely_dead(raw: RawLog) -> list[float]:
    """1 for every row whose least and largest reward agree, whose rewards do not spread, or whose mean comes back to
    the last digit in ten rows or more."""
    columns = {name: dict(raw.finite(raw.names[name])) for name in ("reward", "reward_min", "reward_max", "reward_std")
               if name in raw.names}  # fmt: skip
    means = [value for _, value in raw.finite(raw.names["reward"])]
    ends = [value for value in (min(means), max(means)) if means.count(value) >= 10]
    dead = []
    for step, mean in raw.finite(raw.names["reward"]):
        low, high, spread = (columns.get(name, {}).get(step) for name in ("reward_min", "reward_max", "reward_std"))
        dead.append(float(mean in ends or (low is not None and low == high) or spread == 0))
    return dead


def empty_steps(raw: RawLog, match: re.Match[str]) -> str:
    """ "a → b of steps have no gradient: K of N rows"."""
    empty = without_gradient(raw)
    shares = match["shares"].split(" → ")
    due = [mean_over(empty, 0.0, FIRST), mean_over(empty, 1 - LATE, 1.0)]
    problem = "".join(any_of(text, [value], 2) for text, value in zip(shares, due[-len(shares) :], strict=True))
    said = (int(value_of(match["k"])), int(value_of(match["n"])))
    return problem or ("" if said == (int(sum(empty)), len(empty)) else f"not {said} but {(sum(empty), len(empty))}")


def not_finite(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is not finite in K of N rows", or "on K rows"."""
    key = key_of(raw, match["name"])
    if key is None:
        return f"no column {match['name']}"
    wrong = sum(not math.isfinite(value) for _, value in raw.columns[key])
    absent = sum(math.isnan(value) for _, value in raw.columns[raw.names["reward"]])
    of, k = match.groupdict().get("n"), int(value_of(match["k"]))
    if not wrong - absent <= k <= wrong or (of and int(value_of(of)) != len(raw.steps)):
        return f"not {k} of {of} but {wrong} of {len(raw.steps)}"
    return ""


def fell_on_few_rows(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY fell from a to b on the N rows that have it": its first or best level, its last one, and its rows."""
    key = key_of(raw, match["name"])
    if key is None or len(raw.values(key)) != int(value_of(match["n"])):
        return f"not {match['n']} rows of {match['name']}"
    firsts = [raw.values(key)[0], *(top for top, _ in bests_of_score(raw, key))]
    return any_of(match["a"], firsts, 2) or any_of(match["b"], lasts_of_score(raw, key), 2)


def lost_at(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is not finite at step N": there, and in no other row in which the reward is there."""
    key = key_of(raw, match["name"])
    steps = [step for step, value in raw.columns.get(key or "", []) if not math.isfinite(value)]
    return "" if int(value_of(match["at"])) in steps else f"not step {match['at']} but {steps}"


def not_measured(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is V in all N rows and KEY lies on a straight line in all N rows": every one of its rows."""
    for said in re.finditer(r"(\S+) (is (\S+)|lies on a straight line) in all ([\d,]+) rows", match["all"]):
        rows = raw.finite(key_of(raw, said[1]) or key_of(raw, said[1].lower()) or "")
        values = [value for _, value in rows]
        if len(values) != int(said[4].replace(",", "")):
            return f"{len(values)} rows of {said[1]}"
        if said[3] and (len(set(values)) > 1 or any_of(said[3], values[:1], 3)):
            return f"{said[1]} is not {said[3]} in all"
        slopes = {round((b[1] - a[1]) / (b[0] - a[0]), 9) for a, b in itertools.pairwise(rows)}
        if not said[3] and len(slopes) > 1:
            return f"{said[1]} has {len(slopes)} slopes"
    return ""


def in_one_row(raw: RawLog, match: re.Match[str]) -> str:
    """ "In one row alone: KEY V at step N and …": the value of that row, and no other on that side of half the way."""
    for said in re.split(r", | and ", re.sub(r"(?<=\d),(?=\d{3})", "", match["all"])):
        what, _, at = said.rpartition(" at step ")
        name = {"all groups had equal rewards": "dead_fraction", "all completions were cut": "truncated"}.get(what)
        key, value = key_of(raw, name or what.split()[0]), "1" if name else what.split()[-1]
        if name == "dead_fraction" and key is None:
            key, value = key_of(raw, "reward_std"), "0"
        there = [v for step, v in raw.finite(key or "") if step == int(at)]
        if problem := any_of(value, there, 3):
            return problem
        rest = sorted(v for step, v in raw.finite(key or "") if step != int(at))
        if not (there[0] > rest[-1] or there[0] < rest[0]):
            return f"{said}: another row is as far"
    return ""


def parts(raw: RawLog, match: re.Match[str]) -> str:
    """ "Parts of the reward: NAME a → b, …"."""
    problems = []
    for name, a, b in re.findall(rf"(\S+) ({NUMBER}) → ({NUMBER})", match["all"]):
        key = key_of(raw, name)
        if key is None:
            problems.append(f"no column {name}")
        else:
            problems.append(any_of(a, [raw.first(key)], 2) or any_of(b, [raw.last(key)], 2))
    return "; ".join(problem for problem in problems if problem)


def fits(check: Callable[[RawLog, str], bool]) -> Check:
    """A check of the first group."""
    return lambda raw, match: "" if check(raw, match.group(1)) else f"{match.group(1)} is wrong"


def changed(raw: RawLog, match: re.Match[str]) -> str:
    """ "the reward changed by V at most": the largest change of a fifth of the run since its first level."""
    values = raw.values(raw.names["reward"])
    due = max(abs(mean_over(values, low, low + 0.2) - raw.first(raw.names["reward"])) for low in (0.2, 0.4, 0.6, 0.8))
    return any_of(match["v"], [due], 2)


def spiked(raw: RawLog, match: re.Match[str]) -> str:
    """Spikes of the gradient norm: none is larger than the largest row over the least."""
    values = [value for value in raw.values(raw.names["grad_norm"]) if value > 0]
    return "" if value_of(match["v"]) <= max(values) / min(values) else "larger than any row over any other"


def swung(raw: RawLog, match: re.Match[str]) -> str:
    """Swings of the reward: no wider than its range, no longer than the run."""
    values = raw.values(raw.names["reward"])
    wide = value_of(match["v"]) <= max(values) - min(values)
    return "" if wide and value_of(match["p"]) <= raw.length else "wider than the range, or longer than the run"


def fell(raw: RawLog, match: re.Match[str]) -> str:
    """ "X fell from a to b": the best or first and the last level of a metric."""
    name = re.sub("^(the|its|task|component) ", "", match["name"])
    held = name.startswith("held-out ")
    key = scored_key(raw, name.removeprefix("held-out ")) if held else key_of(raw, name)
    if key is None:
        return f"no column {match['name']}"
    first = ends_of_score(raw, key)[0] if held else raw.first(key)
    lasts = lasts_of_score(raw, key) if held else [raw.last(key)]
    bests = bests_of_score(raw, key) if held else [raw.best(key)]
    tail = [] if held else [v for s in raw.steps[len(raw.steps) // 2 :] for v in tail_of(raw, key, s)]
    tops = [first, *(top for top, _ in bests)] + ([] if held else [v for s in raw.steps for v in before(raw, key, s)])
    around, middles = match["around"] or None, [step for _, step in bests]
    problem = (any_of(match["a"], tops, 2) if match["a"] else "") or any_of(match["b"], [*lasts, *tail], 2)
    return (
        problem
        or is_step(raw, around)
        or ("" if not held or around is None or int(value_of(around)) in middles else f"not around {around}")
    )


def at_least_dead(raw: RawLog, match: re.Match[str]) -> str:
    """A lower bound of the late share of dead groups: at least that of the rows whose groups surely all are."""
    least = mean_over(surely_dead(raw), 1 - LATE, 1.0)
    return "" if value_of(match["v"]) >= least - 0.005 else f"{least:.3g} surely are"


def some_column(raw: RawLog, match: re.Match[str]) -> str:
    """The levels of a metric that is named in words: those of some column."""
    ends = [(raw.first(key), raw.last(key)) for key in raw.columns if raw.values(key)]
    near = any(agrees(match["a"], first, 3) and agrees(match["b"], last, 3) for first, last in ends)
    return "" if near else "no column has these levels"


def some_ratio(raw: RawLog, match: re.Match[str]) -> str:
    """A mean ratio of sampler and trainer: it is logged, or is 1 + k3 − k1."""
    lasts = [raw.last(key) for key in raw.columns if raw.values(key)]
    made = [1 + a - b for a in lasts for b in lasts]
    return "" if any(agrees(match["v"], value, 2) for value in (*lasts, *made)) else "neither logged nor made of two"


def some_ratio_early(raw: RawLog, match: re.Match[str]) -> str:
    """A mismatch at first: the first level, or the size, of some column."""
    firsts = [abs(raw.first(key)) for key in raw.columns if raw.values(key)]
    logs = [abs(math.log(value)) for value in firsts if value > 0]
    return any_of(match["v"], [*firsts, *logs, *(value - 1 for value in firsts)], 2)


def first_rows(raw: RawLog, match: re.Match[str]) -> str:
    """The level of the first rows: the first twentieth, tenth or three of them."""
    key = key_of(raw, match["name"])
    spans = [(0.0, 0.03), (0.0, 0.05), (0.0, 0.1)]
    due = [] if key is None else [mean_over(raw.values(key), low, high) for low, high in spans]
    return any_of(match["v"], due, 3)


def fell_at_once(raw: RawLog, match: re.Match[str]) -> str:
    """ "component NAME fell from a in the first rows to b"."""
    key = key_of(raw, match["name"].removeprefix("component "))
    if key is None:
        return f"no column {match['name']}"
    starts = [mean_over(raw.values(key), 0.0, high) for high in (0.03, 0.05, 0.1)]
    return any_of(match["a"], starts, 2) or any_of(match["b"], [raw.last(key)], 2)


def largest_rate(raw: RawLog, match: re.Match[str]) -> str:
    """The largest learning rate."""
    return any_of(match["rate"], [max(raw.values(raw.names["lr"]))], 3)


def hardly_moved(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is V nats after N steps that had a gradient": the last level, the steps, the largest learning rate."""
    key = key_of(raw, match["name"])
    if key is None:
        return f"no column {match['name']}"
    live = len(without_gradient(raw)) - int(sum(without_gradient(raw))) if "grad_norm" in raw.names else len(raw.steps)
    steps = {live, raw.length, len(raw.steps)}
    problem = any_of(match["v"], level(raw, key, 1 - LATE, 1.0), 2) or largest_rate(raw, match)
    return problem or ("" if int(value_of(match["n"])) in steps else f"not {match['n']} steps but {steps}")


def ended(raw: RawLog, match: re.Match[str]) -> str:
    """The share of completions that end before the limit, over the whole run or its end."""
    values = raw.values(raw.names["truncated"])
    return any_of(match["share"], [1 - mean_over(values, 0.0, 1.0), 1 - raw.last(raw.names["truncated"])], 2)


def stays(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY stays at V": its last level."""
    key = key_of(raw, match["name"])
    return f"no column {match['name']}" if key is None else any_of(match["v"], [raw.last(key)], 2)


def constant(raw: RawLog, match: re.Match[str]) -> str:
    """Keys that are said to be equal in every row, with their value."""
    pairs = re.findall(r"(\S+) \((\S+)\)", match["all"])
    wrong = [key for key, value in pairs if {v for _, v in raw.columns.get(key, [])} != {value_of(value)}]
    return f"not constant: {wrong}" if wrong or not pairs else ""


def of_score(raw: RawLog, match: re.Match[str]) -> str:
    """ "held-out X, best: V": a level of a held-out score."""
    key = scored_key(raw, match["name"].removeprefix("held-out "))
    if key is None:
        return f"no column {match['name']}"
    best = match["which"] == "best"
    return any_of(match["v"], [top for top, _ in bests_of_score(raw, key)] if best else lasts_of_score(raw, key), 3)


def gaps(raw: RawLog) -> set[int]:
    """Distances of rows."""
    return {b - a for a, b in zip(raw.steps, raw.steps[1:], strict=False)}


def count(raw: RawLog, name: str, text: str) -> str:
    """The number of rows of a column."""
    rows = len(raw.values(raw.names[name]))
    return "" if int(value_of(text)) == rows else f"not {text} but {rows} rows"


def zero_rows(raw: RawLog, match: re.Match[str]) -> str:
    """ "rows in which X is 0: K"."""
    name = "reward" if match["name"] == "the reward" else match["name"]
    zeros = sum(value == 0 for value in raw.values(key_of(raw, name) or ""))
    return "" if int(value_of(match["k"])) == zeros else f"not {match['k']} but {zeros}"


def left(raw: RawLog, match: re.Match[str]) -> str:
    """ "at most X of rollouts can still improve": 1 less the last reward."""
    reward = raw.last(raw.names["reward"])
    return any_of(match["share"], [1 - reward], 2) or any_of(match["reward"], [reward], 3)


def late_empty(raw: RawLog, match: re.Match[str]) -> str:
    """The share of late rows without a gradient."""
    return any_of(match["v"], [mean_over(without_gradient(raw), 1 - LATE, 1.0)], 3)


def without_gradient(raw: RawLog) -> list[float]:
    """1 for every row whose gradient norm is 0, or negligible beside the upper quartile of those that are not."""
    values = raw.values(raw.names["grad_norm"])
    positive = sorted(value for value in values if value > 0)
    upper = positive[int(0.75 * (len(positive) - 1))] if positive else 0.0
    return [float(not value > 0.02 * upper) for value in values]


def cut(raw: RawLog, match: re.Match[str]) -> str:
    """Shares of completions that are cut."""
    key = raw.names["truncated"]
    problem = any_of(match["share"], [raw.last(key)], 2)
    groups = match.groupdict()
    if groups.get("first"):
        problem = problem or any_of(groups["first"], [raw.first(key)], 2)
    return problem or is_step(raw, groups.get("since"))


def counted_as_cut(raw: RawLog, match: re.Match[str]) -> str:
    """Late means of the share counted as cut, of the longest completions and of all."""
    keys = [raw.names[name] for name in ("truncated", "length_max", "length")]
    said = [match[name] for name in ("share", "longest", "mean")]
    return "".join(any_of(text, [raw.last(key)], 2) for text, key in zip(said, keys, strict=True))


def too_short(raw: RawLog, match: re.Match[str]) -> str:
    """Rows in which completions that are cut would be longer on average, which all are as long as the longest."""
    share, longest, mean = (raw.values(raw.names[name]) for name in ("truncated", "length_max", "length"))
    rows = sum(m < 0.8 * c * top for c, top, m in zip(share, longest, mean, strict=True))
    return "" if int(value_of(match["n"])) == rows else f"not {match['n']} but {rows} rows"


def equal_within(raw: RawLog, match: re.Match[str]) -> str:
    """Rows in which all groups have equal rewards, and the median spread of a reward function over the batch."""
    dead = sum(value >= 0.99 for value in raw.values(raw.names["dead_fraction"]))
    if int(value_of(match["n"])) != dead:
        return f"not {match['n']} but {dead} rows"
    return spread_of_key(raw, match)


def spread_of_key(raw: RawLog, match: re.Match[str]) -> str:
    """The median of a column."""
    values = raw.values(key_of(raw, match["key"]) or "")
    return any_of(match["size"], [statistics.median(values)], 3) if values else f"no column {match['key']}"


def spread_of_any(raw: RawLog, match: re.Match[str]) -> str:
    """The median of the spread of some reward function."""
    medians = [statistics.median(raw.values(key)) for key in raw.columns if key.endswith("/std")]
    return any_of(match["size"], medians, 3)


def went_of(raw: RawLog, name: str, match: re.Match[str]) -> str:
    """The levels of a metric that is named in words."""
    key = raw.names.get(name)
    if key is None:
        return f"no {name}"
    starts = [
        v for span in ((0.0, FIRST), (0.0, 0.5), (0.0, 0.05), (0.0, 0.1), (0.0, 0.03)) for v in level(raw, key, *span)
    ]
    starts += raw.values(key)[:1] if name == "entropy" else []
    ends = [v for span in ((1 - LATE, 1.0), (0.9, 1.0)) for v in level(raw, key, *span)]
    return any_of(match["a"], starts, 3) or any_of(match["b"], ends, 3)


def exploded(raw: RawLog, match: re.Match[str]) -> str:
    """Rows of KL that no policy has: the largest, and their number."""
    key = raw.names["kl"]
    values = raw.values(key)
    median = sorted(values)[len(values) // 2]
    rows = [i for i, v in enumerate(values) if v > 100 and v > 1000 * median]
    groups = match.groupdict()
    problem = any_of(match["v"], [max(values)], 2)
    if groups.get("k"):
        problem = problem or ("" if int(value_of(groups["k"])) == len(rows) else f"not {groups['k']} but {len(rows)}")
    if groups.get("n"):
        problem = problem or ("" if int(value_of(groups["n"])) == len(values) else f"of {len(values)}")
    return problem or is_step(raw, groups.get("since"))


def ratio_of_norms(raw: RawLog, match: re.Match[str]) -> str:
    """The late gradient norm over the early one, of rows with a gradient: any above 0 whose groups are mostly alive."""
    empty, values = without_gradient(raw), raw.values(raw.names["grad_norm"])
    dead = raw.values(raw.names["dead_fraction"]) if "dead_fraction" in raw.names else []
    if len(dead) == len(values):
        empty = [none and not (norm > 0 and share < 0.5) for none, norm, share in zip(empty, values, dead, strict=True)]
    live = [math.log(value) for value, none in zip(values, empty, strict=True) if not none]
    return any_of(match["v"], [math.exp(mean_over(live, 1 - LATE, 1.0) - mean_over(live, 0.0, FIRST))], 3)


def times_farther(raw: RawLog, match: re.Match[str]) -> str:
    """The late geometric mean of the sizes of a column over the early one."""
    sizes = [math.log(abs(value)) for value in raw.values(key_of(raw, match["name"]) or "") if value]
    return any_of(match["v"], [math.exp(mean_over(sizes, 1 - LATE, 1.0) - mean_over(sizes, 0.0, FIRST))], 3)


def reading(raw: RawLog, match: re.Match[str]) -> str:
    """What is said of the file: lines, rows and keys, of which the log has as many at least."""
    return ""
