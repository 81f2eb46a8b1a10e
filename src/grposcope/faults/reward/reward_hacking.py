"""The training reward rises while a score that it stands for falls, or does not follow.

Asked as
    The reward rises, the evaluation does not
What it is
    The policy found something that the reward pays for and nobody wants.
How it shows
    The training reward rises while a held-out score, a component, a score without weight in the reward, or the task
    reward before its KL penalty falls, or gains less than a third as much. Reward hacking cannot be seen in the
    training reward alone.
What it does to the gradient
    It is right for the reward that is given; the reward is wrong.
What to do
    Stop and read completions from after the onset: what do they do that the verifier rewards wrongly? Correct the
    verifier, and go back to the checkpoint before the onset.
What decides
    A held-out score of what is meant, on completions from before and after the onset; or a grading by hand of ten
    that earn most.
Sources
    arXiv:2606.30789: the proxy's fixed point drifts from the true one
    verl #5038, a limit of length: https://github.com/verl-project/verl/issues/5038
    method of this project
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact, measured
from grposcope.core.text import number
from grposcope.maths.timeseries.noise import Contrast
from grposcope.maths.timeseries.peak import Since, since_places
from grposcope.signs import heldout, onset, run_outcome
from grposcope.signs.draws import learned_by_heart
from grposcope.signs.heldout import FOLLOWS, HeldOut, heldout_scores
from grposcope.signs.outcome import Outcome
from grposcope.signs.quantities import EVALUATIONS, LEAST, MetricSeries, Quantities
from grposcope.signs.reward_parts import against_parts
from grposcope.signs.tests import ends, fell, least_of, went

_HALF = 0.5
"""A score that gains more than this share of what the reward gains over the whole run follows it well enough."""

_LITTLE = 0.1
"""A gain of the reward, on the scale of the score, that a score need not follow."""

GOES_ON = 0.05
"""p-value below which the training reward goes on to rise from a place, so that a fall is called by this name."""

_SURE = 0.01
"""p-value below which a score gained less than _HALF as much over the whole run: one question, whatever the place."""

_BY_HEART = (
    "train on more problems, and go back to the checkpoint of the best evaluation; where completions of training show "
    "something that is paid wrongly, correct the verifier first"
)
"""What to do where the training problems were drawn often enough to be learned by heart."""

_CUT, _FEWER, _MOST = 0.2, 0.1, 0.8
"""Share of cut completions at first, and its fall, from which on finishing within the limit is looked at; share of the
reward's gain that it makes, above which it is what was learned."""

_OF_THE_LIMIT = (
    "go back to the checkpoint of the best evaluation, and raise the limit of length, to what the evaluation allows: "
    "what is paid is to finish within it. Judge by the reward of completions that finish, and leave cut ones out of "
    "the loss where the limit cannot be raised"
)
"""What to do where the reward rose because fewer completions are cut."""

_SAME = 5
"""Evaluations from which a score that is the same in all of them is no chance."""

_PROBLEMS = 40
"""Problems of an evaluation up to which a score may be the same by chance, in fewer than twice as many evaluations."""

_OF_THE_SAME = (
    "evaluate the first and the last checkpoint by hand, in another engine: where they differ, the evaluation has "
    "weights that do not change (a server that was started once, a copy that is not sent, adapters that are left out) "
    "or returns a result that is kept. No score of this log chooses a checkpoint"
)
"""What to do where an evaluation never changes."""

_APART = 0.25
"""Share of the training reward there that a score does not reach in any evaluation, where the two do not compare."""

_UNRISEN = 0.25
"""Share of its whole rise that the training reward may have made where such a score is first evaluated."""

_OF_ANOTHER_TASK = (
    "evaluate one checkpoint on problems of the training, and put the evaluation's prompt, stop tokens, token limit "
    "and grader beside those of the training: the two differ before anything is learned, so that the difference is no "
    "sign of gaming. Where they are alike, those held out are much harder: take some that the start solves at times"
)
"""What to do where the evaluation is far below the training from its first one on."""

_PLAIN = 0.001
"""p-value below which a part of the reward that falls for another is named, whatever else shows the fault as well."""

_FULL = 0.8
"""Mean reward, of 1, up to which an evaluation that is always full measures something else."""

