"""One reward function returns 0 in every row.

What it is
    It never accepts an answer, because it is broken, looks for a column that the data set does not have, or the task is
    too hard; or it is a penalty that nothing incurs.
How it shows
    The reward, a component of it, or a score of right answers, is exactly 0 in every row, or in nearly all; or a
    component has no number in any.
What it does to the gradient
    It has no part in it; its weight is wasted.
What to do
    Run the function by hand on a right answer, in the form that the prompt's template makes the model write it. If that
    is paid, use easier prompts or partial credit.
What decides
    The reward of a right answer, given by hand. Where an evaluation pays and training never does: one training rollout
    graded by hand, and the prompts of the evaluation run through training.
Sources
    verl #1109, an evaluation that pays: https://github.com/volcengine/verl/issues/1109
    slime #1527: https://github.com/THUDM/slime/issues/1527
    TRL #3903: https://github.com/huggingface/trl/issues/3903
    TRL #6966, <think> in the prompt: https://github.com/huggingface/trl/issues/6966
    TRL #5298: https://github.com/huggingface/trl/issues/5298
    method of this project
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Grade, Sign, cannot_tell, fact
from grposcope.core.metrics import VARIANTS
from grposcope.core.text import apart, listed, percent, visible
from grposcope.faults.checks.effective_weights import CHECK
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs.answers import FORM_NAME, counts_answers, is_beside, is_judged, pays_for_answers
from grposcope.signs.heldout import HeldOut, heldout_scores
from grposcope.signs.quantities import LEAST, SHORT, MetricSeries, Quantities
from grposcope.signs.tests import early_level, late_level
from grposcope.signs.thresholds import RISES

_PENALTY = re.compile(r"penal|overlong|repet|length|cost|kl|bann|forbid|violat|invalid|push_?back|unsafe|toxic", re.I)
"""Names of components that are best at 0."""

OTHERS = 3
"""Parts of the reward that are paid, from which on one that never is, and is not named as right answers, only warns."""

HARDLY = 0.75
"""Share of the rows in which a score is 0 that is hardly ever paid."""

LITTLE = 0.05
"""A late mean below this share of the largest row, or of 1, is that of a score that is hardly ever paid."""

UNPAID = (
    "run the reward function by hand on a right answer, as the prompt's template makes the model write it, and with a "
    "row of the data set under the names of its columns; if that is paid, use easier prompts, partial credit, or "
    "fine-tune on examples first"
)
"""What to do where no rollout is ever paid."""

DIFFERS = (
    "grade one training rollout by hand, and run the prompts of the evaluation through training for a step: compare "
    "the prompts as the model gets them (template, images), the reward function and the column with the right answers"
)
"""What to do where no rollout is ever paid and an evaluation is."""

PAID = 0.1
"""Score of every evaluation from which the policy can do what is asked there."""

OF_FORM = (
    "print one completion as the function gets it, beside the end of its prompt: a tag that the chat template opens in "
    "the prompt (<think>) is no part of the completion, and a function that asks for it there pays nobody; so it is of "
    "special tokens that are left out when text is decoded; else use partial credit for parts of the form"
)
"""What to do where a reward of form is never paid."""

OF_NOTHING = (
    "call the function by hand with one row of the data set under the names of its columns: see why it returns None (a "
    "column or a task that it does not find, an exception that is caught), and let it raise instead"
)
"""What to do where a reward function returns nothing for every rollout."""

UNPAID_FOLLOWS = ("starved", "empty steps", "zero loss", "no learning", "constant reward")

RARELY = 0.01
"""A part of the reward whose mean is below this from first to last pays in one of a hundred rollouts at most."""

LEARNED = 0.2
"""Gain of a part of the reward in [0, 1] that shows that the policy learns, and what it learns."""


def _check(quantities: Quantities) -> Finding:
    """Parts of the reward, and scores of right answers, that are exactly 0 in every row; and the reward, or such a
    score, that hardly ever is not."""
    return _never_a_number(quantities) or _in_one_environment(quantities) or _of_zeros(quantities)


def _of_zeros(quantities: Quantities) -> Finding:
    """The same of columns that have numbers."""
    parts = {series.name: series for series in quantities.components().values()}
    scored = {name: score for name in quantities.run.table if _is_score(name) and (score := quantities.column(name))}
    long = {name: series for name, series in (parts | scored).items() if len(series) >= SHORT}
    deviations = quantities.components("component_std")
    spread = {f"component/{name}" for name, series in deviations.items() if series.values.any()}
    zero = {name: series for name, series in long.items() if not series.values.any() and name not in spread}
    if zero and (len(zero) < len(parts) or not zero.keys() <= parts.keys()):
        return _never(zero, quantities)
    reward = quantities.get("reward", SHORT)
    if reward is not None and not reward.values.any() and _no_spread(quantities):
        return _nothing_ever(reward, quantities, bool(spread))
    scores = [score for name, score in scored.items() if name in long]
    for series in scores if reward is None else (reward, *scores):
        if _hardly(series):
            return _hardly_ever(series, quantities)
    if (unpaid := _unpaid(parts, scored, reward)) is not None:
        return _rarely(unpaid)
    if not parts:
        return cannot_tell(quantities.absent_components(), "components")
    which = "all components" if zero else "no component"
    return fact(False, f"{which} of the reward {'are' if zero else 'is'} 0 in every row")


def _in_one_environment(quantities: Quantities) -> Finding | None:
    """That the reward of an environment is 0 in every row and that of another is not; None where it is not so."""
    scopes = {} if quantities.run.in_turn else quantities.run.scopes
    logged = {name: Quantities(scope).get("reward", LEAST) for name, scope in scopes.items()}
    rewards = {name: series for name, series in logged.items() if series is not None}
    unpaid = [name for name, series in rewards.items() if not series.values.any()]
    if not unpaid or len(unpaid) == len(rewards):
        return None
    names, rows = listed([visible(name, 40) for name in unpaid]), min(len(rewards[name]) for name in unpaid)
    others = listed([visible(name, 40) for name in rewards if name not in unpaid])
    every = f"all {rows} rows" if len(unpaid) == 1 else f"every row, of {rows} or more"
    because = f"the reward of {names} is exactly 0 in {every}, and that of {others} is not"
    evidence = (Sign(f"reward of {names}, every row", 0.0),)
    return fact(True, because, evidence, grades=("warning", "warning"), remedy=UNPAID,
                brief=f"{names}: never paid in {rows} rows{' or more' * (len(unpaid) > 1)}")  # fmt: skip


def _never_a_number(quantities: Quantities) -> Finding | None:
    """That a part of the reward is logged in every row and has a number in none, while the reward has; None if not."""
    reward, table = quantities.get("reward", SHORT), quantities.run.table
    names = [name for name in table if name.startswith("component/") and np.isnan(table[name]).all()]
    if reward is None or not names:
        return None
    because = (
        f"{listed([_called(name) for name in names])} {'has' if len(names) == 1 else 'have'} no number in any of "
        f"{len(reward)} rows, while the reward has: the function returned None (or NaN) for every rollout, so that it "
        "has no part in the reward"
    )
    evidence = tuple(Sign(f"{_called(name)}, rows with a number", 0.0, column=name) for name in names)
    return fact(True, because, evidence, grades=("warning", "warning"), remedy=OF_NOTHING,
                brief=f"{visible(_called(names[0]), 34)} is never a number")  # fmt: skip


def _unpaid(
    parts: Mapping[str, MetricSeries], scored: Mapping[str, MetricSeries], reward: MetricSeries | None
) -> MetricSeries | None:
    """The first of the parts that hardly ever pays where others do, or a score of right answers where the reward rose
    without it; None where there is none."""
    rises = any(is_beside(name.partition("/")[2]) and _rises(series) for name, series in parts.items())
    unpaid = [series for series in parts.values() if _is_unpaid(series, rises)]
    if unpaid and len(unpaid) < len(parts):
        return unpaid[0]
    if reward is None or not _rises(reward):
        return None
    return next((score for name, score in scored.items() if counts_answers(name) and _is_unpaid(score, True)), None)


def _no_spread(quantities: Quantities) -> bool:
    """Whether rewards whose mean is 0 in every row are all 0: nothing in the log says that they spread."""
    spread, low = quantities.get("reward_std", 1), quantities.column("reward_min")
    return (spread is None or not spread.values.any()) and (low is None or not low.values.any())


def _nothing_ever(reward: MetricSeries, quantities: Quantities, spread: bool) -> Finding:
    """That no rollout was ever paid, and whether completions end, so that a grader could see an answer.

    spread: whether the rewards of single functions differ, so that only their sum is 0.
    """
    if spread:
        return fact(False, "rewards of the functions differ, and only their sum is 0 in every row")
    because = f"every rollout has a reward of exactly 0 in all {len(reward)} steps"
    cut = quantities.get("truncated", SHORT)
    share = math.nan if cut is None else 1 - float(cut.values.mean())
    ends = f", although {share:.0%} of completions end before the limit" if share > 0.5 else ""
    evidence = (Sign("rows in which the reward is 0", float(len(reward)), column=reward.name),)
    if (scored := _evaluated(reward, quantities)) is not None:
        return _unlike(scored, because, evidence)
    return fact(
        True,
        because + ends,
        evidence,
        grades=("failing", "failing"),
        brief=because,
        remedy=UNPAID,
        explains=UNPAID_FOLLOWS,
    )


def _evaluated(reward: MetricSeries, quantities: Quantities) -> HeldOut | None:
    """The held-out score that is PAID or more in all evaluations since the first rows; None where none is."""
    since = next(iter(heldout_scores(quantities)), None)
    if since is None:
        return None
    later = since.score.values[since.score.steps >= reward.steps[0]]
    return since if len(later) and later.min() >= PAID and later.max() <= 1 else None


def _unlike(heldout: HeldOut, because: str, evidence: tuple[Sign, ...]) -> Finding:
    """That rollouts are never paid where an evaluation of the same policy is."""
    first, last = (float(heldout.score.values[k]) for k in (0, -1))
    scores = (
        percent(first) if percent(first) == percent(last) else f"{percent(first)} at first, {percent(last)} at the end"
    )
    return fact(
        True,
        f"{because}, while {heldout.title} is {scores}: what training draws or grades differs from the evaluation",
        (*evidence, Sign(heldout.title, last)),
        grades=("failing", "failing"),
        brief=f"{because}, {percent(last, 0)} in evaluation",
        remedy=DIFFERS,
        decides=DIFFERS,
        explains=UNPAID_FOLLOWS,
    )


def _is_score(column: str) -> bool:
    """Whether a column that is no part of the reward says how many answers are right, or a judge's score of them."""
    return not column.startswith("component") and (counts_answers(column) or is_judged(column))


