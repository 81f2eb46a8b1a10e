"""Reward decline: the late reward is below the early one, or below that of the middle of the run."""

from __future__ import annotations

from grposcope.instruments.diagnosis import run_outcome
from grposcope.instruments.diagnosis.findings import OWN_METHOD, Evidence, Grade, Rule, RuleResult, any_of, moved
from grposcope.instruments.diagnosis.quantities import MetricSeries, Quantities
from grposcope.maths.timeseries.noise import Contrast

MIDDLE = (0.4, 0.6)
"""The middle of the run."""

SEEN = 0.01
"""p-value of a fall in white noise below which a run is not called ok: only a wandering may explain it."""

BEYOND = 0.05
"""p-value below which a fall is more than wandering explains, as in the sentence on what was learned."""


def check(quantities: Quantities) -> RuleResult:
    """Whether the reward fell: as a curve, as a line, or within a few rows."""
    reward = quantities.require("reward")
    curve, line = reward.curve, reward.line
    falls = [(curve.change(), "the beginning"), (curve.change(MIDDLE), "the middle of the run")]
    falls += [] if line is None else [(line.change(), "the beginning")]
    worst = any_of([*(_fall(reward, *fall) for fall in falls), *_drop(reward)])
    white = min(curve.if_white.change().p_down, curve.if_white.change(MIDDLE).p_down)
    missing = () if 2 * white >= SEEN else ("longer run",) if reward.sampling is not None else ("rollouts",)
    onset = reward.onset() if worst.p < 0.5 and worst.onset is None else worst.onset
    untold = "" if not missing or worst.p < BEYOND else ", which may be slow random drift"
    outcome = run_outcome.of_run(quantities.run)
    grade: Grade | None = "note" if outcome.by_heldout or (outcome.heldout and outcome.direction == "up") else None
    return RuleResult(
        worst.p, worst.because + untold, worst.evidence, onset, missing=missing, beside=grade, instead=grade,
        brief=worst.because,
    )  # fmt: skip


def _fall(reward: MetricSeries, test: Contrast, since: str) -> RuleResult:
    evidence = (Evidence(f"change of {reward.name} since {since}", test.value, test.se, column=reward.name),)
    return RuleResult(test.p_down, f"the reward {moved(test.value)} since {since}", evidence)


def _drop(reward: MetricSeries) -> list[RuleResult]:
    """A fall from one level to another, where the likeliest shift is one."""
    shift = reward.shift
    if shift is None:
        return []
    evidence = (Evidence(f"shift of the level of {reward.name}", shift.size, column=reward.name),)
    because = f"the reward {moved(shift.size)} in one jump"
    return [RuleResult(shift.p if shift.size < 0 else 1.0, because, evidence)]


RULE = Rule(
    mode="reward decline",
    needs=("reward",),
    statistic="late − early and late − middle reward of a fitted curve with bends, late − early of a line if no bends "
    "are evident, and a drop between two levels; harmonic mean of the p-values",
    threshold="p < α",
    source=OWN_METHOD,
    advice="go back to the checkpoint before the onset and lower the learning rate",
    check=check,
    beside="warning",
    costs="either the prompts became harder or the policy became worse",
)