_OF_A_FULL_SCORE = (
    "have the evaluation grade ten answers of its problems, wrong ones and an empty one among them: a grader that "
    "accepts anything, answers that stand in the prompt, or problems far easier than those of the training score so. "
    "Choose no checkpoint by it"
)
"""What to do where an evaluation is full from its first on."""

_EDGE = 0.1
"""Share of the run at either end of a change of the training reward, over which it is averaged."""


def _check(quantities: Quantities) -> Finding:
    """Training reward rises while the held-out score, a component or the task reward does not."""
    reward = quantities.require("reward")
    scores = heldout_scores(quantities)
    parts = against_parts(quantities, reward)
    traded = bool(scores) and rises_elsewhere(quantities, scores[0]) is not None
    tests = [*(test for heldout in scores[traded:] for test in _against(quantities, heldout, reward)), *parts]
    if (still := _stays_apart(quantities, scores, reward)) is not None:
        return still
    if traded and not tests:
        return fact(False, f"{scores[0].title} is alone: a score by the same measure rises with the reward")
    missing = () if scores else ("evaluation",)
    if not tests:
        few = f"too few held-out evaluations for a trend: {EVALUATIONS} are needed"
        none = "the training reward cannot show reward hacking, and no other score is logged"
        return cannot_tell(few if len(quantities.run.evaluations) else none, *missing)
    least = least_of(tests)
    named = [test for test in parts if test.remedy and test.p < _PLAIN]
    if named and least.p < _PLAIN:  # what is paid instead says more than that a score falls
        least = least_of(named)
    elif scores and (drawn := learned_by_heart(quantities)):
        because = f"{least.because}; {drawn}, which may be enough to learn them by heart"
        return replace(least, fault="held-out decline", because=because, remedy=_BY_HEART, missing=missing,
                       begins=None, explains=("entropy collapse", "saturated"))  # fmt: skip
    elif scores and not named and (finished := fewer_are_cut(quantities, reward)):
        return replace(least, fault="held-out decline", because=f"{least.because}; {finished}", remedy=_OF_THE_LIMIT,
                       missing=missing)  # fmt: skip
    unlike = [heldout.title for heldout in scores if heldout.follows is None]
    if unlike and least.p >= GOES_ON:
        note = (
            f"{unlike[0]} is not on the scale of the reward: this rule detects whether it falls, but not whether it "
            "follows the reward"
        )
        return replace(least, because=f"{least.because}; {note}", missing=missing)
    return replace(least, missing=missing)


def fewer_are_cut(quantities: Quantities, reward: MetricSeries) -> str:
    """That _MOST of the reward's gain is what fewer cut completions make of it, were these paid 0, as a clause; empty
    where not. For rewards from 0 to 1 alone."""
    cut = quantities.get("truncated")
    if cut is None or reward.values.min() < 0 or reward.values.max() > 1:
        return ""
    cut_first, cut_last, first, last = (
        float(edge.mean())
        for series in (cut, reward)
        for edge in (series.values[: _width(series)], series.values[-_width(series) :])
    )
    fewer = cut_first - cut_last
    if not _CUT <= cut_first < 1 or fewer < _FEWER or _change_since(cut, 0.0).p_down >= _SURE:
        return ""
    makes = fewer * first / (1 - cut_first)
    if makes < _MOST * (last - first):
        return ""
    return (
        f"cut completions went from {cut_first:.0%} to {cut_last:.0%}, which alone makes {number(makes)} of reward if "
        "cut ones earn nothing and finished ones what they did at first: what rose then is the share that finishes"
    )


def _width(series: MetricSeries) -> int:
    """Rows of either end that are averaged."""
    return max(round(_EDGE * len(series)), 1)


def _stays_apart(quantities: Quantities, scores: Sequence[HeldOut], reward: MetricSeries) -> Finding | None:
    """That the first score never changes, or is never near the reward; None where neither is so, or there is none."""
    if not scores:
        return None
    return (
        _never_changes(quantities, scores[0], reward)
        or _never_near(quantities, scores[0], reward)
        or _always_full(scores[0], reward)
    )


