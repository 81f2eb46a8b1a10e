"""Made-up runs that fail, or are worth a warning, in ways that are plain to the eye; `plain_runs` lists them.

Each is a function of a generator and a number of rows.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import plain_world as worlds
from plain_world import Array, Plain, World, plain
from synthetic_series import Columns

from grposcope.core.files import WRITTEN_NAN

Generator = np.random.Generator

FAILING = ("failing",)
WARNING = ("warning",)
EITHER = ("failing", "warning")

LONG = 100
"""Rows from which on a run without any gain has had its chance."""

LEVELS = (
    r"→|(reward|score|accuracy|held.out|right).{0,60}(fell|fall|lost|down|dropp|decline|collapse)|collapsed from",
)
CUT = (r"cut|limit|truncat",)
DEAD = (r"group|nothing to learn|same reward|no gradient|all wrong|never|reward is exactly|paid exactly",)
NUMBERS = (r"NaN|infin|\binf\b|not finite|not a number|no number",)
FROM_THE_START = (r"from the start", r"since step 1\b(?![,\d])", r"easier prompts", r"starved")


def proved(w: World) -> tuple[str, ...]:
    """Grades for no gain with a visible reason: with few rows a warning is right as well."""
    return FAILING if w.rows > LONG else EITHER


def all_cut(rng: Generator, n: int) -> Plain:
    """Every completion is cut at the limit in every row, and the reward stays where it began, mostly at the bottom."""
    w = worlds.world(rng, n)
    rate = rng.choice([0.0, 0.0, 0.02, rng.uniform(0.05, 0.4)])
    table = worlds.columns(w, worlds.rollouts(w, np.full(n, rate)))
    return plain(w, table | worlds.cut_columns(w, 1.0), FAILING, must=CUT, began=(0, 0))


def mostly_cut(rng: Generator, n: int) -> Plain:
    """60 to 97 % of the completions are cut throughout, and the reward does not move."""
    w = worlds.world(rng, n)
    share = rng.uniform(0.6, 0.97)
    rate = np.full(n, (1 - share) * rng.uniform(0.1, 0.8))
    table = worlds.columns(w, worlds.rollouts(w, rate))
    return plain(w, table | worlds.cut_columns(w, share), proved(w), must=CUT, began=(0, 0))


def constant_from(rng: Generator, n: int) -> Plain:
    """The reward varies, with or without a gain, and is exactly the least one in the last third to four fifths."""
    w = worlds.world(rng, n)
    at = int(n * rng.uniform(0.2, 0.67))
    rate = worlds.rise(w, 0.2, rng.uniform(0.2, 0.6))
    rewards = worlds.rollouts(w, np.where(np.arange(n) < at, rate, 0.0))
    table = worlds.columns(w, rewards, 0.5)
    must = (r"constant|exactly|same|stuck|reward.{0,60}(fell|lost|down|dropp|decline|collapse)|→",)
    return plain(w, table, FAILING, must=must, began=(at, at), false=FROM_THE_START)


def never_a_right_one(rng: Generator, n: int) -> Plain:
    """No rollout ever earns anything: the least reward in all rows, and all groups dead."""
    w = worlds.world(rng, n)
    table = worlds.columns(w, worlds.rollouts(w, np.zeros(n)))
    return plain(w, table, FAILING, must=DEAD, began=(0, 0), false=(r"too few rows", r"near the top"))


def dying_groups(rng: Generator, n: int) -> Plain:
    """A third to a half of the groups are dead at first, 60 to 95 % in the end, as rollouts repeat each other; no gain.

    The dead groups grow in the first or middle half of the run.
    """
    w = worlds.world(rng, n, group=8, spread=rng.uniform(0.3, 0.8), parts=1)
    first, last, begin = rng.uniform(0.33, 0.5), rng.uniform(0.6, 0.95), int(n * rng.uniform(0.1, 0.5))
    copies = first + (last - first) * worlds.ramp(n, begin, n // 3)
    table = worlds.columns(w, worlds.rollouts(w, np.full(n, rng.uniform(0.3, 0.6)), copies))
    return plain(w, table, FAILING, must=DEAD, began=(begin, begin + n // 3))


def dying_steps(rng: Generator, n: int) -> Plain:
    """Two prompts a step: 40 to 50 % of the steps have no live group at first, 60 to 80 % in the end; no gain.

    The gradient of such a step is 0, and the largest is at most 2.6 × the upper quartile of the live ones.
    """
    w = worlds.world(rng, n, prompts=2, group=8, parts=1, spread=0.5)
    dead = rng.uniform(0.4, 0.5) + rng.uniform(0.2, 0.3) * w.u
    table = worlds.columns(w, worlds.rollouts(w, np.full(n, rng.uniform(0.3, 0.6)), np.sqrt(dead)))
    table["grad_norm"] = worlds.live_norms(w, table)
    return plain(w, table, FAILING, must=DEAD, keep=("grad_norm",), false=(r"spike",))


def quick_fall(rng: Generator, n: int) -> Plain:
    """Nearly all right, until the reward falls from 0.95 to 0 within 15 rows, and stays there; little noise or much."""
    w = worlds.world(rng, n, wander=float(rng.choice([0.0, 0.05, 0.3])), spread=rng.uniform(0.3, 2.0))
    at, width = int(n * rng.uniform(0.3, 0.85)), int(rng.integers(2, 16))
    gone = worlds.ramp(n, at, width)
    rewards = worlds.rollouts(w, 0.95 * (1 - gone))
    table = worlds.columns(w, rewards)
    table["entropy"] *= np.exp(gone * rng.choice([-2.0, 0.0, 1.0, 2.0]))
    return plain(w, table, FAILING, must=LEVELS, began=(at, at + width), false=FROM_THE_START)


def dead_and_entropy_up(rng: Generator, n: int) -> Plain:
    """From 0.88 to 0.01 within 5 to 20 % of the run, every group dead in the end, and entropy up three- to tenfold."""
    w = worlds.world(rng, n)
    at, width = int(n * rng.uniform(0.3, 0.7)), max(int(n * rng.uniform(0.05, 0.2)), 2)
    gone = worlds.ramp(n, at, width)
    rate = 0.88 * (1 - gone) + np.where(gone == 1, rng.choice([0.0, 0.0005]), 0.01 * gone)
    table = worlds.columns(w, worlds.rollouts(w, rate))
    table["entropy"] *= np.exp(np.log(rng.uniform(3, 10)) * gone)
    return plain(w, table, FAILING, must=LEVELS, began=(at, at + width), false=FROM_THE_START)


def drifts_down(rng: Generator, n: int) -> Plain:
    """The reward drifts from about 0.85 to about 0.50 over the whole run or its last two thirds."""
    w = worlds.world(rng, n, wander=rng.uniform(0, 0.5), phi=rng.uniform(0, 0.9))
    begin = int(n * rng.choice([0.0, 0.0, 0.33]))
    rate = rng.uniform(0.82, 0.88) - rng.uniform(0.32, 0.4) * worlds.ramp(n, begin, n - begin)
    table = worlds.columns(w, worlds.rollouts(w, rate), w.u)
    return plain(w, table, FAILING, must=LEVELS, began=(begin, begin + n // 2))


def from_a_file(w: World, made: Plain) -> Plain:
    """The same, in half of all cases with the run that the readers make of its rows."""
    return replace(made, run=worlds.through_the_reader(made.run.table)) if w.rng.random() < 0.5 else made


def numbers_gone(rng: Generator, n: int) -> Plain:
    """A run that gains, until loss, gradient, KL or entropy are NaN in the last 1, 5, 10 or 20 rows or 55 to 90 %.

    Half of them are read from a file.
    """
    w = worlds.world(rng, n)
    table = worlds.columns(w, worlds.rollouts(w, worlds.rise(w, 0.2, 0.7)), w.u)
    lost = int(rng.choice([1, 5, 10, 20, n * rng.uniform(0.55, 0.9)]))
    names = ("loss", "grad_norm", "kl", "entropy")
    chosen = names if rng.random() < 0.4 else tuple(rng.choice(names, rng.integers(1, 4), replace=False))
    for name in chosen:
        table[name][n - lost :] = math.inf if name == "loss" and rng.random() < 0.2 else WRITTEN_NAN
    return from_a_file(w, plain(w, table, FAILING, must=NUMBERS, began=(n - lost, n - lost), keep=names))


def numbers_left_out(rng: Generator, n: int) -> Plain:
    """Read from a file: a gain, until loss, gradient, KL and entropy are all null while the reward goes on.

    The writer may have had no other way to write NaN, so that a warning or a question is right as well.
    """
    w = worlds.world(rng, n)
    table = worlds.columns(w, worlds.rollouts(w, worlds.rise(w, 0.2, 0.7)), w.u)
    lost = int(rng.choice([5, 10, 20, n * rng.uniform(0.55, 0.9)]))
    for name in ("loss", "grad_norm", "kl", "entropy"):
        table[name][n - lost :] = math.nan
    must = (*NUMBERS[:1], r"null|missing|absent|not logged|no longer|stop|ends?\b|gone")
    made = plain(w, table, (*EITHER, "cannot tell"), must=("|".join(must),), began=(n - lost, n - lost),
                 keep=("loss", "kl"))  # fmt: skip
    return replace(made, run=worlds.through_the_reader(made.run.table))


def reward_gone(rng: Generator, n: int) -> Plain:
    """A reward that is NaN or infinite, in the last rows or here and there, of which a warning is enough.

    Half of the runs are read from a file.
    """
    w = worlds.world(rng, n)
    table = worlds.columns(w, worlds.rollouts(w, worlds.rise(w, 0.2, 0.7)), w.u)
    lost = int(rng.choice([1, 5, 10, n * rng.uniform(0.2, 0.85)]))
    last = rng.random() < 0.6
    rows = np.arange(n - lost, n) if last else np.sort(rng.choice(np.arange(2, n - 1), lost, replace=False))
    value = rng.choice([WRITTEN_NAN, math.inf, -math.inf]) if rng.random() < 0.4 else WRITTEN_NAN
    table["reward"][rows] = value
    return from_a_file(
        w, plain(w, table, FAILING if last else EITHER, must=NUMBERS, began=(int(rows[0]), int(rows[0])))
    )


def kl_explosion(rng: Generator, n: int) -> Plain:
    """KL leaves its level and is 3 to 3,000 nats after 5 to 25 % of the run; the reward is lost as it passes 1."""
    w = worlds.world(rng, n)
    at, width = int(n * rng.uniform(0.25, 0.65)), max(int(n * rng.uniform(0.05, 0.25)), 3)
    low, top = rng.uniform(0.01, 0.1), 10 ** rng.uniform(0.5, 3.5)
    way = worlds.ramp(n, at, width)
    passed = at + int(width * math.log(1 / low) / math.log(top / low))
    rate = worlds.rise(w, 0.2, 0.7) * (1 - worlds.ramp(n, passed, max(width // 3, 2)))
    table = worlds.columns(w, worlds.rollouts(w, rate), w.u)
    table["kl"] = w.noisy(low * (top / low) ** way, 0.15)
    return plain(w, table, FAILING, must=LEVELS, named=(r"KL",), keep=("kl",), began=(at, passed + width // 3))


def late_collapse(w: World) -> tuple[Array, int, int]:
    """Entropy as a share of its first level (N,), which falls ever faster to 1 to 5 %, and rows where it passes two
    levels for good: 0.25, above any limit in use, and the last."""
    depth, power = -math.log(w.rng.uniform(0.01, 0.05)), w.rng.uniform(1.5, 4)
    share = np.exp(-depth * (w.u / w.u[-1]) ** power)
    return share, int(np.argmax(share < 0.25)), w.rows - 1


def entropy_gone(rng: Generator, n: int) -> Plain:
    """Entropy falls ever faster, below a fifth late in the run; the reward does not move at any time."""
    w = worlds.world(rng, n)
    share, begin, end = late_collapse(w)
    table = worlds.columns(w, worlds.rollouts(w, np.full(n, rng.uniform(0.2, 0.6)), 0.8 * (1 - share) ** 4))
    table["entropy"] = w.noisy(rng.uniform(0.3, 1.5) * share, 0.05)
    return plain(w, table, FAILING, named=(r"entropy",), began=(begin, end))


def entropy_gone_reward_lost(rng: Generator, n: int) -> Plain:
    """A gain, of which most is lost as entropy falls below a fifth of its first level."""
    w = worlds.world(rng, n)
    share, begin, end = late_collapse(w)
    top = rng.uniform(0.5, 0.8)
    up = 0.2 + (top - 0.2) * np.minimum(np.arange(n) / (0.6 * begin), 1)
    rate = up - rng.uniform(0.6, 1.0) * (top - 0.2) * worlds.ramp(n, begin, max(n // 12, 3))
    table = worlds.columns(w, worlds.rollouts(w, rate), w.u)
    table["entropy"] = w.noisy(rng.uniform(0.3, 1.5) * share, 0.05)
    return plain(w, table, FAILING, must=LEVELS, named=(r"entropy",), began=(begin, end))


def length_collapse(rng: Generator, n: int) -> Plain:
    """Completions of hundreds of tokens shrink to 2 to 8 within 5 to 20 % of the run, and the reward is lost."""
    w = worlds.world(rng, n)
    at, width = int(n * rng.uniform(0.3, 0.7)), max(int(n * rng.uniform(0.05, 0.2)), 2)
    gone = worlds.ramp(n, at, width)
    rate = worlds.rise(w, 0.25, 0.7) * (1 - rng.uniform(0.8, 1.0) * gone)
    table = worlds.columns(w, worlds.rollouts(w, rate), w.u)
    few = rng.uniform(2, 8)
    table["length"] = np.maximum(table["length"] ** (1 - gone) * few**gone, 1)
    table["truncated"] = np.where(gone > 0, 0.0, table["truncated"])
    return plain(w, table, FAILING, must=LEVELS, named=(r"length|token|short|complet",), began=(at, at + width))


def hardly_any_gain(rng: Generator, n: int) -> Plain:
    """From 0.013 to 0.019 of 1 in more than 100 rows, 90 % of the groups dead since nearly all answers are wrong."""
    w = worlds.world(rng, n, group=8, parts=1, spread=rng.uniform(0.3, 1.0))
    rewards = worlds.rollouts(w, np.linspace(0.013, 0.019, n))
    return plain(w, worlds.columns(w, rewards), FAILING, must=DEAD, began=(0, 0), false=(r"\bhealthy\b",),
                 keep=("reward_std", "reward_min", "reward_max"))  # fmt: skip


def held_out_lost(rng: Generator, n: int) -> Plain:
    """The training reward rises throughout; held-out accuracy loses 50 to 100 % of what it had gained."""
    w = worlds.world(rng, n)
    table = worlds.columns(w, worlds.rollouts(w, worlds.rise(w, 0.3, 0.9)), w.u)
    peak, low = rng.uniform(0.3, 0.5), rng.uniform(0.1, 0.4)
    gain = rng.uniform(0.3, 0.4)
    held = low + gain * np.minimum(w.u / peak, 1)
    held = held - rng.uniform(0.5, 1.0) * gain * np.clip((w.u - peak) / (0.9 - peak), 0, 1)
    rows = (int(n * peak), int(n * 0.9))
    return plain(w, table, FAILING, must=LEVELS, named=(r"held|accuracy|eval",), began=rows,
                 held=worlds.evaluated(w, held))  # fmt: skip


RIGHT = ("correctness", "accuracy", "answer_correct", "exact_match", "solved")
FORM = ("format", "soft_format", "xml_tags", "think_tags", "strict_format")


def two_parts(w: World, first: tuple[str, Array], second: tuple[str, Array]) -> Columns:
    """Columns of a run whose reward is the sum of two components, names and success rates (N,)."""
    parts = {name: worlds.rollouts(w, rate) for name, rate in (first, second)}
    table = worlds.columns(w, np.asarray(sum(parts.values())), w.u)
    for name, rewards in parts.items():
        table[f"component/{name}"] = rewards.mean((1, 2))
        table[f"component_std/{name}"] = rewards.reshape(w.rows, -1).std(1, ddof=1)
    return table


def never_paid(rng: Generator, n: int, names: tuple[str, ...], other: tuple[str, ...], words: tuple[str, ...]) -> Plain:
    """The reward rises by a component of `other`; one of `names` is 0 in all rows, which hides its weight."""
    w = worlds.world(rng, n, low=0.0, high=float(rng.choice([0.5, 1.0, 2.0])), parts=1)
    name, rising = str(rng.choice(names)), str(rng.choice(other))
    table = two_parts(w, (name, np.zeros(n)), (rising, worlds.rise(w, 0.2, rng.uniform(0.7, 0.97))))
    both = replace(w, high=2 * w.high)
    return plain(both, table, words, named=(name.replace("_", "[_ ]"),), false=(r"no weight",))


def right_never_paid(rng: Generator, n: int) -> Plain:
    """The reward rises by its format component; the one for right answers is never paid."""
    return never_paid(rng, n, RIGHT, FORM, EITHER)


def format_never_paid(rng: Generator, n: int) -> Plain:
    """The reward rises by the component for right answers; the one for format is never paid: worth a word."""
    return never_paid(rng, n, FORM, RIGHT, (*WARNING, "healthy"))


def gain_with_entropy_spent(rng: Generator, n: int) -> Plain:
    """A large gain, for which entropy fell to less than 5 % of its first level."""
    w = worlds.world(rng, n)
    table = worlds.columns(w, worlds.rollouts(w, worlds.rise(w, 0.2, rng.uniform(0.6, 0.85))), w.u)
    depth = -math.log(rng.uniform(0.005, 0.04))
    table["entropy"] = w.noisy(rng.uniform(0.3, 1.5) * np.exp(-depth * np.minimum(w.u / 0.75, 1)), 0.05)
    return plain(w, table, WARNING, must=(r"entropy",))


def gain_with_cuts(rng: Generator, n: int) -> Plain:
    """A large gain, while the share of completions cut at the limit goes from 5 to 50 %."""
    w = worlds.world(rng, n)
    table = worlds.columns(w, worlds.rollouts(w, worlds.rise(w, 0.2, rng.uniform(0.6, 0.85))), w.u)
    share = 0.05 + 0.45 * np.minimum(w.u / 0.85, 1)
    return plain(w, table | worlds.cut_columns(w, share, 0.5), WARNING, must=CUT)


def reason_in_few_rows(rng: Generator, n: int) -> Plain:
    """12 to 29 rows without a gain, in which 70 to 95 % of the groups are dead or 60 to 95 % of completions are cut."""
    w = worlds.world(rng, n, group=8)
    if rng.random() < 0.5:
        copies = np.full(n, rng.uniform(0.7, 0.95))
        return plain(w, worlds.columns(w, worlds.rollouts(w, np.full(n, 0.4), copies)), EITHER, must=DEAD)
    share = rng.uniform(0.6, 0.95)
    table = worlds.columns(w, worlds.rollouts(w, np.full(n, (1 - share) * rng.uniform(0.1, 0.8))))
    return plain(w, table | worlds.cut_columns(w, share), EITHER, must=CUT)
