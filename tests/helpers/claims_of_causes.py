"""The claims of faults that rows combined show, each a pattern and its check, as in `claims`."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from itertools import pairwise

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


def beyond(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is V in the median row and beyond L in K of N, up to W"."""
    values, limit = column(raw, match), value_of(match["limit"])
    count = sum(value > limit for value in values)
    if (count, len(values)) != (int(match["k"]), int(match["n"])):
        return f"beyond it in {count} of {len(values)}"
    return any_of(match["v"], [statistics.median(values)], 3) or any_of(match["top"], [max(values)], 3)


def least_of(raw: RawLog, match: re.Match[str]) -> str:
    return any_of(match["v"], [min(column(raw, match))], 3)


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


def median_row(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is V in the median row"."""
    return any_of(match["v"], [statistics.median(column(raw, match))], 3)


def first_row(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is V nats in the first row and V after it": that row, and the median of rows 6 to 20."""
    values, said = column(raw, match), match.groupdict()
    later = any_of(said["w"], [statistics.median(values[5:20])], 3) if said.get("w") else ""
    return any_of(match["v"], values[:1], 3) or later


def anew(raw: RawLog, match: re.Match[str]) -> str:
    """ "and again at N later steps": rows at which the KL falls to a fifth or less, less the first."""
    values = raw.values(raw.names["kl"])
    falls = sum(later < before / 5 for before, later in pairwise(values))
    return "" if falls == int(value_of(match["n"])) + 1 else f"{falls} falls of the KL"


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


def clipped_rows(raw: RawLog, match: re.Match[str]) -> str:
    """Gradient norms of the rows without clipped tokens and of those with 3 % or more: medians, counts, the share."""
    norm = dict(raw.finite(raw.names["grad_norm"]))
    shares = dict(raw.finite(raw.names.get("clip_fraction", "clip_fraction")))
    none = [norm[step] for step, share in shares.items() if share == 0]
    some = [norm[step] for step, share in shares.items() if share >= 0.03]
    a, b = statistics.median(none), statistics.median(some)
    said = match.groupdict()
    if said.get("ratio"):
        return any_of(said["ratio"], [b / a], 3)
    held = statistics.median(share for share in shares.values() if share >= 0.03)
    return (
        any_of(said["a"], [a], 3) or any_of(said["b"], [b], 3) or any_of(said["k"], [len(none)], 9)
        or any_of(said["n"], [len(some)], 9) or any_of(said["v"], [held], 2)
    )  # fmt: skip


def multiple(raw: RawLog, match: re.Match[str]) -> str:
    """ "LOSS is V × KEY (in N rows, since step S)": the median of the ratios, and in how many rows the other is above
    0."""
    said = match.groupdict()
    loss = dict(raw.finite(raw.names["loss"]))
    other = dict(raw.finite(key_of(raw, said["x"]) if said.get("x") else raw.names["kl"]))
    since = int((said.get("since") or "0").replace(",", ""))
    ratios = [loss[step] / value for step, value in other.items() if value > 0 and step in loss and step >= since]
    problem = any_of(said["v"], [statistics.median(ratios)], 3)
    if said.get("n"):
        problem = problem or any_of(said["n"], [len(ratios)], 9)
    if said.get("late"):
        problem = problem or any_of(said["late"], [mean_over(list(other.values()), 0.8, 1.0)], 3)
    return problem


def most(raw: RawLog, match: re.Match[str]) -> str:
    return any_of(match["v"], [max(column(raw, match))], 3)


def late_level(raw: RawLog, match: re.Match[str]) -> str:
    return any_of(match["v"], [mean_over(column(raw, match), 0.8, 1.0)], 3)


def falls_at_once(raw: RawLog, match: re.Match[str]) -> str:
    """The reward of the first rows and of those up to a step, and the KL there, each over a twentieth of the run."""
    said, reward = match.groupdict(), raw.finite(raw.names["reward"])
    width = max(3, len(reward) // 20)
    values, steps = [value for _, value in reward], [step for step, _ in reward]
    problem = any_of(said["a"], [statistics.fmean(values[:width])], 3) if said.get("a") else ""
    if said.get("step") and said.get("b"):
        end = steps.index(int(value_of(said["step"]))) + 1
        problem = problem or any_of(said["b"], [statistics.fmean(values[end - width : end])], 3)
    if said.get("kl"):
        kl = raw.values(raw.names["kl"])
        ends = [steps.index(int(value_of(said["step"]))) + 1] if said.get("step") else range(width, len(kl) + 1)
        problem = problem or any_of(said["kl"], [statistics.median(kl[end - width : end]) for end in ends], 3)
    return problem


def widest(raw: RawLog, match: re.Match[str]) -> str:
    """The median spread of the rewards over the batch, or of a reward function."""
    spreads = [raw.values(key) for key in raw.columns if "std" in key]
    least, top = raw.columns.get("reward_min"), raw.columns.get("reward_max")
    if least and top:
        spreads.append([high - low for (_, low), (_, high) in zip(least, top, strict=True)])
    return any_of(match["v"], [statistics.median(values) for values in spreads if values], 2)


def equal_groups(raw: RawLog, match: re.Match[str]) -> str:
    values = raw.values(raw.names["dead_fraction"])
    return any_of(match["k"], [sum(value >= 0.99 for value in values)], 9) or any_of(match["n"], [len(values)], 9)


def zero_once_more(raw: RawLog, match: re.Match[str]) -> str:
    """A KL that is exactly 0 in the first row and at a step, and its median in the five rows before."""
    said, series = match.groupdict(), raw.finite(raw.names["kl"])
    zeros = [place for place, (_, value) in enumerate(series) if value == 0]
    if len(zeros) != 2 or zeros[0]:
        return f"0 in the rows {zeros}"
    if said.get("step") and int(value_of(said["step"])) != series[zeros[1]][0]:
        return f"not step {said['step']} but {series[zeros[1]][0]}"
    before = statistics.median(value for _, value in series[zeros[1] - 5 : zeros[1]])
    return any_of(said["v"], [before], 3) if said.get("v") else ""


def skipped(raw: RawLog, match: re.Match[str]) -> str:
    """How many rows had no update, of how many, or the late share of them."""
    said, values = match.groupdict(), [float(value == 0) for value in raw.values("trained")]
    if said.get("v"):
        return any_of(said["v"], [mean_over(values, 0.8, 1.0)], 3)
    return any_of(said["k"], [sum(values)], 9) or any_of(said["n"], [len(values)], 9)


def replaced(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY A → B nats per token at step S, and the reward and …": its medians on both sides of the step."""
    step = int(value_of(match["step"]))
    course = raw.finite(key_of(raw, match["name"]) or "")
    before, after = ([value for at, value in course if (at >= step) == late] for late in (False, True))
    if not match["a"]:
        return any_of(match["b"], [statistics.median(after)], 3)
    return any_of(match["a"], [statistics.median(before)], 1) or any_of(match["b"], [statistics.median(after)], 1)


def of_a_stage(raw: RawLog, match: re.Match[str]) -> str:
    """ "having risen since; the policy did not jump there (KEY A → B)": medians of five steps, at the largest fall."""
    reward = raw.finite(raw.names["reward"])
    step = min(pairwise(reward), key=lambda ends: ends[1][1] - ends[0][1])[1][0]
    course = [(at, value) for at, value in raw.finite(key_of(raw, match["name"]) or "") if abs(at - step) <= 5]
    before, after = (statistics.median(value for at, value in course if (at >= step) == late) for late in (False, True))
    return any_of(match["a"], [before], 1) or any_of(match["b"], [after], 1)


def one_value(raw: RawLog, match: re.Match[str]) -> str:
    """ "it is exactly that in all rows of the steps A to B and C to D": one reward in all of them."""
    spans = re.findall(r"([\d,]+) to ([\d,]+)", match["spans"])
    inside = {
        value for at, value in raw.finite(raw.names["reward"])
        if any(value_of(first) <= at <= value_of(last) for first, last in spans)
    }  # fmt: skip
    return "" if len(inside) == 1 else f"{len(inside)} values"


def jumps(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY jumps from A to B": B is the largest value, and A the median of the rows before it."""
    values = raw.values(key_of(raw, match["name"]) or "")
    row = values.index(max(values))
    before = statistics.median(values[max(row - 31, 0) : row])
    return any_of(match["a"], [before], 2) or any_of(match["b"], [values[row]], 2)


def other_norms(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is A in the median of the rows before step S and B in that of the rows from there on"."""
    course, step = raw.finite(key_of(raw, match["name"]) or ""), int(value_of(match["step"]))
    before, after = ([value for at, value in course if (at >= step) == late] for late in (False, True))
    return any_of(match["a"], [statistics.median(before)], 2) or any_of(match["b"], [statistics.median(after)], 2)


def falls_at_a_step(raw: RawLog, match: re.Match[str]) -> str:
    """ "the reward goes from A to B at step S, and is C in the end": medians of twelve rows, and the last level."""
    course, step = raw.finite(raw.names["reward"]), int(value_of(match["step"]))
    before = [value for at, value in course if at < step][-12:]
    after = [value for at, value in course if at >= step][:12]
    problem = any_of(match["a"], [statistics.median(before)], 2) or any_of(match["b"], [statistics.median(after)], 2)
    return problem or any_of(match["end"], [raw.last(raw.names["reward"])], 1)


def graded_otherwise(raw: RawLog, match: re.Match[str]) -> str:
    """ "from one row to the next at step S, where what is sampled did not move (KEY A → B and …)": medians of the five
    steps on either side."""
    step = int(value_of(match["step"]))
    for part in re.split(r", (?=[^ ,]+ \S+ →)| and (?=[^ ,]+ \S+ →)", match["all"]):
        said = re.fullmatch(rf"(?P<name>{NAME}) (?P<a>{V}) → (?P<b>{V})", part)
        if said is None:
            return f"not understood: {part}"
        course = raw.finite(key_of(raw, said["name"]) or "")
        before = [value for at, value in course if step - 5 <= at < step]
        after = [value for at, value in course if step <= at < step + 5]
        wrong = any_of(said["a"], [statistics.median(before)], 1) or any_of(said["b"], [statistics.median(after)], 1)
        if wrong:
            return f"{said['name']}: {wrong}"
    reward = dict(raw.finite(raw.names["reward"]))
    near = [at for at in reward if abs(at - step) <= 5 and at - 1 in reward]
    largest = max(near, key=lambda at: abs(reward[at] - reward[at - 1]))
    return "" if largest == step else "it changed more at another step"


def dip(raw: RawLog, match: re.Match[str]) -> str:
    """ "steps A to B, far below those around, left out": each of them is below each of the five rows on either side."""
    first, last = (int(value_of(match[name] or match["a"])) for name in ("a", "b"))
    course = raw.finite(raw.names["reward"])
    inside = [value for at, value in course if first <= at <= last]
    around = [value for at, value in course if at < first][-5:] + [value for at, value in course if at > last][:5]
    return "" if inside and statistics.median(inside) < min(around) else "not below those around"


def of_lost_rows(raw: RawLog, match: re.Match[str]) -> str:
    """ "the reward is A on K of N rows, from step S on, and B on those around them", or a metric that goes B → A there:
    rows below half of the median of the eleven around them, not at either end."""
    said, key = match.groupdict(), raw.names["reward"]
    course = raw.finite(key)
    values = [value for _, value in course]
    middle = [statistics.median(values[max(i - 5, 0) : i + 6]) for i in range(len(values))]
    lost = [i for i, value in enumerate(values) if value < middle[i] - 0.5 * abs(middle[i])]
    steps = {course[i][0] for i in lost}
    if said.get("name"):
        other = raw.finite(key_of(raw, said["name"]) or "")
        inside, outside = ([value for at, value in other if (at in steps) == there] for there in (True, False))
        if said.get("v"):
            return any_of(said["v"], [statistics.median(inside)], 3)
        return any_of(said["a"], [statistics.median(outside)], 1) or any_of(said["b"], [statistics.median(inside)], 1)
    around = {j for i in lost for j in range(i - 5, i + 6) if 0 <= j < len(values)} - set(lost)
    a, b = statistics.median(values[i] for i in lost), statistics.median(values[j] for j in around)
    if said.get("step") and int(value_of(said["step"])) != course[lost[0]][0]:
        return f"not step {said['step']} but {course[lost[0]][0]}"
    if said.get("every") and {y - x for x, y in pairwise(lost)} != {int(value_of(said["every"]))}:
        return f"rows {lost} are not every {said['every']}"
    if said.get("k") and int(value_of(said["k"])) != len(lost):
        return f"not {said['k']} rows but {len(lost)}"
    return (any_of(said["a"], [a], 1) if said.get("a") else "") or (any_of(said["b"], [b], 1) if said.get("b") else "")


def one_length(raw: RawLog, match: re.Match[str]) -> str:
    """ "all completions of a step have one length in all N rows, A to B tokens"."""
    said = match.groupdict()
    least, most = (raw.values(raw.names[name]) for name in ("length_min", "length_max"))
    if least != most or (said.get("n") and int(value_of(said["n"])) != len(most)):
        return "they differ, or the rows are others"
    if said.get("cut") and said["cut"] != f"{statistics.fmean(raw.values(raw.names['truncated'])):.0%}":
        return f"not {said['cut']} are cut"
    if not said.get("a"):
        return ""
    return any_of(said["a"], [min(most)], 2) or any_of(said["b"], [max(most)], 2)


def all_failed(raw: RawLog, match: re.Match[str]) -> str:
    """ "every rollout failed or has no reward in all N rows": by the counts that Agent Lightning logs."""
    came = raw.values("training/n_rollouts_w_reward")
    return "" if not any(came) and len(came) == int(value_of(match["n"])) else "some came back"


def other_level(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY goes from A to B at step S": its medians before that step and from it on."""
    course, step = raw.finite(key_of(raw, match["name"]) or ""), value_of(match["step"])
    before, after = ([value for at, value in course if (at < step) == early] for early in (True, False))
    return any_of(match["a"], [statistics.median(before)], 3) or any_of(match["b"], [statistics.median(after)], 3)


def of_first_rows(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is V in the median of the first rows": of five."""
    return any_of(match["v"], [statistics.median(column(raw, match)[:5])], 3)


def turned(raw: RawLog, match: re.Match[str]) -> str:
    """ "loss over KL, last rows: V": the median over the last rows in which it is below 0."""
    loss = dict(raw.finite(raw.names["loss"]))
    ratios = [loss[step] / value for step, value in raw.finite(raw.names["kl"]) if value > 0 and step in loss]
    first = next((k + 1 for k in range(len(ratios) - 1, -1, -1) if ratios[k] >= 0), 0)
    return any_of(match["v"], [statistics.median(ratios[first:])], 3)


def drawn_back(raw: RawLog, match: re.Match[str]) -> str:
    """ "since step S the loss is V × KEY, …, and KEY is A nats, B before": medians since, and of ten rows before."""
    course, since = raw.finite(key_of(raw, match["x"]) or ""), int(value_of(match["since"]))
    after = statistics.median(value for step, value in course if step >= since)
    before = statistics.median([value for step, value in course if step < since][-10:])
    return multiple(raw, match) or any_of(match["a"], [after], 3) or any_of(match["b"], [before], 3)


def unmoved(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is 0 in the last N steps, since step S", "in all N steps", "rows with KEY of 0: N": the rows of 0 at the
    end."""
    said, course = match.groupdict(), raw.finite("weights_moved")
    count = next((k for k, (_, value) in enumerate(reversed(course)) if value), len(course))
    problem = any_of(said["n"], [count], 9) if said.get("n") else ""
    if said.get("all"):
        problem = problem or any_of(said["n"], [len(course)], 9)
    return problem or (any_of(said["since"], [course[-count][0]], 9) if said.get("since") else "")


def moved(raw: RawLog, match: re.Match[str]) -> str:
    """ "changes V of the weights": the median of those of the last fifth of the rows that are above 0."""
    values = raw.values("weights_moved")
    late = [value for value in values[int(0.8 * len(values)) :] if value > 0]
    return any_of(match["v"], [statistics.median(late)], 2)


def stretches(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY grows by V × in each of N stretches … falls back at once at steps A, B …", or the count of falls alone."""
    said, series = match.groupdict(), raw.finite(key_of(raw, match["name"]) or "")
    falls = [k for k in range(1, len(series)) if 3 * series[k][1] < series[k - 1][1]]
    if int(value_of(said["n"])) != len(falls) + (said.get("falls") is None):
        return f"{len(falls)} falls"
    if said.get("at") and [int(value_of(at)) for at in said["at"].rstrip(" …").split(", ")] != [
        series[k][0] for k in falls[:4]
    ]:
        return f"falls at {[series[k][0] for k in falls]}"
    parts = [series[a:b] for a, b in pairwise([0, *falls, len(series)])]
    ends = [[value for _, value in part] for part in parts]
    least = min(statistics.median(part[-3:]) / statistics.median(part[:3]) for part in ends)
    return any_of(said["v"], [least], 2) if said.get("v") else ""


def together(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY changes with KEY (correlation R over N changes)", or the correlation alone, of reward and length."""
    said, reward, length = match.groupdict(), *(raw.values(raw.names[name]) for name in ("reward", "length"))
    if said.get("name") and (own := key_of(raw, said["name"])):
        reward = raw.values(own)
    x, y = ([later - before for before, later in pairwise(values)] for values in (reward, length))
    along = statistics.correlation(x, y)
    paid = said.get("paid")
    if said.get("n") and int(value_of(said["n"])) != len(x):
        return f"{len(x)} changes"
    return (
        any_of(said["v"], [along], 2) if said.get("v") else "" if (paid == "longer") == (along > 0) else "the other way"
    )


def of_evaluations(raw: RawLog, match: re.Match[str]) -> str:
    """ "NAME is A at first, B at the end", or one of the two alone: its first evaluation, and its last."""
    said = match.groupdict()
    name = said["name"]
    values = raw.values(next(key for key in raw.columns if name is None or key.endswith(name)) if name else "") or next(
        raw.values(key) for key in raw.columns if key.startswith("val")
    )
    return (any_of(said["a"], values[:1], 3) if said.get("a") else "") or any_of(said["b"], values[-1:], 2)


def zero_rows(raw: RawLog, match: re.Match[str]) -> str:
    """ "rows in which the KEY is 0: N"."""
    count = sum(value == 0 for value in column(raw, match))
    return "" if count == int(value_of(match["n"])) else f"0 in {count} rows"


def worn_away(raw: RawLog, match: re.Match[str]) -> str:
    """ "the reward (A → B) and held-out NAME fall slowly": the means of the first rows and of the last."""
    values = raw.values(raw.names["reward"])
    return any_of(match["a"], [mean_over(values, 0.0, 0.15)], 2) or any_of(match["b"], [mean_over(values, 0.8, 1.0)], 2)


def times(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY, last 20%, over the first 15%: V"."""
    values = column(raw, match)
    return any_of(match["v"], [mean_over(values, 0.8, 1.0) / mean_over(values, 0.0, 0.15)], 3)


def grew_until(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is infinite at step S after it had grown from A to B": medians of the first and the last ten before."""
    finite = raw.finite(key_of(raw, match["name"]) or "")
    before_it = [value for step, value in finite if step < int(value_of(match["step"])) and math.isfinite(value)]
    ends = statistics.median(before_it[:10]), statistics.median(before_it[-10:])
    return any_of(match["a"], ends[:1], 2) or any_of(match["b"], ends[1:], 2)


def ten_before(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY, median of the 10 rows before: V": before the first that is not finite."""
    series = raw.finite(key_of(raw, match["name"]) or "")
    gap = next((k for k in range(1, len(series)) if series[k][0] > series[k - 1][0] + 1), len(series))
    return any_of(match["v"], [statistics.median([value for _, value in series[max(gap - 10, 0) : gap]])], 2)


def falls_at(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY falls from A to B at step S": the row before and that row."""
    at = dict(raw.finite(key_of(raw, match["name"]) or raw.names["lr"]))
    step = int(value_of(match["step"]))
    return any_of(match["a"], [at.get(step - 1, math.nan)], 2) or any_of(match["b"], [at.get(step, math.nan)], 2)


def of_rate(raw: RawLog, match: re.Match[str]) -> str:
    """ "lr, row before: V" or "lr, at step S: V": a rate of the log."""
    return any_of(match["v"], raw.values(raw.names["lr"]), 2)


def after_the_first(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is V nats per token at step S and never below W after the first row, at a learning rate of R"."""
    values, rates, parts = column(raw, match), raw.values(raw.names["lr"]), match.groupdict()
    if not parts.get("least"):
        return any_of(match["v"], [*values[1:2], min(values[1:])], 2)
    wrong = any_of(match["v"], values[1:2], 2) or any_of(parts["least"], [min(values[1:])], 2)
    return wrong or any_of(parts["rate"], [max(rates[:3])], 1)


def by_quarters(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY is V in the median row of the first quarter, B in that of the last, and above its first level since S"."""
    values = column(raw, match)
    size = len(values) // 4
    first, last = (statistics.median(part) for part in (values[:size], values[-size:]))
    return any_of(match["v"], [first], 3) or any_of(match["b"], [last], 3)


def of_a_quarter(raw: RawLog, match: re.Match[str]) -> str:
    """ "KEY, median of the last quarter: B (V in the second)"."""
    values = column(raw, match)
    size = len(values) // 4
    last, second = (statistics.median(part) for part in (values[-size:], values[size : 2 * size]))
    return any_of(match["b"], [last], 3) or any_of(match["v"], [second], 3)


def spent(raw: RawLog, match: re.Match[str]) -> str:
    """ "the learning rate is V at most on the last K of N rows, since step S, and was B at most before"."""
    at = raw.finite(raw.names["lr"])
    late = [rate for step, rate in at if step >= int(value_of(match["step"]))]
    if (len(late), len(at)) != (int(match["k"]), int(match["n"])):
        return f"on the last {len(late)} of {len(at)}"
    before = [rate for step, rate in at if step < int(value_of(match["step"]))]
    return any_of(match["v"], [max(late)], 3) or any_of(match["b"], [max(before)], 3)


def spent_rows(raw: RawLog, match: re.Match[str]) -> str:
    rates = raw.values(raw.names["lr"])
    above = [row for row, rate in enumerate(rates) if rate > 0.01 * max(rates)]
    count = len(rates) - 1 - above[-1]
    return "" if count == int(match["k"]) else f"{count} rows"


OF_CAUSES: Sequence[tuple[str, Check]] = (
    (
        rf"the learning rate is (?P<v>{V}) at most on the last (?P<k>\d+) of {N} rows, since step {STEP}, and was "
        rf"(?P<b>{V}) at most before",
        spent,
    ),
    (r"rows with a rate that is spent: (?P<k>\d+)", spent_rows),
    (
        rf"(?P<name>{NAME}) is (?P<v>{V}) in the median row of the first quarter, (?P<b>{V}) in that of the last, and "
        rf"above its first level since step {STEP}",
        by_quarters,
    ),
    (rf"\S+ of \S+ is {V}, so that this bound is not in force", lambda raw, match: ""),  # of a file, not of the log
    (rf"(?P<name>{NAME}), median of the last quarter: (?P<b>{V}) \((?P<v>{V}) in the second\)", of_a_quarter),
    (
        rf"while held-out (?P<name>{NAME}) is (?:(?P<a>{V}) at first, )?(?P<b>{V})(?: at the end)?(?=: what)",
        of_evaluations,
    ),
    (rf", (?P<name>)(?P<b>{V}) in evaluation", of_evaluations),
    (rf"the reward \((?P<a>{V}) → (?P<b>{V})\) and held-out {NAME} fall slowly", worn_away),
    (rf"rows in which the (?P<name>{NAME}) is 0: {N}", zero_rows),
    (rf"held-out (?P<name>{NAME}): (?P<b>{V})$", of_evaluations),
    (rf"(?P<name>{NAME}), last 20%, over the first 15%: (?P<v>{V}) \(1\.5\)", times),
    (
        rf"(?P<name>{NAME}) is infinite at step {STEP} after it had grown from (?P<a>{V}) to (?P<b>{V}), in the first "
        r"row",
        grew_until,
    ),
    (rf"(?P<name>{NAME}), median of the 10 rows before: (?P<v>{V})", ten_before),
    (rf"(?P<name>{NAME}) falls from (?P<a>{V}) to (?P<b>{V}) at step {STEP} and\s+begins the warm-up", falls_at),
    (rf"(?:{NAME}), (?:row before|at step [\d,]+): (?P<v>{V})", of_rate),
    (
        rf"(?P<name>{NAME}) is (?P<v>{V}) nats per token at step {STEP} and never below (?P<least>{V}) after the first "
        rf"row, at a learning rate of (?P<rate>{V})",
        after_the_first,
    ),
    (rf"(?P<name>{NAME}) is (?P<v>{V}) nats after the first update", after_the_first),
    (rf"smallest (?P<name>{NAME}) after the first row: (?P<v>{V})", after_the_first),
    (
        rf"from row to row (?P<name>{NAME}) changes with {NAME} \(correlation (?P<v>{V}) over {N} changes\)",
        together,
    ),
    (r"batches of (?P<paid>longer|shorter) completions are paid more", together),
    (
        rf"the changes of (?P<name>{NAME}) and of {NAME} from row to row have a correlation of (?P<v>{V}) over {N} "
        "changes",
        together,
    ),
    (rf"(?P<name>{NAME}) has a name of a penalty for length, and batches of longer completions have more of it "
     rf"\(correlation (?P<v>{V}) over {N} changes from row to row", together),
    (r"prompts of other difficulty make up to 0\.9", "a limit of a rule"),
    (rf"correlation of the changes of (?P<name>{NAME}) and length: (?P<v>{V})", together),
    (rf"(?P<name>{NAME}) grows in {N} stretches and is back after each", stretches),
    (
        rf"(?P<name>{NAME}) grows by (?P<v>{V}) × or more in each of {N} stretches of rows and falls back at once at "
        r"steps (?P<at>\d[\d, ]*(?: …)?)",
        stretches,
    ),
    (rf"(?P<falls>falls) of (?P<name>{NAME}) by 3 × or more: {N}", stretches),
    (rf"loss over KL, last rows: (?P<v>{V})", turned),
    (
        rf"since step (?P<since>[\d,]+) the loss is (?P<v>{V}) × (?P<x>{NAME}), where 0\.001 to 0\.04 is usual, and "
        rf"{NAME} is (?P<a>{V}) nats, (?P<b>{V}) before",
        drawn_back,
    ),
    (rf"KL coefficient (?P<v>{V}) since step (?P<since>[\d,]+)", multiple),
    (
        rf"weights_moved is 0 in (?:(?P<all>all)|the last) {N} (?:steps|rows)(?:, since step (?P<since>[\d,]*\d))?",
        unmoved,
    ),
    (r"no step changes the weights, since step (?P<since>[\d,]*\d)", unmoved),
    (rf"rows with weights_moved of 0: {N}", unmoved),
    (rf"changes (?P<v>{V}) of the weights that have a gradient", moved),
    (rf"late share of weights that move: (?P<v>{V}) \(few below 0\.25\)", moved),
    (
        rf"(?P<name>{NAME}) goes from (?P<a>{V}) to (?P<b>{V}) at step {STEP} and stays there, within its limit of {V}",
        other_level,
    ),
    (
        rf"(?P<name>{NAME}) is (?P<v>{V}) (?:in the median of the first rows and stays there, where a loss that is a "
        r"mean over tokens has one near 1|from the first row on)",
        of_first_rows,
    ),
    (rf"(?P<name>{NAME}), median of the first 5 rows: (?P<v>{V}) \(counts from 100\)", of_first_rows),
    (
        rf"the reward is (?P<a>{V}) on (?P<k>\d+) of {N} rows, from step {STEP} on, and (?P<b>{V}) on those around them"
        r"(?:, every (?P<every>\d+) rows)?",
        of_lost_rows,
    ),
    (rf"reward (?P<b>{V}) → (?P<a>{V}) on (?P<k>\d+) rows(?:, every (?P<every>\d+))?", of_lost_rows),
    (rf"(?P<name>{NAME}) goes (?P<a>{V}) → (?P<b>{V}) there", of_lost_rows),
    (rf"reward of the lost rows, median: (?P<a>{V})", of_lost_rows),
    (rf"reward of the rows around them, median: (?P<b>{V})", of_lost_rows),
    (rf"(?P<name>{NAME}) of the lost rows, median: (?P<v>{V})", of_lost_rows),
    (rf"longest less shortest completion, largest: {V}", one_length),
    (
        rf"all completions of a step have one length in all {N} (?:rows|steps)(?:, (?P<a>{V}) to (?P<b>{V}) tokens"
        r"(?: \((?P<cut>\d+%) are cut at the limit\))?)?",
        one_length,
    ),
    (rf"every rollout failed or has no reward in all {N} (?:rows|steps)", all_failed),
    (r"steps? (?P<a>[\d,]*\d)(?: to (?P<b>[\d,]*\d))?, far below those around, left out", dip),
    (
        r"it is exactly that in all rows of the steps (?P<spans>[\d, to]+(?:and [\d, to]+)?), as where nothing",
        one_value,
    ),
    (
        rf"(?P<name>{NAME}) jumps from (?P<a>{V}) to (?P<b>{V}) at step {STEP}, where the reward falls from {V} to {V} "
        r"\(medians of 10 rows\)",
        jumps,
    ),
    (rf"(?P<name>{NAME}) (?P<a>{V}) → (?P<b>{V}) where the reward falls", jumps),
    (
        rf"(?P<name>{NAME}) is (?P<a>{V}) in the median of the {N} rows before step {STEP} and (?P<b>{V}) in that of "
        r"the \d+ rows from there on",
        other_norms,
    ),
    (rf"the reward goes from (?P<a>{V}) to (?P<b>{V}) at step {STEP}, and is (?P<end>{V}) in the end", falls_at_a_step),
    (
        rf"from one row to the next at step {STEP}, where what is sampled did not move \((?P<all>[^)]+)\)",
        graded_otherwise,
    ),
    (
        r"having risen since; the policy did not jump there"
        rf" \((?P<name>{NAME}) (?P<a>{V}) → (?P<b>{V})\)",
        of_a_stage,
    ),
    (
        rf"(?P<name>{NAME}) (?P<a>{V}) → (?P<b>{V}) nats per token at step {STEP}, and the reward and {NAME}"
        rf"(?:, {NAME})*(?: and {NAME})? are at other levels from that step on",
        replaced,
    ),
    (rf"(?P<name>{NAME}) (?P<a>{V}) → (?P<b>{V}) at step {STEP}, with the reward", replaced),
    (rf"(?P<name>{NAME}), median from step {STEP} on: (?P<a>)?(?P<b>{V})", replaced),
    (
        rf"(?P<name>{NAME}) is (?P<a>{V}) in the (?P<k>\d+) rows in which no token is clipped and (?P<b>{V}) in the "
        rf"{N} in which (?P<v>{V}) are",
        clipped_rows,
    ),
    (rf"gradient norm with clipped tokens over that without: (?P<ratio>{V}) \(0\.5\)", clipped_rows),
    (
        rf"(?:the )?{NAME} is (?P<v>{V}) × (?P<x>{NAME})(?:, where 0\.001 to 0\.04 is usual)?"
        rf"(?: in (?:the )?{N} rows)?(?: since step (?P<since>[\d,]+))?",
        multiple,
    ),
    (rf"KL coefficient (?P<v>{V}), (?P<x>{NAME}) held at (?P<late>{V})", multiple),
    (rf"(?:coefficient of the KL|loss over KL, median row): (?P<v>{V})", multiple),
    (rf"(?P<name>{NAME}) stays at (?P<v>{V}) nats", late_level),
    (rf"(?P<name>\S*entropy\S*) is (?P<v>{V})(?: nats)? at most", most),
    (rf"largest (?P<name>\S*entropy\S*): (?P<v>{V})", most),
    (
        rf"the reward falls from the first steps on(?:, from (?P<a>{V}) to (?P<b>{V}) at step {STEP})?"
        rf"(?:, (?:where the KL to the start is|at a KL of) (?P<kl>{V}))?",
        falls_at_once,
    ),
    (rf"KL where it has fallen: (?P<kl>{V}) \(near up to 0\.3\)", falls_at_once),
    (rf"reward in the first rows: (?P<a>{V})", falls_at_once),
    (rf"reward at step {STEP}: (?P<b>{V}) \(fallen at 0\.25 of the first\)", falls_at_once),
    (rf"{NAME} is exactly 0 again at step {STEP}", zero_once_more),
    (
        rf"at step {STEP} {NAME} is exactly 0, as in the first row and in no other \((?P<v>{V}) nats before\)",
        zero_once_more,
    ),
    (rf"(?P<k>\d+) of {N} steps were skipped", skipped),
    (rf"late steps without an update: (?P<v>{V}) \(many from 40%\)", skipped),
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
    (rf"largest (?P<name>gradient norm|kl\S*|\S*call\S*): (?P<v>{V})", largest),
    (rf"although (?P<name>{NAME}) is (?P<v>{V}) in the median row", median_row),
    (rf"and again at {N} later steps?", anew),
    (rf"(?P<name>{NAME}) is (?P<v>{V}) nats in the first row and (?P<w>{V}) after it: it is 0 where", first_row),
    (rf"(?P<name>{NAME}) is (?P<v>{V}) nats at the first step", first_row),
    (rf"(?P<name>{NAME}), first row: (?P<v>{V})", first_row),
    (rf"(?:although|and) (?P<v>{V}) of groups have different rewards", live_groups),
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
    (rf"rewards within every group are equal in (?P<k>\d+) of {N} (?:rows|steps)(?=, while the largest)", equal_groups),
    (rf"the largest less the least reward(?: is)? (?P<v>{V})", widest),
    (rf"median spread over the batch: (?P<v>{V})", widest),
    (rf"{NAME}, 5 rows before: (?P<v>{V})", zero_once_more),
    (
        rf"(?P<name>{NAME}) is (?P<v>{V}) in the median row and beyond (?P<limit>{V}) in (?P<k>\d+) of {N}"
        rf", up to (?P<top>{V})",
        beyond,
    ),
    (rf"(?P<name>{NAME}) is (?P<v>{V}) nats (?:per token )?or more (?:in every row )?from the first", least_of),
    (rf"smallest (?P<name>{NAME}): (?P<v>{V})", least_of),
    (rf"(?P<name>{NAME}) is (?P<v>{V}) in the median row", median_row),
    (rf"(?P<name>{NAME}), median row: (?P<v>{V})", median_row),
)  # fmt: skip
"""Patterns and checks."""

CAUSES_CONSTANTS: Sequence[tuple[str, str]] = (
    (r"(?:float16 )?overflows at 65,504|such as a V100", "words of advice"),
    (r"the learning rate warms up anew at step [\d,]+|is infinite at step [\d,]+", "told where the reason is told"),
    (r"entropy bonus to 0\.01|sample at temperature 1|temperature near 0|0\.001 to 0\.04(?:, or 0)?", "usual settings"),
    (r"\(usual up to 0\.1, held from 1\)|\(greedy up to 0\.001\)|\(above 0 for a penalty\)", "limits of rules"),
    (r"grad is missing or 0|ZeRO stage|a temperature of 1|infinity × 0|one of 1e-6 is", "words of advice"),
    (r"drawn at a temperature of \d\.?\d*", "a setting"),
    (r"norms of 0\.01 to 10 are usual|below 1e-05|importance weights near 0", "usual numbers"),
    (
        r"largest gradient norm over those before it: [\d.]+|gradient norm after that step over that before it: [\d.]+",
        "told where the reason is",
    ),
    (r"language has 2 at most", "a limit of a rule"),
    (r"rows of \S+ beyond its limit: \d+|beyond its limit in \d+ of \d+ rows", "counted where the reason is told"),
    (r"1e-6 is usual for all weights|1e-5 for adapters|1e-6 or so|move it by 0\.001", "usual rates, and what they do"),
    (r"max_num_gen_batches=0", "a setting"),
    (r"\(hardly moved below 0\.0003\)|\(limit 0\.6 × the first\)", "limits of rules"),
)
"""Numbers that are no statement about the log, and why."""