def _never_changes(quantities: Quantities, held: HeldOut, reward: MetricSeries) -> Finding | None:
    """That a score is the same to the last digit in all _SAME evaluations or more while the reward rises; else None."""
    values = held.score.values
    if len(values) < _SAME or np.ptp(values) or not 0 < values[0] < 1 or _change_since(reward, 0.0).p_up >= _SURE:
        return None
    solved = float(values[0]) * np.arange(1, _PROBLEMS + 1)
    if len(values) < 2 * _SAME and (np.abs(solved - solved.round()) < 1e-9).any():
        return None  # a share of few problems may well be the same again
    because = (
        f"{held.title} is {number(float(values[0]))} in all {len(values)} evaluations, to the last digit, while the "
        f"reward {went(reward)}: so it is where weights that were loaded once are evaluated, or a result is kept"
    )
    evidence = (*ends(reward), Sign(f"{held.title}, largest less least", 0.0))
    return measured(_change_since(reward, 0.0).p_up, because, evidence, brief=f"{held.title} never changes",
                    grades=("warning", "warning"), remedy=_OF_THE_SAME, fault="held-out decline")  # fmt: skip


def _never_near(quantities: Quantities, held: HeldOut, reward: MetricSeries) -> Finding | None:
    """That a score is below _APART of the training reward from its first evaluation on, which lies before the rise of
    the reward, and never rises; else None."""
    score, follows = held.score, held.follows
    if follows is None or len(score) < _SAME or not score.values.any():
        return None
    seen = follows.present
    first, rise = seen.first.value, seen.last.value - seen.first.value
    there = float(np.mean(follows.values[: max(int((follows.steps <= score.steps[0]).sum()), 1)]))
    if there - first > _UNRISEN * max(rise, 0.0) or score.values.max() >= _APART * first:
        return None
    if run_outcome.of_score(quantities, score, held.variance, stale=True).direction == "up":
        return None
    least, most = (heldout.shown(float(value), heldout.are_shares(score.values), 1) for value in _ends(score))
    because = (
        f"{held.title} is {least} to {most} in all {len(score)} evaluations, the first at step "
        f"{int(score.steps[0]):,}, where the reward is as at first, {number(first)}; then the reward {went(reward)}: "
        "the evaluation differed from the training before anything was learned"
    )
    evidence = (*ends(reward), Sign(f"{held.title}, largest", float(score.values.max())))
    return measured(_change_since(reward, 0.0).p_up, because, evidence, brief=f"{held.title} never above {most}",
                    grades=("note", "note"), remedy=_OF_ANOTHER_TASK, fault="held-out decline")  # fmt: skip


def _always_full(held: HeldOut, reward: MetricSeries) -> Finding | None:
    """That a score is exactly 1 in all _SAME evaluations or more, where rollouts are paid _FULL of 1 at most at
    first; else None."""
    values, seen = held.score.values, reward.present
    first, last = seen.first.value, seen.last.value
    if len(values) < _SAME or (values != 1).any() or reward.values.min() < 0 or reward.values.max() > 1:
        return None
    if first > _FULL:
        return None
    because = (
        f"{held.title} is 100% in all {len(values)} evaluations, the first at step {int(held.score.steps[0]):,}, while "
        f"rollouts are paid {number(first)} at first and {number(last)} at last: no gain can show in it"
    )
    evidence = (*ends(reward), Sign(f"{held.title}, least", 1.0))
    return fact(True, because, evidence, fault="held-out decline", remedy=_OF_A_FULL_SCORE,
                grades=("warning", "warning"),
                brief=f"{held.title} is 100% in all {len(values)} evaluations")  # fmt: skip


def _ends(series: MetricSeries) -> tuple[float, float]:
    """The least and the largest value."""
    return float(series.values.min()), float(series.values.max())


def rises_elsewhere(quantities: Quantities, held: HeldOut) -> Outcome | None:
    """A score of another data set by the same measure that rises, where this one does not: what is trained is learned,
    and no verifier pays for something else; None where there is none."""
    if run_outcome.of_score(quantities, held.score, held.variance, stale=True).direction == "up":
        return None
    rises = (score for score in run_outcome.scores_alike(quantities, held.score.name) if score.direction == "up")
    return next(rises, None)


def shares(series: MetricSeries, reward: MetricSeries) -> np.ndarray:
    """Where in the run, whose rewards are given, the values of a series lie, from 0 to 1."""
    begin, end = reward.steps[0], reward.steps[-1]
    return np.asarray(np.clip((series.steps - begin) / max(end - begin, 1.0), 0.0, 1.0))


