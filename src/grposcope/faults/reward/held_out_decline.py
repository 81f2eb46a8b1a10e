"""The held-out score is below its best at the end, whatever the training reward does.

What it is
    The policy overfits its training problems, or loses skills that they do not exercise. With a training reward
    that rises it is reward hacking, which is named first.
How it shows
    The held-out score falls after its best evaluation by more than evaluations differ by chance.
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

from functools import partial

from grposcope.core.fault import OWN_METHOD, Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, measured
from grposcope.faults.reward.reward_hacking import best_evaluation, fallen, shares
from grposcope.maths.timeseries.peak import since_places
from grposcope.signs import onset
from grposcope.signs.heldout import heldout_scores
from grposcope.signs.quantities import EVALUATIONS, Quantities
from grposcope.signs.tests import least_of, moved

FORGOTTEN = 0.2
"""Share of the run within which a wandering is forgotten: slow, since no reward that rises bears witness to a fall."""

FROM_THE_START = (
    "discard this run's weights: no evaluation was better than the first. Check the reward function and the learning "
    "rate before starting again"
)
"""Advice where the best evaluation is the first."""


def check(quantities: Quantities) -> Finding:
    """The least p-value of a fall from any place of the run on, times the number of places."""
    reward = quantities.require("reward")
    tests: list[Finding] = []
    for held in heldout_scores(quantities)[:1]:
        for since in since_places(shares(held.score, reward), held.score.values, held.variance, FORGOTTEN):
            step, change = int(held.score.steps[since.first]), since.change()
            evidence = (Sign(f"change of {held.title} since step {step:,}", change.value, change.se),)
            because = f"{held.title} {fallen(since, step) if change.value < 0 else moved(change.value)}"
            best = best_evaluation(held.score)
            start = best is not None and best <= held.score.steps[0]
            tests.append(measured(
                change.p_down, because, evidence, brief=because, begins=partial(onset.since, held.score, -1),
                remedy=FROM_THE_START if start else "",
            ))  # fmt: skip
    if not tests:
        return cannot_tell(f"fewer than {EVALUATIONS} held-out evaluations are logged", "evaluation")
    return least_of(tests)


FAULT = Fault(
    name="held-out decline",
    rank=200,
    remedy="go back to the checkpoint of the best evaluation, and check for overfitting to the training problems",
    source=OWN_METHOD,
    beside="warning",
    log=LogTest(
        "held-out decline",
        check,
        needs=("reward", "evaluation"),
        statistic="fall of the held-out score after each of several steps, smallest p × number of steps tried",
        threshold="p < α",
    ),
)
