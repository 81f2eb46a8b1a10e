"""The late reward is below the early one, or below that of the middle of the run.

What it is
    The policy became worse at its prompts, or the prompts became harder.
How it shows
    A fitted curve, a line or a drop between two levels falls by more than slow random drift explains.
What it does to the gradient
    It does not say by itself; see what changed before the fall.
What to do
    Go back to the checkpoint before the onset and lower the learning rate.
What decides
    Both checkpoints on the same prompts: grposcope evaluate BEFORE AFTER.
Sources
    method of this project
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Grade, measured
from grposcope.signs import onset, run_outcome
from grposcope.signs.quantities import Quantities
from grposcope.signs.tests import any_of, ends, fell

MIDDLE = (0.4, 0.6)
"""The middle of the run."""

SEEN = 0.01
"""p-value of a fall in white noise below which a run is not called ok: only a wandering may explain it."""

BEYOND = 0.05
"""p-value below which a fall is more than wandering explains, as in the sentence on what was learned."""


def check(quantities: Quantities) -> Finding:
    """Whether the reward fell: as a curve, as a line, or within a few rows."""
    reward = quantities.require("reward")
    curve, line = reward.curve, reward.line
    falls = [curve.change(), curve.change(MIDDLE), *([] if line is None else [line.change()])]
    because = f"the reward {fell(run_outcome.of_reward(quantities))}"
    tests = [measured(fall.p_down, because, ends(reward)) for fall in falls]
    if reward.shift is not None:
        tests.append(measured(reward.shift.p if reward.shift.size < 0 else 1.0, because, ends(reward)))
    worst = any_of(tests)
    if reward.present.smoothed:  # rows of an exponential average: their levels say how little they show
        worst = replace(worst, p=max(worst.p, reward.present.loss.p_down))
    white = min(curve.if_white.change().p_down, curve.if_white.change(MIDDLE).p_down)
    missing = () if 2 * white >= SEEN else ("longer run",) if reward.sampling is not None else ("rollouts",)
    untold = "" if not missing or worst.p < BEYOND else ", which may be slow random drift"
    outcome = run_outcome.of_run(quantities.run)
    beside = outcome.by_heldout or (outcome.heldout and outcome.direction == "up")
    grades: tuple[Grade, Grade] | None = ("note", "note") if beside else None
    return measured(
        worst.p, worst.because + untold, worst.evidence, missing=missing, grades=grades, brief=worst.because,
        begins=partial(onset.since, reward, -1),
    )  # fmt: skip


FAULT = Fault(
    name="reward decline",
    rank=210,
    remedy="go back to the checkpoint before the onset and lower the learning rate",
    effect="either the prompts became harder or the policy became worse",
    beside="warning",
    log=LogTest(
        "reward decline",
        check,
        needs=("reward",),
        statistic="late − early and late − middle reward of a fitted curve with bends, late − early of a line if no "
        "bends are evident, and a drop between two levels; harmonic mean of the p-values",
        threshold="p < α",
    ),
)