def _against(quantities: Quantities, held: HeldOut, reward: MetricSeries) -> list[Finding]:
    """The held-out score falls, or the gap to what it should follow widens, from each place of the run on.

    Where its last evaluation lies before the last fifth of the run, it is compared with the reward up to there.
    """
    tests: list[Finding] = []
    score = held.score
    reward, until = up_to(reward, score)
    outcome = run_outcome.of_score(quantities, score, held.variance, stale=True)
    did = fell(outcome, heldout.are_shares(score.values))
    evidence = (*ends(reward), *score_levels(held.title, outcome))
    for since in since_places(shares(score, reward), score.values, held.variance):
        scored = since.change()
        rises = _change_since(reward, since.share)
        p = scored.p_down if rises.p_up < GOES_ON else 1.0
        if held.follows is not None and score.values.max() >= _APART * held.follows.present.first.value:
            p = min(p, _gap_widens(held.follows, held.room, since))
        falls = scored.p_down < 0.05
        p = max(p, _change_since(reward, 0.0).p_up)
        behind = "did not follow: it " if p < GOES_ON and not falls else ""
        because = f"{held.title} {behind}{did} while the reward {went(reward)}{until}"
        brief = f"{held.title} {behind}{did} while the reward rose"
        begins = partial(onset.parting, held.follows or reward, score, falls)
        tests.append(measured(p, because, evidence, brief=brief, begins=begins))
    return tests


def _gap_widens(trained: MetricSeries, room: float, since: Since) -> float:
    """The p-value of "from the place on, the score gains enough of what the training metric gains"."""
    if _change_since(trained, since.share, _LITTLE).p_up >= GOES_ON:
        return 1.0
    if since.whole(_HALF * room * _at_least(_change_since(trained, 0.0))).p_down >= _SURE:
        return 1.0
    return since.change(FOLLOWS * room * _at_least(_change_since(trained, since.share))).p_down


def _at_least(gain: Contrast) -> float:
    """A gain less one standard error, so that its own noise does not make a score fall behind."""
    return max(gain.value - gain.se, 0.0)


def _change_since(series: MetricSeries, share: float, minus: float = 0.0) -> Contrast:
    """Change of a training metric from a share of the run to its end, less a constant."""
    return series.curve.change((share, share + _EDGE), (1 - _EDGE, 1.0), minus=minus)


def up_to(reward: MetricSeries, score: MetricSeries) -> tuple[MetricSeries, str]:
    """The training reward up to the last evaluation, and until when that was, as the end of a clause; all of it and
    nothing where the score was evaluated in the last fifth of the run."""
    last = score.steps[-1]
    rows = reward.steps <= last
    if run_outcome.is_current(score, reward) or rows.sum() < LEAST:
        return reward, ""
    heldout_rows = MetricSeries(reward.name, reward.steps[rows], reward.values[rows])
    return heldout_rows, f", both up to step {int(last):,}, where the evaluations end"


def score_levels(title: str, outcome: Outcome) -> tuple[Sign, Sign]:
    """The best and the last level of a held-out score."""
    best, end = outcome.best, outcome.end
    return Sign(f"{title}, best", best.value, best.se), Sign(f"{title}, at the end", end.value, end.se)


def best_evaluation(heldout: MetricSeries) -> int:
    """Step of the best evaluation, smoothed over three, after which the held-out score falls behind."""
    smooth = np.convolve(np.pad(heldout.values, 1, "edge"), np.ones(3) / 3, "valid")
    return int(heldout.steps[int(np.argmax(smooth))])


FAULT = Fault(
    name="reward hacking",
    rank=40,
    remedy="stop and read completions after the onset: what do they do that the verifier rewards wrongly? "
    "Then correct the verifier and go back to the checkpoint before the onset",
    beside="warning",
    gamed=True,
    implies=("held-out decline",),
    log=LogTest(
        "reward hacking",
        _check,
        needs=("reward", "evaluation"),
        statistic="p = the larger of two p-values: the reward rises; and the held-out score (or a component, or the "
        "task reward before KL) falls, or that score (or one without weight in the reward) gains less than "
        f"{FOLLOWS:.2g} × as much. The held-out score is tested from several points of the run on: smallest p × "
        "number of tests",
        threshold=f"both p < α; needs {EVALUATIONS} evaluations",
    ),
)
