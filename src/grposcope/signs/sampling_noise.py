"""How much the mean reward of a row varies because its prompts and rollouts are drawn anew, from what a log says.

With P prompts × G rollouts, N = P G, rewards of variance s² in all and w² within prompts, s² = w² + b²,

    Var(mean) = b²/P + w²/N = s²/N (1 + (G − 1) ρ),   ρ = b²/s², the intraclass correlation

(Kish 1965, Survey Sampling: the design effect of clusters). If every step has the same prompts, b² is not drawn anew:
w²/N. Logs rarely hold b and w apart, so there are bounds:

    least:   s²/N, rollouts of a prompt no more alike than others; w²/N where the spread within groups is logged
    largest: b²/P + w²/N with what is known: s² ≤ s²/P; where only w is logged, b² ≤ w² unless rewards are 0 or 1

0/1 rewards of mean p have s² = p (1 − p). A row that is the mean over W steps has W times the prompts and rollouts.

Rollouts per step, from the first of these that is there: groups of rollouts; the settings rollouts, or prompts and
group; a column of rollouts; tokens of the batch over tokens of a rollout; the slope of tokens of a step over the
length of its completions, where prompts have tokens too.
"""

from __future__ import annotations

import math

import numpy as np

from grposcope.core.errors import UserError
from grposcope.core.run import Groups, Run
from grposcope.core.text import number
from grposcope.maths.timeseries.mean_curve import SamplingVariance
from grposcope.maths.timeseries.noise import Array

LARGEST = 16
"""Rollouts per prompt, at most, where the log does not say."""

SHORT = 12
"""Rows of spreads or tokens below which nothing is made of them."""

STEADY = 0.01
"""Relative difference from row to row of a number of rollouts that tokens give, above which it is none."""

SURE = 0.25
"""Relative standard error of a number of rollouts above which it is not used."""


def of_reward(run: Run) -> SamplingVariance | None:
    """Bounds of the variance that sampling adds to the mean reward of a row; None where unknown."""
    rollouts, _ = per_step(run)
    within, total = _spreads(run)
    if not rollouts >= 1 or not (within > 0 or total > 0):
        return None
    rows = rollouts * run.window
    prompts = max(rows / (group_size(run) or LARGEST), 1.0)
    inside = within if within > 0 else 0.0
    between = max(total - inside, 0.0) if total > 0 else within
    low = (within if within > 0 else total) / rows
    return SamplingVariance(low, max(low, between / prompts + inside / rows))


def per_step(run: Run) -> tuple[float, str]:
    """Rollouts per optimiser step, and what says so; NaN where nothing does."""
    groups, table = run.groups, run.table
    if len(groups):
        return len(groups.rewards) / len(np.unique(groups.step)), "the groups of rollouts"
    rollouts, prompts, size = _number(run, "rollouts"), _number(run, "prompts"), group_size(run)
    if rollouts > 0:
        return rollouts, "the settings"
    if prompts > 0 and size:
        return prompts * size, "the settings"
    if (logged := _mean(table.get("rollouts"))) > 0:
        return logged, "the log"
    each = table.get("length", np.empty(0))
    for tokens, prompt in (("tokens", 0.0), ("tokens_batch", table.get("prompt_length", math.nan))):
        if tokens in table and len(each) and (counted := _steady(table[tokens] / np.maximum(each + prompt, 1e-9))) > 0:
            return counted, "the tokens of a batch"
    return _slope(run), "the tokens of a step"


def group_size(run: Run) -> int | None:
    """Rollouts per group, from the groups or the settings; None if neither says."""
    if len(run.groups):
        return int(np.median(run.groups.sizes))
    size = _number(run, "group")
    return int(size) if size >= 1 else None