def _never(zero: dict[str, MetricSeries], quantities: Quantities) -> Finding:
    """That these columns are 0 in every row: a warning beside learning where they are right answers."""
    answers = [name for name in zero if counts_answers(name) or is_judged(name)]
    named = [_called(name) for name in answers or zero]
    rows = len(zero[(answers or [*zero])[0]])
    because = f"{listed(named)} {'is' if len(named) == 1 else 'are'} 0 in all {rows} rows"
    evidence = tuple(Sign(f"{_called(name)}, every row", 0.0, 0.0, column=name) for name in zero)
    brief = f"{visible(named[0], 34)} is 0 in all {rows} {zero[(answers or [*zero])[0]].rows}"
    remedy = OF_FORM if all(FORM_NAME.search(name) for name in zero) else ""
    if not answers and (rows < LEAST or all(_PENALTY.search(name) for name in zero)):
        return fact(True, because, evidence, grades=("note", "note"), brief=brief, remedy=remedy)
    others = len(quantities.components()) - sum(name.startswith("component/") for name in zero)
    hard = bool(answers) or (others < OTHERS and not _is_form_beside_answers(zero, quantities))
    instead: Grade = "failing" if hard else "warning"
    grades: tuple[Grade, Grade] = ("warning" if answers else "note", instead)
    return fact(True, because, evidence, grades=grades, brief=brief, remedy=remedy)


def _is_form_beside_answers(zero: Mapping[str, MetricSeries], quantities: Quantities) -> bool:
    """Whether all that is never paid is named as the format or the like, while right answers became more."""
    parts = quantities.components().values()
    learned = any(pays_for_answers(series.name.partition("/")[2]) and _rises(series) for series in parts)
    return learned and all(is_beside(name.partition("/")[2]) for name in zero)


def _hardly(series: MetricSeries) -> bool:
    """Whether a score, never negative, is 0 in HARDLY of its rows and below LITTLE of its largest one at both ends."""
    values = series.values
    ends = [values[level.rows(len(values), part)] for part in (EARLY, LATE)]
    few = np.mean(values == 0) >= HARDLY and all(np.mean(part == 0) >= HARDLY / 2 for part in ends)
    small = max(float(part.mean()) for part in ends) < LITTLE * max(float(values.max()), 1.0)
    return bool(len(values) >= LEAST and values.min() >= 0 and values.any() and few and small)


def _rises(series: MetricSeries) -> bool:
    """Whether a part of the reward gained LEARNED or more, beyond chance."""
    if len(series) < LEAST:
        return False
    gain = series.change(EARLY, LATE)
    return gain.value > LEARNED and gain.p_up < RISES


def _is_unpaid(series: MetricSeries, others: bool) -> bool:
    """Whether a part in [0, 1] that is not named as the format or the like stays below RARELY from first to last, or,
    where it is named as right answers and `others` say that something else was learned, below LITTLE without a gain."""
    values, name = series.values, series.name.partition("/")[2]
    shares = values.min() >= 0 and 0 < values.max() <= 1 and len(values) >= LEAST
    if not shares or is_beside(name):
        return False
    highest = max(float(values[level.rows(len(values), part)].mean()) for part in (EARLY, LATE))
    answers = pays_for_answers(name) or counts_answers(series.name)
    still = others and answers and series.change(EARLY, LATE).p_up > RISES
    return highest < (LITTLE if still else RARELY)


def _rarely(series: MetricSeries) -> Finding:
    """That a part of the reward is next to nothing all along: what is meant may be just that part."""
    first, last = (series.level(part) for part in (EARLY, LATE))
    name, went = _called(series.name), " → ".join(apart(first.value, last.value))
    because = f"{name}, a part of the reward or logged beside it, hardly ever pays: {went}"
    evidence = (early_level(series.name, first.value, first.se), late_level(series.name, last.value, last.se))
    return fact(True, because, evidence, grades=("warning", "warning"), brief=f"{name} hardly ever pays: {went}")


def _hardly_ever(series: MetricSeries, quantities: Quantities) -> Finding:
    """That a score is 0 in nearly all rows."""
    zeros, rows = int((series.values == 0).sum()), len(series)
    name = "the reward" if series.name in VARIANTS["reward"] else _called(series.name)
    because = f"{name} is 0 in {zeros} of {rows} rows"
    evidence = (Sign(f"rows in which {name} is 0", float(zeros), column=series.name),)
    brief = f"{name} is 0 in {zeros} of {rows} {series.rows}"
    return fact(True, because, evidence, grades=("warning", "failing"), brief=brief)


def _called(column: str) -> str:
    """The name of a column in a sentence."""
    return visible(column.removeprefix("component/"), 40)


FAULT = Fault(
    name="never paid",
    rank=120,
    remedy="run this reward function by hand on a right answer, with a row of the data set under the names of its "
    "columns, and check that it is not 0; if it is not, use easier prompts or partial credit",
    effect="unless it is a penalty, the policy learns nothing from it",
    log=LogTest(
        "never paid",
        _check,
        needs=("components",),
        statistic="components of the reward, right answers and scores of judges that are exactly 0 in every row; "
        "rows in which the reward, or such a score, is exactly 0",
        threshold=(
            f"every row of at least {SHORT} rows; for components that do not reward answers, of at least {LEAST}; or "
            f"{HARDLY:g} of at least {LEAST} rows, and a late mean below {LITTLE:g}"
        ),
    ),
    settings=CHECK,
)
