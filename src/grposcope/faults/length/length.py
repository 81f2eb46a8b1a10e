"""Completions are cut at the token limit, grow without reward for it, or shrink to a stub.

Asked as
    completions/clipped_ratio is 1: every completion is cut
What it is
    Answers do not end before the limit, so that the verifier sees none; or the loss or the reward favours length
    itself.
How it shows
    A share of completions at the limit; lengths half as long again without a gain in reward; lengths below a fifth.
What it does to the gradient
    Cut completions are mostly paid 0, so that groups die or long answers are punished for their length alone.
What to do
    Raise the token limit to two or three times a finished answer, or penalise or mask cut completions; check that
    the end token is the model's. For answers that only grow or shrink: a loss that is normalised by a constant (Dr.
    GRPO, DAPO).
What decides
    Ten completions at the limit, read to their end: unfinished answers, or an end token that is not recognised.
Sources
    arXiv:2503.20783 (Dr. GRPO), the length bias of the loss
    arXiv:2503.14476 (DAPO), overlong filtering
    TRL #5697: https://github.com/huggingface/trl/issues/5697
    ms-swift #4950: https://github.com/modelscope/ms-swift/issues/4950
    UniRL #19, cut completions that are paid 0: https://github.com/Tencent-Hunyuan/UniRL/pull/19
    autocontext #1067: https://github.com/greyhaven-ai/autocontext/pull/1067
    CoursIA #13596: https://github.com/jsboige/CoursIA/issues/13596
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact, measured
from grposcope.core.text import apart_shares, number
from grposcope.faults.checks.expected_truncation import CHECK
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import EARLY, FIRST, LATE
from grposcope.maths.timeseries.noise import Contrast
from grposcope.maths.timeseries.onset import at_once
from grposcope.signs import first_rows, onset, run_outcome
from grposcope.signs.counted_as_cut import at_no_one_length, ended
from grposcope.signs.dead_groups import HALF
from grposcope.signs.quantities import SHORT, MetricSeries, Quantities
from grposcope.signs.tests import any_of, early_level, fell, late_level, least_of, went
from grposcope.signs.unseen_limit import limit as unseen_limit

CUT = 0.25
"""Share of truncated completions that starves the reward."""

ALL = 0.999
"""Share of truncated completions that is all of them."""

FEWER_CUT = "raise the token limit, or penalise or mask truncated completions (overlong filtering)"
"""What to do where too many completions are cut."""

NEVER_ENDS = (
    "raise the token limit, or penalise or mask truncated completions, if those at the limit are unfinished answers; "
    "if text goes on behind a finished answer, no limit helps: the sampler does not stop at the end token that the "
    "policy writes (eos_token_id, stop strings), or the prompts lack the chat template it was trained with"
)
"""What to do where no completion ever ended."""

FEW, MORE = 0.05, 0.1
"""Share of truncated completions at first, at most, and at last, at least, where more and more of them run on."""

LONGER_ENDED = 1.25
"""Late over early length of completions that end, from which answers have grown into the limit."""

RUN_ON = (
    "read completions that are cut now: text that goes on after the answer, or repeats, is not cured by a higher "
    "limit; pay for an answer that ends, or lower the sampler's temperature or raise the KL coefficient"
)
"""What to do where completions no longer end."""

READ_CUT = (
    "read completions at the limit before anything else: they ended before and the reward fell since; repeated or "
    "broken text means that the policy is lost, and a higher limit would only make it longer"
)
"""What to do where completions that had ended are cut and the reward fell."""

ENDED_PAID = (
    "completions that end are paid as before if cut ones are paid least, so that the cut itself takes the reward: read "
    "some at the limit. Unfinished answers need a higher limit, or a grader that does not zero them; text that goes on "
    "or repeats needs a reason to end (overlong penalty or filtering), or is the end of the policy"
)
"""What to do where the reward fell by no more than the share that is cut."""

AS_BEFORE, ENDS = 0.9, 0.05
"""Late over early reward of completions that end from which it is as before, and the share that ends, at least."""

MOST = 0.9
"""Share of truncated completions in every row from which, with no reward in any, the text has to be read first."""

READ_UNPAID = (
    "read completions at the limit before anything else, since none was ever paid: unfinished answers need a higher "
    "limit; repeated, random or broken text means that the sampler does not have the model's weights"
)
"""What to do where nearly all completions are cut from the first row on and nothing is paid."""

LONGER, SHORTER = 1.5, 0.2
"""Late over early length: longer without reward for it, or shrunk to a stub."""

UNPAID = 0.05
"""A gain of reward below this share of its range is not worth a longer completion."""


def _check(quantities: Quantities) -> Finding:
    """Truncated completions above CUT; or LONGER × without reward for it; or below SHORTER ×.

    This explains dead groups where most completions are cut, so that they are paid alike, or where they grew.
    """
    length, cut = quantities.get("length", SHORT), _shares_cut(quantities)
    tests: list[Finding] = []
    evidence: list[Sign] = []
    if cut is not None:
        over = cut.level(LATE, CUT)
        evidence.append(late_level(cut.name, over.value + CUT, over.se, f"limit {CUT:g}"))
        tests += [_cut(quantities, cut, over), _runs_on(quantities, cut)]
    if length is not None and length.logs is not None:
        early, late = length.geometric_mean(EARLY), length.geometric_mean(LATE)
        limit = f"limits: {LONGER:g} × the first without more reward, {SHORTER:g} × the first"
        evidence += [early_level(length.name, *early), late_level(length.name, *late, limit)]
        tests.append(any_of([_shrank(quantities, length, part, late[0]) for part in (EARLY, FIRST)]))
        into_limit = cut is not None and cut.level(LATE, CUT).p_up < 0.001  # what is paid then, is paid by the cut
        longer = None if into_limit else _grew_unpaid(quantities, length, early[0], late[0])
        tests += [] if longer is None else [longer]
    if not tests:
        seen = [name for name in ("length", "truncated") if quantities.logged(name)]
        because = "; ".join(quantities.absence(name, SHORT) for name in seen)
        return cannot_tell(because or "neither length nor truncation is logged", "length", "truncated")
    result = next((test for test in tests if test.basis == "fact"), None) or least_of(tests)
    most_are_cut = cut is not None and cut.level(LATE, HALF).p_up < 0.5
    kills_groups = most_are_cut or (length is not None and _grew(length, LONGER))
    return replace(
        result, evidence=tuple(evidence), missing=() if length is not None else ("length",),
        explains=("saturated", "starved", "constant reward", "empty steps", "never paid") if kills_groups else (),
    )  # fmt: skip


def _shares_cut(quantities: Quantities) -> MetricSeries | None:
    """Shares of truncated completions; None where they are not logged, are counts, or most of them had ended, which is
    a fault of its own."""
    cut = quantities.get("truncated", SHORT)
    if cut is None or cut.values.max() > 1:
        return None
    return None if ended(quantities) is not None or at_no_one_length(quantities) else cut


def _grew_unpaid(quantities: Quantities, length: MetricSeries, early: float, late: float) -> Finding | None:
    """That completions grew from the `early` to the `late` length without reward for it; None where nobody can tell.

    A length that is another from one row on is of other prompts, or under another limit: no policy grows so.
    """
    reward, margin = quantities.get("reward", SHORT), quantities.reward_margin(UNPAID)
    if length.logs is None or reward is None or margin is None or at_once(length.values, 1) is not None:
        return None
    if _grew_while_paid(quantities, length, early, margin):
        return None
    unpaid = reward.change(EARLY, LATE, minus=margin).p_down
    unpaid = 1.0 if unseen_limit(quantities) is not None else unpaid  # cut unseen, which is a fault of its own
    longer = length.logs.change(EARLY, LATE, minus=math.log(LONGER)).p_up
    because = f"completions went from {number(early)} to {number(late)} tokens, while the reward {went(reward)}"
    if (evaluated := run_outcome.of_heldout(quantities)).direction == "up":
        return measured(1.0, f"{because}; the held-out score {fell(evaluated)}, so that they gained")
    return measured(
        max(longer, unpaid),
        because,
        remedy="use a loss that does not divide by each completion's length (Dr. GRPO, DAPO), or add a penalty for "
        "overlong answers",
        brief=quantities.went(length.name, early, late, " tokens"),
    )


def _grew_while_paid(quantities: Quantities, length: MetricSeries, early: float, margin: float) -> bool:
    """Whether completions had grown so from the `early` length while the reward rose by `margin` or more, and it was
    lost only after: then that length did not go unpaid, and something else took the reward."""
    outcome = run_outcome.of_reward(quantities)
    until = length.values[length.steps <= outcome.best_step][-SHORT:]
    return (
        outcome.fate == "lost" and outcome.gain > margin and len(until) > 0 and bool(np.median(until) > LONGER * early)
    )


def _shrank(quantities: Quantities, length: MetricSeries, first: level.Span, late: float) -> Finding:
    """That completions shrank to a stub since the part `first` of the run; late: their late length."""
    assert length.logs is not None
    early = length.geometric_mean(first)[0]
    return measured(
        length.logs.change(first, LATE, minus=math.log(SHORTER)).p_down,
        f"completions went from {number(early)} to {number(late)} tokens",
        begins=partial(onset.since, length.logs, -1),
        remedy=_why_shorter(quantities), brief=quantities.went(length.name, early, late, " tokens"),
    )  # fmt: skip


def _cut(quantities: Quantities, cut: MetricSeries, over: Contrast) -> Finding:
    """That completions are cut at the token limit. over: the late share of them, less CUT."""
    late = len(cut.values[level.rows(len(cut), LATE)])
    whole = int(np.argmin(np.append(cut.values[::-1] >= ALL, False)))  # rows up to the end in which all are cut
    if whole >= max(late, SHORT):
        since = "in all" if whole == len(cut) else "in the last"
        because = f"every completion is cut at the token limit {since} {whole} {cut.rows}"
        first_row = None if whole == len(cut) or cut.level(EARLY).value >= CUT else int(cut.steps[-whole])
        return fact(True, because, onset=first_row, remedy=_fewer_cut(quantities, cut), brief=because)
    first = cut.level(EARLY).value
    return measured(
        over.p_up, f"{over.value + CUT:.0%} of completions are cut at the token limit",
        remedy=_fewer_cut(quantities, cut), past=over.value > 0,
        begins=partial(onset.since, cut, 1) if first < CUT else None,
        brief=f"{apart_shares(first, over.value + CUT)} of completions cut",
    )  # fmt: skip


def _fewer_cut(quantities: Quantities, cut: MetricSeries) -> str:
    """What to do about cut completions: another limit, or to read them first, where none ended, or where they ended
    before and the reward fell."""
    if cut.values.min() >= ALL:
        return NEVER_ENDS
    reward = quantities.get("reward", SHORT)
    if reward is not None and not reward.values.any() and cut.values.min() >= MOST:
        return READ_UNPAID
    fell = reward is not None and reward.change(EARLY, LATE).p_down < 0.01
    if not fell or cut.level(EARLY).value >= CUT:
        return FEWER_CUT
    early, late = (_of_ended(quantities, cut, span) for span in (EARLY, LATE))
    return ENDED_PAID if late >= AS_BEFORE * early > 0 else READ_CUT


def _of_ended(quantities: Quantities, cut: MetricSeries, span: level.Span) -> float:
    """The mean reward of completions that end in a part of the run, above the least, if cut ones are paid the least;
    NaN where the least is not known, or hardly any ends."""
    reward, ends = quantities.get("reward", SHORT), quantities.reward_range
    ended_share = 1 - cut.level(span).value
    if reward is None or ends is None or ended_share < ENDS:
        return math.nan
    return (reward.level(span).value - ends[0]) / ended_share


def _runs_on(quantities: Quantities, cut: MetricSeries) -> Finding:
    """That more and more completions run to the limit, while those that end are no longer than they were."""
    first, last = cut.level(EARLY).value, cut.level(LATE, MORE)
    because = f"{apart_shares(first, last.value + MORE)} of completions run to the token limit"
    ends = quantities.column("length_terminated")
    grew = ends is not None and ends.level(LATE).value > LONGER_ENDED * ends.level(EARLY).value
    if first > FEW or (ends is None and _longest_grew(quantities)) or grew:
        return measured(1.0, because)
    return measured(
        last.p_up, f"{because}, while those that end are no longer than at first" if ends is not None else because,
        grades=("warning", "warning"), remedy=RUN_ON, begins=partial(onset.since, cut, 1),
        brief=f"{apart_shares(first, last.value + MORE)} of completions run to the limit",
    )  # fmt: skip


def _longest_grew(quantities: Quantities) -> bool:
    """Whether all completions may have grown: the shortest of each batch did, or it is not logged."""
    least = quantities.column("length_min")
    return least is None or least.level(LATE).value > LONGER_ENDED * least.level(EARLY).value


def _why_shorter(quantities: Quantities) -> str:
    """Advice on completions that shrank: what pays for it, where the log shows that."""
    task, paid = quantities.get("reward", SHORT), quantities.get("reward_after_kl", SHORT)
    if task is not None and paid is not None:
        rise = paid.change(EARLY, LATE)
        if rise.p_up < 0.01 and task.change(EARLY, LATE).value < 0:
            return (
                "lower the coefficient of the KL penalty in the reward, or move the penalty into the loss: it is "
                f"summed over tokens, so that short answers pay less of it, and the reward after it rose by "
                f"{number(rise.value)} while the task reward fell"
            )
    return "read the late completions: a loss or reward that favours short answers shrinks them (try Dr. GRPO or DAPO)"


def _grew(length: MetricSeries, ratio: float) -> bool:
    """Whether late lengths are clearly above `ratio` × early ones."""
    return length.logs is not None and length.logs.change(EARLY, LATE, minus=math.log(ratio)).p_up < 0.01


FAULT = Fault(
    name="length",
    rank=140,
    remedy="read the completions",
    beside="warning",
    outgrown=True,
    log=LogTest(
        "length",
        _check,
        needs=("length", "truncated"),
        statistic="late truncated share; mean log length, late − early − log ρ, together with the change of reward",
        threshold=f"truncated > {CUT:g}; or > {LONGER:g} × longer and reward up < {UNPAID:g} of its range; or < "
        f"{SHORTER:g} ×",
        limit=True,
        early=first_rows.every_one_cut,
    ),
    settings=CHECK,
)