def binary(run: Run) -> bool:
    """Whether rewards are 0 or 1: every batch's least and largest are, or the setting rewards=binary says so.

    UserError where a reward of the log contradicts the setting.
    """
    if run.setting("rewards") == "binary":
        for name in ("reward", "reward_min", "reward_max"):
            values = run.table.get(name, np.empty(0))
            wrong = values[(values < 0) | (values > 1)]
            if len(wrong):
                raise UserError(
                    f"{run.meta.source}: the setting rewards=binary says that every reward is 0 or 1, and {name} is "
                    f"{number(float(wrong[0]))}; leave the setting out"
                )
        return True
    ends = [run.table.get(name) for name in ("reward_min", "reward_max")]
    seen = [end[np.isfinite(end)] for end in ends if end is not None]
    return len(seen) == 2 and all(len(end) and np.isin(end, (0.0, 1.0)).all() for end in seen)


def _spreads(run: Run) -> tuple[float, float]:
    """Variance of the rewards within groups, and in all, mean over the run; NaN where it is not known."""
    if len(run.groups):
        return _of_groups(run.groups)
    table = run.table
    squares = [_mean(np.square(table[name])) for name in ("reward_std", "reward_std_unclear") if name in table]
    within = next((square for square in squares if square > 0), math.nan)
    total = _mean(np.square(table["reward_std_batch"])) if "reward_std_batch" in table else math.nan
    if binary(run) and "reward" in table:
        p = np.clip(table["reward"], 0, 1)
        total = _mean(p * (1 - p))
    return within, total


def _of_groups(groups: Groups) -> tuple[float, float]:
    """Variances (ddof 1) within groups, and within groups and between the groups of a step together."""
    sizes, starts = groups.sizes, groups.offsets[:-1]
    rewards = np.where(np.isfinite(groups.rewards), groups.rewards, 0.0)
    means = np.add.reduceat(rewards, starts) / sizes
    free = int((sizes - 1).sum())
    within = float(np.square(rewards - np.repeat(means, sizes)).sum()) / free if free else math.nan
    _, step = np.unique(groups.step, return_inverse=True)
    count = np.bincount(step)
    rest = means - (np.bincount(step, means) / count)[step]
    free = len(means) - len(count)
    between = (
        float(rest @ rest) / free - (within / float(np.median(sizes)) if within > 0 else 0.0) if free else math.nan
    )
    return within, (within if within > 0 else 0.0) + max(between, 0.0) if free else math.nan


def _finite(values: Array | None) -> Array:
    """The finite values; none where there are fewer than SHORT."""
    finite = np.empty(0) if values is None else values[np.isfinite(values)]
    return finite if len(finite) >= SHORT else np.empty(0)


def _mean(values: Array | None) -> float:
    finite = _finite(values)
    return float(finite.mean()) if len(finite) else math.nan


def _steady(values: Array) -> float:
    """The median of a number that all rows share; NaN where half of the rows differ from it by more than STEADY."""
    finite = _finite(values)
    middle = float(np.median(finite)) if len(finite) else math.nan
    return middle if len(finite) and np.median(np.abs(finite - middle)) <= STEADY * abs(middle) else math.nan


def _slope(run: Run) -> float:
    """Rollouts per step: the slope of tokens per step over the length of completions; prompts are the intercept."""
    if "tokens_total" not in run.table or "length" not in run.table:
        return math.nan
    steps, total, length = (run.table[name] for name in ("step", "tokens_total", "length"))
    there = np.isfinite(total) & np.isfinite(length)
    per, x = np.diff(total[there]) / np.maximum(np.diff(steps[there]), 1), length[there][1:]
    x, per = x[per > 0], per[per > 0]
    if len(x) < SHORT or np.ptp(x) == 0:
        return math.nan
    centred = x - x.mean()
    slope = float(centred @ per / (centred @ centred))
    rest = per - per.mean() - slope * centred
    error = math.sqrt(float(rest @ rest) / (len(x) - 2) / float(centred @ centred))
    return min(slope, float((per / x).mean())) if error < SURE * slope else math.nan


def _number(run: Run, name: str) -> float:
    """A setting as a number; NaN where it is none, or not finite."""
    value = run.setting(name)
    try:
        number = math.nan if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan
