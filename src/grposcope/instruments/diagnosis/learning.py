"""Did it learn? What became of a run (`signs.run_outcome`) in words, for the terminal, the page and
JSON alike.

The single evaluations are quoted beside it, with the 95 % intervals of `maths.intervals`; nothing is judged by them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

from grposcope.core.estimate import Estimate
from grposcope.core.run import Run
from grposcope.core.text import apart, capitalised, digits_of_shares, number, percent, plain, visible
from grposcope.maths.intervals import shown_interval, trusted
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs import heldout, levels, run_outcome
from grposcope.signs.heldout import Evaluated
from grposcope.signs.levels import Levels
from grposcope.signs.outcome import Direction, Fate, Outcome
from grposcope.signs.quantities import SHORT, Quantities

NOISE = {False: "noise", True: "chance"}
"""What explains a change that is none, of the training reward and of held-out scores."""

CHANGED: dict[Fate, str] = {
    "learned": "rose",
    "stalled": "rose",
    "lost": "rose and fell",
    "fell": "fell",
    "flat": "within noise",
    "solved": "within noise",
    "cannot tell": "cannot tell",
}
"""What became of a run, as a word in a table."""


HALF_DEAD = 0.5
"""Share of late groups without signal that is worth a word beside any outcome."""

_MANY = 2.0
"""How many times as long, or as short, completions are at the end from which that is said beside a fall."""

PARTS = 4
"""Parts of the reward whose levels are said, those that moved most."""


@dataclass(frozen=True)
class Learning:
    """What became of a run, in words.

    evaluations: (step, score) of every held-out evaluation that is a number. clause: what changed from where to where,
    without a capital and a full stop; why nothing can be told where there are no levels. sentence: the same as the
    closing line of a run. details: further sentences: intervals of single evaluations, the change, the best evaluation.
    """

    outcome: Outcome
    evaluations: Evaluated
    clause: str
    sentence: str
    details: tuple[str, ...] = ()

    @property
    def verdict(self) -> Direction:
        """Where the run went."""
        return self.outcome.direction

    @property
    def changed(self) -> str:
        """What became of the run as a word in a table, which says so where it is the training reward that tells."""
        word = CHANGED[self.outcome.fate]
        if self.outcome.heldout or self.outcome.fate == "cannot tell":
            return word
        return f"answers {word}" if self.outcome.by_answers else f"reward {word}"

    @property
    def best(self) -> tuple[int, Estimate] | None:
        """Step and score of the first evaluation with the highest value; None without evaluations."""
        return max(self.evaluations, key=lambda evaluation: evaluation[1].value, default=None)


def of_run(run: Run) -> Learning:
    """What became of a recorded run, in words."""
    result = run_outcome.of_run(run)
    evaluated, said = evaluations(run), clause(result, run_outcome.steps(run.scopes.get(result.task, run)))
    sentence = f"{capitalised(said)}." if result.known else f"Cannot tell whether it learned: {said}."
    if result.direction == "up" and not result.heldout:
        limits = "its held-out evaluations cannot" if len(evaluated) > 1 else "only held-out evaluations would"
        sentence = f"{capitalised(said)}; {limits} show whether this holds on other problems."
    return Learning(result, evaluated, said, sentence, _details(result, evaluated, levels.of_heldout(run), said))


def clause(outcome: Outcome, steps: int) -> str:
    """What became of a run of `steps` steps, as a clause without a capital and a full stop."""
    if not outcome.known:
        return outcome.missing or "the log has no reward and no held-out score"
    what = f"held-out {heldout.name(outcome.name)}" if outcome.heldout else "training reward"
    what = heldout.name(outcome.name) if outcome.by_answers else what
    what += f" of {visible(outcome.task, 60)}" if outcome.task else ""
    top = outcome.before if outcome.direction == "down" else outcome.best  # as the first line has it
    levels = [level.value for level in (outcome.start, top, outcome.end)]
    shares = outcome.heldout and heldout.are_shares(levels)
    start, best, end = (heldout.shown(level, shares, digits_of_shares(*levels)) for level in levels)
    over = f"over {steps:,} step{'s' * (steps != 1)}"
    around = f"around step {outcome.best_step:,}"
    explains = f"than {NOISE[outcome.heldout]} explains"
    since = " and is flat in the second half" if outcome.still else ""
    if outcome.fate == "cannot tell":
        return f"{what} {_untold(outcome, start, best, end, over, around)}"
    fell = f"{what} fell from {best} ({around}) to {end}"
    # the best rows are among those of the start, which they did not rise from
    early = not outcome.heldout and outcome.best_step - outcome.first < EARLY[1] * (outcome.last - outcome.first)
    if outcome.before == outcome.start:
        fell = f"{what} fell from {start} to {end} {over}, more {explains}"
    peaked = outcome.heldout and best != end and outcome.gain > 0 and outcome.direction != "down"
    peak = f"; its best was {best} {around}" if peaked else ""
    said = {
        "learned": f"{what} rose from {start} to {end} {over}, more {explains}{since}",
        "stalled": f"{what} rose from {start} to {end}{since}",
        "solved": _held(what, start, end, over, outcome.sum_of_parts),
        "lost": fell if early else f"{what} rose from {start} to {best} {around} and then fell to {end}",
        "fell": fell,
        "flat": f"{what} stayed at {end} {over}"
        if start == end
        else f"{what} went from {start} to {end} {over}, no gain shown",
    }[outcome.fate]
    return said + peak + _left_out(outcome)


def _left_out(outcome: Outcome) -> str:
    """That a short dip is left out of what is said, and when it was; empty without one."""
    dip = outcome.dip
    if dip is None:
        return ""
    when = f"step {dip.first:,}" if dip.first == dip.last else f"steps {dip.first:,} to {dip.last:,}"
    return f"; {when}, far below those around, left out: an outage of the grader, a tool or the sampler looks so"


def _held(what: str, start: str, end: str, over: str, sum_of_parts: bool) -> str:
    """That an outcome held the top of its range; of a sum of parts, whose top is not known, only where it was."""
    if not sum_of_parts:
        return f"{what} was near the top of its range from the start and ended at {end}"
    course = f"stayed at {end} {over}" if start == end else f"went from {start} to {end} {over}"
    return f"{what} {course}, and how high the sum of its parts can be is not logged"


def _other_falls(run: Run, outcome: Outcome) -> tuple[str, ...]:
    """A clause for every other score that lost a quarter of what it had: from where to where."""
    said = []
    for fall in run_outcome.other_falls(run, outcome):
        levels = (fall.before.value, fall.end.value)
        shares, digits = heldout.are_shares(levels), digits_of_shares(*levels)
        first, last = (heldout.shown(level, shares, digits) for level in levels)
        named = heldout.name(fall.name)
        held_out = f"held-out {named} fell from {first} to {last}"
        said.append(
            held_out if fall.heldout else f"{named} fell from {first} to {last} on the {fall.end.n} rows that have it"
        )
    return tuple(said)


def parts(run: Run) -> str:
    """From where to where the parts of the reward went that moved most, as a clause; empty for fewer than two."""
    series = Quantities(run).components()
    if len(series) < 2:
        return ""
    seen = {name: heldout.present for name, heldout in series.items()}
    moved = sorted(seen, key=lambda name: -abs(seen[name].rise.value))[:PARTS]
    went = (f"{visible(name, 40)} {' → '.join(apart(seen[name].first.value, seen[name].last.value))}" for name in moved)
    return f"parts of the reward: {', '.join(went)}"


def dead_groups(run: Run) -> str:
    """How many groups have equal rewards at last, as a clause, where it is half of them or more; else empty."""
    quantities = Quantities(run)
    dead = quantities.dead_fraction
    if dead is None or dead.values.max() > 1 or dead.values.min() < 0:
        return ""
    first, last = dead.present.first.value, dead.present.last.value
    least = "at least " if quantities.dead_fraction_is_bound else ""
    went = f"{least}{percent(last)} of groups have equal rewards in the last fifth, and teach nothing"
    return f"{went} ({percent(first)} at first)" if last >= HALF_DEAD else ""


def beside(run: Run, outcome: Outcome, flagged: Collection[str]) -> tuple[str, ...]:
    """Clauses on what went beside an outcome: other scores that fell, the reward beside a held-out score, the length
    beside a fall; none of what the flagged faults say, and "" for what there is not."""
    reward = "" if "reward hacking" in flagged else _reward_beside(run, outcome)
    length = "" if {"length", "answers shorten"} & set(flagged) else _lengths(run, outcome)
    return (*_other_falls(run, outcome), reward, length)


def _reward_beside(run: Run, outcome: Outcome) -> str:
    """That the training reward rose, as a clause, where the outcome is a held-out score that did not; else empty."""
    if not outcome.heldout or outcome.direction == "up" or outcome.fate == "solved":
        return ""
    reward = run_outcome.of_reward(Quantities(run))
    return clause(reward, run_outcome.steps(run)) if reward.known and reward.direction == "up" else ""


def _lengths(run: Run, outcome: Outcome) -> str:
    """From where to where the completions went of an outcome that fell, as a clause, where they are _MANY times as long
    or as short at the end; else empty."""
    length = Quantities(run).get("length", SHORT) if outcome.direction == "down" else None
    if length is None or length.values.min() <= 0:
        return ""
    first, last = length.present.first.value, length.present.last.value
    moved = max(first, last) >= _MANY * min(first, last)
    return f"meanwhile completions went from {number(first)} to {number(last)} tokens" if moved else ""


def _untold(outcome: Outcome, start: str, best: str, end: str, over: str, around: str) -> str:
    """What an outcome that cannot be told did, and why it cannot be told, without its subject."""
    higher = f"went from {start} to {best} {around} and ended at {end}"
    if outcome.heldout and outcome.best_step < outcome.last and outcome.gain > 0:
        return higher
    if not outcome.heldout and outcome.doubt == "lost":
        return f"{higher}; this may be a loss or slow random drift"
    if outcome.doubt == "wandering":
        more = "a longer run" if outcome.sampled else "a longer run or the number of rollouts per step"
        wanders = f"which may be slow random drift ({more} would show which)"
        return f"went from {start} to {end} {over}, {wanders}"
    if not outcome.heldout and start == best == end and not outcome.change.se:
        return f"was {end} in every row {over}, so there is no change to test"
    return f"went from {start} to {end} {over}, no more than {NOISE[outcome.heldout]} explains"


def evaluations(run: Run) -> Evaluated:
    """(step, score) of every held-out evaluation of a run that is a number."""
    rows = heldout.evaluations(run, metric) if (metric := score(run)) else ()
    return tuple(row for row in rows if math.isfinite(row[1].value))


def score(run: Run) -> str:
    """The held-out score of a run that is looked at; empty if it has none."""
    return next(iter(heldout.of_run(run)), "")


def ends(run: Run) -> dict[str, Any] | None:
    """First and last level of the held-out score with intervals, and what became of it; None without evaluations."""
    evaluated, seen = evaluations(run), levels.of_heldout(run)
    if not evaluated or seen is None:
        return None
    said: dict[str, Any] = {name: level for name, level in seen.document().items() if name in ("first", "last")}
    if len(evaluated) > 1:
        outcome = run_outcome.of_heldout(Quantities(run))
        change = replace(outcome.change, flag=outcome.missing)
        said["change"] = {**asdict(change), "verdict": outcome.direction, "fate": outcome.fate}
    return said


def _details(outcome: Outcome, evaluated: Evaluated, seen: Levels | None, clause: str) -> tuple[str, ...]:
    """Sentences about single evaluations beside `clause`, and the change behind the outcome; none without two."""
    if len(evaluated) < 2:
        return ()
    last = evaluated[-1][1]
    shares = heldout.are_shares(value.value for _, value in evaluated)
    said = []
    if seen is not None and math.isfinite(seen.first.se + seen.last.se):
        basis = f"over {seen.last.n:,} problems" if seen.last.n else "estimated from neighbouring evaluations"
        count = len(evaluated[level.rows(len(evaluated), LATE, least=1)])
        which = "at the last" if count == 1 else f"for the mean of the last {count}"
        ends = (
            f"{shown_interval(seen.first, shares)} at the first evaluation, {shown_interval(seen.last, shares)} {which}"
        )
        wilson = (
            ""
            if trusted(seen.first) and trusted(seen.last)
            else (" These are Wilson intervals, because there are few problems or all have the same score.")
        )
        said = [f"95% intervals: {ends}, {basis}.{wilson}{_change(outcome, shares)}"]
    step, best = max(evaluated, key=lambda evaluation: evaluation[1].value)
    if best.value > last.value and f"around step {outcome.best_step:,}" not in clause:
        said.append(f"The highest single evaluation was {heldout.shown(best.value, shares, 1)}, at step {step:,}.")
    return tuple(said)


def _change(outcome: Outcome, shares: bool) -> str:
    """The change of the held-out score with its standard error, as a further sentence; empty by the reward."""
    if not outcome.heldout or not math.isfinite(outcome.change.se):
        return ""
    value, error = _difference(outcome.change.value, shares), _difference(outcome.change.se, shares)[1:]
    return f" The change is {value}{' points' * shares}, with a standard error of {error}."


def _difference(value: float, shares: bool) -> str:
    """A difference of scores with its sign, of shares in percentage points."""
    return plain(f"{100 * value:+.1f}" if shares else f"{value:+.3g}")
