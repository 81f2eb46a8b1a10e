"""Rewards of steps or tokens beside an estimator that sums them over the completion.

What it is
    A process reward or a reward per turn is computed, and verl's outcome estimators add it up before they compare.
How it shows
    Advantages are one number per completion, whatever the positions of the rewards.
What it does to the gradient
    Every token gets the same advantage: which step was right is lost.
What to do
    Use an estimator that reads rewards token by token.
What decides
    Whether advantages differ between the tokens of one completion.
Sources
    verl #160, #7244: https://github.com/verl-project/verl/issues/160
    verl 0.9.1, core_algos: https://github.com/verl-project/verl"""

from __future__ import annotations

import re
from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.verl import ESTIMATOR, OUTCOME_ONLY

TOKEN_LEVEL = re.compile(r"(process|step|turn|token)_?(level_?)?rewards?|\bprm\b|reward_shaping_per_token", re.I)
"""Keys that say that rewards come for steps, turns or tokens."""

CHANGE = "use optimal_token_baseline, reinforce_plus_plus, gae or, with grposcope installed, grposcope_steps"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Rewards for steps or tokens beside an estimator of outcomes."""
    estimator = config.get(ESTIMATOR)
    keys = [key for key in config.given if TOKEN_LEVEL.search(key) and config.given[key] not in (None, False, 0)]
    if estimator in OUTCOME_ONLY and keys:
        yield fact(
            True,
            f"estimator {estimator} sums token-level rewards over the completion and gives every token the "
            "same advantage, so their positions are lost",
            config.signs(ESTIMATOR, *keys),
            grade="warning",
            brief="token-level rewards are summed",
            remedy=CHANGE,
        )


FAULT = Fault(
    name="token-level rewards",
    rank=3.2,
    remedy=CHANGE,
    settings=SettingsCheck(
        "token-level rewards", _settings, ("verl",), "rewards of steps or tokens that the estimator sums", ("warning",)
    ),
)
