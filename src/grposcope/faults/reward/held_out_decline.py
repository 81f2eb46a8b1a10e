"""The held-out score is below its best at the end, whatever the training reward does.

What it is
    The policy overfits its training problems, or loses skills that they do not exercise, while another score by the
    same measure rises; or the evaluation has another prompt, limit or grader than the training. Else, with a training
    reward that rises it is reward hacking, which is named first.
How it shows
    The held-out score falls after its best evaluation by more than evaluations differ by chance; or it is the same to
    the last digit while the reward rises, so that what is evaluated never changes.
What it does to the gradient
    It is right for the training problems.
What to do
    Go back to the checkpoint of the best evaluation, and check for overfitting to the training problems.
What decides
    grposcope evaluate BEST LAST: both checkpoints on the same problems.
Sources
    method of this project
"""

from __future__ import annotations

import re
from functools import partial

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, cannot_tell, fact, measured
from grposcope.faults.reward.reward_hacking import (
    GOES_ON,
    best_evaluation,
    fewer_are_cut,
    rises_elsewhere,
    score_levels,
    shares,
    up_to,
)  # fmt: skip
from grposcope.maths.timeseries.peak import since_places
from grposcope.signs import heldout, onset, run_outcome
from grposcope.signs.draws import learned_by_heart
from grposcope.signs.heldout import are_shares, heldout_scores, shown
from grposcope.signs.quantities import EVALUATIONS, Quantities
from grposcope.signs.tests import fell, least_of

FORGOTTEN = 0.2
"""Share of the run within which a wandering is forgotten: slow, since no reward that rises bears witness to a fall."""

FROM_THE_START = (
    "discard this run's weights: no evaluation was better than the first. Check the reward function and the learning "
    "rate before starting again"
)
"""Advice where the best evaluation is the first."""

_FALLS_TOO = (
    "go back to the checkpoint of the best evaluation, and find out what changed after it: the training reward fell "
    "as well, which overfitting to the training problems does not explain"
)
"""Advice where the training reward fell as well."""


_FORGOTTEN_BESIDE = (
    "what is trained is learned, at the cost of what {} measures: mix problems of that kind into the training, or stay "
    "nearer to the start (a KL penalty, a lower learning rate, fewer steps); where the training's own grader decides "
    "{} as well, read late completions first"
)
"""Advice where the score falls while that of another data set rises."""


_OF_DRAWS = re.compile(r"(?:pass|best)@(?!1\b)\d+$")
"""End of the name of a score of several draws of a problem."""

_ALIKE = (
    "what is lost is variety: several draws of a problem solve fewer, while one solves more. Where that matters, take "
    "an earlier checkpoint and hold the entropy (a higher upper clip, an entropy bonus, a reward for several draws)"
)
"""Advice where the score of several draws falls while that of one rises."""


def _check(quantities: Quantities) -> Finding:
    """The least p-value of a fall from any place of the run on, or at once at its end, times the number of places."""
    reward = quantities.require("reward")
    rises = reward.curve.change().p_up < GOES_ON
    if rises and (learned_by_heart(quantities) or fewer_are_cut(quantities, reward)):
        return fact(False, "whether it falls while the reward rises is tested apart")
    tests: list[Finding] = []
    for held in heldout_scores(quantities)[:1]:
        outcome = run_outcome.of_score(quantities, held.score, held.variance, stale=True)
        _, until = up_to(reward, held.score)
        because = f"{held.title} {fell(outcome, are_shares(held.score.values))}"
        because += f", up to step {int(held.score.steps[-1]):,}, where the evaluations end" if until else ""
        evidence = score_levels(held.title, outcome)
        best = best_evaluation(held.score)
        remedy = _FALLS_TOO if run_outcome.of_reward(quantities).direction == "down" else ""
        if best is not None and best <= held.score.steps[0]:
            remedy = FROM_THE_START
        if (other := rises_elsewhere(quantities, held)) is not None:
            both = are_shares((other.start.value, other.end.value))
            first, last = (shown(level.value, both) for level in (other.start, other.end))
            because += f" while {heldout.name(other.name)} rose from {first} to {last}"
            told = _ALIKE if _OF_DRAWS.search(held.score.name) else _FORGOTTEN_BESIDE
            remedy = told.format(heldout.name(held.score.name), heldout.name(other.name))
        places = since_places(shares(held.score, reward), held.score.values, held.variance, FORGOTTEN)
        for p in (*(since.change().p_down for since in places), *([outcome.p_sudden] if places else [])):
            begins = partial(onset.since, held.score, -1)
            tests.append(measured(p, because, evidence, brief=because, begins=begins, remedy=remedy))
    if not tests:
        return cannot_tell(f"fewer than {EVALUATIONS} held-out evaluations are logged", "evaluation")
    return least_of(tests)


FAULT = Fault(
    name="held-out decline",
    rank=200,
    remedy="go back to the checkpoint of the best evaluation, and check for overfitting to the training problems",
    beside="warning",
    log=LogTest(
        "held-out decline",
        _check,
        needs=("reward", "evaluation"),
        statistic="fall of the held-out score from several places on, or at once at its end, smallest p × their number",
        threshold="p < α",
    ),
)
