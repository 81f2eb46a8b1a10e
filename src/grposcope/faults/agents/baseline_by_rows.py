"""The baseline of a group is a mean over rows of training, so that a rollout of several rows counts as often.

What it is
    Rollouts that are split into turns, branches or transitions are grouped as rows, before they are put together.
How it shows
    The baseline that the advantages imply is the mean of the rewards weighted by the rows of each rollout.
What it does to the gradient
    The baseline is V + Cov(rows, reward) ÷ E rows: harmless in large groups whose turns are summed, but with small
    groups or a deviation over rows the expected update turns away from the gradient.
What to do
    Compute advantages once for each rollout, then copy them to its rows.
What decides
    Rewards, advantages and number of rows of one group.
Sources
    miles #2378; slime #2302: https://github.com/THUDM/slime/issues/2302
    agent-lightning #445: https://github.com/microsoft/agent-lightning/issues/445
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks.turns import key_of_turns, of_prime_rl
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import trajectory_weights

POST = "custom_reward_post_process_path"
BY_TOKENS = ("algo.length_weighted_baseline", "advantage.length_weighted_baseline")


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A function of one's own generates, which may return several samples, and nothing groups rewards by rollout; or
    the baseline weighs rollouts by their tokens."""
    for name in BY_TOKENS if config.dialect.name == "prime-rl" else ():
        if config.on(own := of_prime_rl(config, name)):
            yield fact(
                True,
                f"{own} weighs the rollouts of a group by their trained tokens: one of many turns counts more in the "
                "mean that it is itself compared with, which turns the expected update of small groups away from the "
                "gradient",
                config.signs(own),
                grade="note",
                brief="siblings weigh by their tokens",
                remedy=f"set {own} to false",
            )
    key = key_of_turns(config)
    if key and not config.says(POST):
        yield fact(
            True,
            f"where {key} returns several samples for a rollout, the baseline is a mean over samples, in which a "
            "rollout of many counts as often; groups of unequal size are normalised over the whole batch",
            config.signs(key),
            grade="note",
            brief="siblings may weigh by their samples",
            remedy=f"return one sample for a rollout, or compute advantages once for each rollout in {POST}",
        )


FAULT = Fault(
    name="baseline by rows",
    rank=5.25,
    remedy="compute advantages once for each rollout, then copy them to its rows",
    effect="advantages depend on how many rows siblings have",
    beside="warning",
    rollouts=(trajectory_weights.PROOF,),
    settings=SettingsCheck(
        "baseline by rows",
        _settings,
        ("slime", "prime-rl"),
        "rollouts of many rows that weigh more in the baseline",
        ("note",),
    ),
)
