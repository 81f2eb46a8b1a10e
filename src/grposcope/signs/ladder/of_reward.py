"""The rungs of the reward: can the grader pay, are groups mixed, and is the run long enough for a gain to be seen."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grposcope.core.finding import Finding
from grposcope.core.text import brief as short
from grposcope.core.text import number, percent
from grposcope.maths.dead_groups import chance
from grposcope.maths.timeseries.change import LATE
from grposcope.signs import answers, run_outcome
from grposcope.signs.dead_groups import HALF
from grposcope.signs.heldout import are_shares
from grposcope.signs.ladder.rung import Rung, blamed, of_fault, present, to_log
from grposcope.signs.outcome import Outcome
from grposcope.signs.quantities import NO_SPREAD, SHORT, MetricSeries, Quantities
from grposcope.signs.thresholds import DETECTED, OTHERS

GRADER = ("grader", "Can the grader pay?")
MIXED = ("groups", "Are groups mixed, at this size and success rate?")
ROOM = ("room", "Do answers end before the token limit?")
HORIZON = ("horizon", "Is the run long enough to see a gain of a tenth of the range, as most runs that learn have?")

SHARE = ("dead_fraction", "the share of groups with equal rewards")

CUT = ("truncated", "the share of completions cut at the token limit")

CROWDED = 0.15
"""Share of completions cut at the token limit from which a flat run may be flat for it."""

LIMIT = (
    "raise the token limit to two or three times a finished answer, or drop cut completions from the loss (overlong "
    "filtering); compare the reward of those that end with that of all"
)
"""What to do where many completions are cut."""

BY_HAND = "run the reward function by hand on a right answer, as the prompt's template makes the model write it"
"""What decides whether a grader can pay."""


def grader(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether any rollout was paid more than another, and any answer was right."""
    if cause := blamed(findings, ("never paid", "constant reward")):
        return of_fault(*GRADER, cause)
    right = answers.of_run(quantities)
    if right is not None and not right.values.any():
        because = f"{quantities.key(right.name)} is 0 in all {len(right)} rows"
        return Rung(*GRADER, "no", because, because, BY_HAND)
    spread = quantities.get("reward_std", 1)
    if spread is not None and (spread.values > NO_SPREAD).any():
        rows = int((spread.values > NO_SPREAD).sum())
        return Rung(*GRADER, "yes", f"rewards differ in {rows} of {len(spread)} rows ({quantities.key(spread.name)})")
    reward = quantities.get("reward", 1)
    if reward is None:
        return Rung(*GRADER, "cannot tell", "no reward is logged", do=BY_HAND)
    least, key = float(reward.values.min()), quantities.key(reward.name)
    above = int((reward.values > least).sum())
    if above:
        because = f"{key} is above its least value, {number(least)}, in {above} of {len(reward)} rows"
        return Rung(*GRADER, "yes", because)
    same = f"the reward is exactly {least:.6g} in all {len(reward)} rows"
    return Rung(*GRADER, "no", same, same, BY_HAND)


