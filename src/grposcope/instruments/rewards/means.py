"""What the means of the parts of a reward say where nothing else of them is logged: which rose while which fell; and
what the rewards of groups say where each rollout has one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grposcope.core.answer import Answer, Table
from grposcope.core.run import Floats, Run
from grposcope.core.text import apart, listed, number, percent, visible
from grposcope.instruments.rewards import INSTRUMENT
from grposcope.maths.timeseries.change import FIRST, LATE
from grposcope.signs.quantities import LEAST, MetricSeries, Quantities

SURE = 0.01
"""p-value, times the number of parts, below which a part rose or fell since the first rows."""


def of_run(run: Run) -> Answer | None:
    """Which parts rose and which fell; of rollouts with one reward how they are paid; None where neither is known: for
    a run without rollouts and with fewer than two parts of LEAST rows."""
    parts = {name: series for name, series in Quantities(run).components().items() if len(series) >= LEAST}
    if len(parts) < 2:
        return _of_one_reward(run)
    moves = {name: series.change(FIRST, LATE) for name, series in parts.items()}
    rose = [_went(name, parts[name]) for name, test in moves.items() if test.p_up * len(parts) < SURE]
    fell = [_went(name, parts[name]) for name, test in moves.items() if test.p_down * len(parts) < SURE]
    traded = bool(rose and fell)
    what = f"{listed(fell)} fell while {listed(rose)} rose" if traded else "no part fell while another rose"
    rows = [(visible(name), *apart(*_levels(series))) for name, series in parts.items()]
    return Answer(
        INSTRUMENT.name,
        INSTRUMENT.question,
        word="warning" if traded else "told",
        sentence=f"{what[:1].upper()}{what[1:]}.",
        do="read completions that the rising part pays, and see whether they still do what the falling one is for"
        if traded
        else "",
        text=["Only means of the parts are logged, so the log does not show what each weighs in the advantage."],
        tables=[Table("Means of the parts", ("reward", "first rows", "last fifth"), rows, "")],
        document={"parts": {name: list(_levels(series)) for name, series in parts.items()}, "traded": traded},
    )


def _of_one_reward(run: Run) -> Answer | None:
    """How often one reward is paid in full, and in how many groups it tells siblings apart; None without groups of
    two rollouts or more."""
    rewards = [own[np.isfinite(own)] for own in np.split(run.groups.rewards, run.groups.offsets[1:-1])]
    groups = [own for own in rewards if len(own) > 1]
    if not groups:
        return None
    every = np.concatenate(groups)
    high, low = float(every.max()), float(every.min())
    mixed = sum(bool(np.ptp(own) > 0) for own in groups)
    solved, unpaid = (sum(bool((own == end).all()) for own in groups) for end in (high, low))
    pairs = sum(len(own) * (len(own) - 1) // 2 for own in groups)
    tied = sum(int((counts * (counts - 1) // 2).sum()) for counts in (np.unique(own, return_counts=True)[1]
                                                                     for own in groups))  # fmt: skip
    best = (
        f"at its highest, {number(high)}, on {percent(float((every == high).mean()))}" if high > low else "equal on all"
    )
    return Answer(
        INSTRUMENT.name,
        INSTRUMENT.question,
        word="told",
        sentence=f"One reward has all the weight: {best} of {len(every):,} rollouts; siblings differ in {mixed:,} of "
        f"{len(groups):,} groups.",
        text=["Whether it pays for what is meant is not said by its numbers: the command texts reads the completions "
              "that it pays, and verify grades them again where it is given the reward function.", *_tiny(groups)],
        tables=[Table("The reward", ("", ""), [
            ("mean", number(float(every.mean()))),
            ("different values", f"{len(np.unique(every)):,}"),
            ("groups whose siblings differ", f"{mixed:,} of {len(groups):,}"),
            (f"groups all at {number(high)}", f"{solved:,}"),
            *([(f"groups all at {number(low)}", f"{unpaid:,}")] if high > low else []),
            ("pairs of siblings with one reward", percent(tied / pairs)),
        ], "")],
        document={"rollouts": len(every), "groups": len(groups), "mixed": mixed, "mean": float(every.mean()),
                  "highest": high, "lowest": low, "tied": tied / pairs},
    )  # fmt: skip


_TINY, _RARE, _LIVE = 0.01, 0.02, 20
"""Spread of a group as a share of the median one below which its differences are noise; share of the live groups up to
which these hardly matter, and live groups below which nothing is said."""


def _tiny(groups: Sequence[Floats]) -> list[str]:
    """That some groups have next to no spread, which division by the standard deviation scales up; empty if not."""
    spreads = np.array([own.std() for own in groups if np.ptp(own) > 0])
    if len(spreads) < _LIVE:
        return []
    tiny = int((spreads < _TINY * np.median(spreads)).sum())
    if tiny <= _RARE * len(spreads):
        return []
    return [
        f"In {tiny:,} of the {len(spreads):,} groups whose siblings differ they do so by less than {percent(_TINY)} of "
        "the usual: where advantages are divided by the standard deviation of the group, such differences count as "
        "much as the others, and what they are of, be it noise, is learned."
    ]


def _levels(series: MetricSeries) -> tuple[float, float]:
    """The means over the first rows and over the last."""
    return series.level(FIRST).value, series.level(LATE).value


def _went(name: str, series: MetricSeries) -> str:
    return f"{visible(name, 40)} ({' → '.join(apart(*_levels(series)))})"
