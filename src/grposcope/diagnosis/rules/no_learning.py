"""Does anything come of it? Reward that falls, and reward that stays where it began."""

from __future__ import annotations

from grposcope.diagnosis.findings import Evidence, Rule, Verdict, moved, unknown
from grposcope.diagnosis.quantities import SHORT, View
from grposcope.timeseries import level
from grposcope.timeseries.change import EARLY

STILL = 0.1
"""A change of reward below this share of its range is none."""

RISES = 0.01
"""A rise that noise makes less often than this is learning, however small it is."""


def decline(view: View) -> Verdict:
    """Reward late below early, or below the middle of the run."""
    reward = view.get("reward")
    if reward is None:
        return unknown(view.lacks("reward"), "reward")
    whole, lately = reward.curve.change(), reward.curve.change((0.4, 0.6))
    worse = min((whole, lately), key=lambda test: test.p_down)
    p = min(1.0, 2 * worse.p_down)
    since = "the beginning" if worse is whole else "the middle of the run"
    evidence = (Evidence(f"change of reward since {since}", worse.value, worse.se),)
    return Verdict(p, f"reward {moved(worse.value)} since {since}", evidence, reward.onset() if p < 0.5 else None)


def still(view: View) -> Verdict:
    """No part of the run differs from its beginning by STILL of the reward's range, nor is there a clear rise."""
    reward = view.get("reward")
    if reward is None:
        return unknown(view.lacks("reward"), "reward")
    margin = small(view, STILL)
    if margin is None:
        return unknown("the range of the reward is not known", "reward_std")
    p, most = 0.0, 0.0
    for first in (0.2, 0.4, 0.6, 0.8):
        up, down = (level.change(reward.values, EARLY, (first, first + 0.2), minus=m) for m in (margin, -margin))
        p, most = max(p, up.p_down, down.p_up), max(most, abs(up.value + margin))
    evidence = (Evidence("largest change of reward over a fifth of the run", most, limit=f"counts from {margin:.3g}"),)
    steps = f"{int(reward.steps[-1] - reward.steps[0]):,} steps"
    if p >= 0.5:
        return Verdict(p, f"reward changed by {most:.2g} over {steps}", evidence)
    if (rise := reward.curve.change()).p_up < RISES:
        return Verdict(1.0, f"reward rose by {rise.value:.2g} over {steps}: little, but more than noise", evidence)
    return Verdict(p, f"reward stayed within {margin:.2g} of where it began, over {steps}", evidence)


def small(view: View, share: float) -> float | None:
    """A change of the reward that is this share of its range, or of two of its spreads where the range is not known."""
    if view.reward_range is not None:
        return share * (view.reward_range[1] - view.reward_range[0])
    spread = view.get("reward_std", SHORT)
    return None if spread is None else 2 * share * spread.level(EARLY).value


RULES = (
    Rule(
        "reward decline", ("reward",), "late − early and late − middle reward, least p-value × 2", "p < α",
        "ours", "go back to the checkpoint before the onset and lower the learning rate", decline,
    ),
    Rule(
        "no learning", ("reward",),
        "equivalence: in every fifth of the run |change since the beginning| < δ; p = largest of the one-sided tests",
        f"δ = {STILL:g} of the reward's range, or {2 * STILL:g} of its spread within groups; no verdict while the "
        "error exceeds about δ/2",
        "ours; two one-sided tests (Schuirmann 1987)",
        "raise the learning rate, check that gradients reach the weights, or take prompts with 20–80 % success", still,
    ),
)  # fmt: skip