def room(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether fewer than CROWDED of the completions are cut at the token limit, where an answer is not seen."""
    if cause := blamed(findings, ("length", "unseen truncation")):
        return of_fault(*ROOM, cause)
    if present(findings, "end not recognised"):
        because = "completions that ended are counted as cut, so that the log does not say how many are"
        return Rung(*ROOM, "cannot tell", because, do="give the trainer every end token of the model")
    cut = quantities.get("truncated", SHORT)
    if cut is None or cut.values.max() > 1:
        because = (
            quantities.absence("truncated", SHORT)
            if cut is None
            else "the share of cut completions that is logged exceeds 1"
        )
        return Rung(*ROOM, "cannot tell", because, do=to_log(*CUT, quantities.run))
    late = cut.level(LATE).value
    said = f"{percent(late)} of completions are cut at the token limit in the last fifth"
    if late < CROWDED:
        return Rung(*ROOM, "yes", said)
    return Rung(*ROOM, "no", f"{said}, where no answer can be paid", f"{percent(late)} of completions are cut", LIMIT)


def groups(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether half of the groups or more have different rewards: as logged, else by p^G + (1 − p)^G."""
    if cause := blamed(findings, ("starved", "saturated", "dead after a fall", "empty steps")):
        return of_fault(*MIXED, cause)
    dead, p, size = quantities.dead_fraction, _success_rate(quantities), quantities.group_size
    formula = f"; p^G + (1 − p)^G is {percent(chance(p, size))} at p = {short(p)} and G = {size}" if p and size else ""
    do = f"use prompts of medium difficulty or larger groups: {_try(p)}"
    if dead is not None and not quantities.dead_fraction_is_bound and dead.values.max() <= 1:
        late = dead.level(LATE).value
        said = f"{percent(late)} of groups have equal rewards in the last fifth"
        if late > HALF:
            return Rung(*MIXED, "no", said + formula, f"{percent(late)} of groups have equal rewards", do)
        return Rung(*MIXED, "yes", said + formula)
    if p is not None and size is not None and size > 1:
        least = chance(p, size)
        said = f"at least {percent(least)} of groups of {size} have equal rewards at a success rate of {short(p)}"
        if least > HALF:
            return Rung(*MIXED, "no", f"{said}, by p^G + (1 − p)^G", said, do)
        return Rung(
            *MIXED,
            "cannot tell",
            f"{said}, by p^G + (1 − p)^G; prompts that differ have more",
            do=to_log(*SHARE, quantities.run),
        )
    lacks = "no share of dead groups is logged"
    facts = [f"a success rate of {short(p)}"] if p is not None else []
    facts += [f"groups of {size}"] if size else []
    beside = f", only {' and '.join(facts)}" if facts else ""
    return Rung(*MIXED, "cannot tell", lacks + beside, do=f"{to_log(*SHARE, quantities.run)}; or {_try(p)}")


def horizon(quantities: Quantities, findings: Sequence[Finding]) -> Rung:
    """Whether a gain of a tenth of the range would have been seen, by the standard error of the change."""
    outcome = run_outcome.of_run(quantities.run)
    error = outcome.change.se
    steps = run_outcome.steps(quantities.run)
    if steps < SHORT:
        return Rung(*HORIZON, "cannot tell", f"{steps:,} steps are too few to say", do="train longer")
    if not outcome.known or not math.isfinite(error):
        because = outcome.missing or "the change of the outcome has no standard error"
        return Rung(*HORIZON, "cannot tell", because, do="log the reward of every step")
    if not error:
        return Rung(
            *HORIZON, "yes", f"the outcome is the same in every row of {steps:,} steps, so nothing hides in noise"
        )
    seen = DETECTED * error
    change = f"{outcome.end.value - outcome.start.value:+.2g} ± {error:.2g}"
    said = f"a gain below {short(seen)} would hardly have been seen in {steps:,} steps (the change is {change})"
    whole = _range_of(outcome, quantities)
    if whole is None:
        return Rung(*HORIZON, "cannot tell", f"{said}, and the range of the reward is not known",
                    do="log the least and the largest reward of each step")  # fmt: skip
    if seen > OTHERS * whole:
        do = "train longer, with more rollouts per step, or evaluate on held-out problems"
        return Rung(*HORIZON, "no", said, f"a gain below {short(seen)} would hardly be seen", do)
    return Rung(*HORIZON, "yes", said)


def _range_of(outcome: Outcome, quantities: Quantities) -> float | None:
    """The range of the metric of an outcome: 1 for shares, of a reward what the log shows; None where not known."""
    if outcome.heldout or outcome.by_answers:
        shares = are_shares([outcome.start.value, outcome.best.value, outcome.end.value])
        return 1.0 if shares else None
    return quantities.reward_margin(1.0)


def _success_rate(quantities: Quantities) -> float | None:
    """The late share of rollouts that succeed: of right answers, or of rewards that are 0 or 1; None if not known."""
    right = answers.of_run(quantities)
    series: MetricSeries | None = right if right is not None and answers.is_share(right) else None
    if series is None and quantities.binary_rewards:
        series = quantities.get("reward", SHORT)
    return None if series is None else float(min(max(series.level(LATE).value, 0.0), 1.0))


def _try(p: float | None) -> str:
    """The commands that say which groups would be mixed, with the success rate of the log filled in."""
    rate = "the success rate" if p is None else f"a success rate of {p:.2g}"
    return f"grposcope lint on the settings, given {rate}; grposcope plan, where rollouts are logged"
