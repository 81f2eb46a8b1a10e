"""Turns before the answer of a tool get no reward, because the estimator's return ends there.

What it is
    verl's reinforce_plus_plus multiplies the running return by the response mask, so as to begin anew behind the end of
    text. The mask is 0 on text of tools too.
How it shows
    In the settings. In a run: advantages of the tokens before a tool's answer do not depend on the reward.
What it does to the gradient
    Only the last turn is paid for the outcome: calls are neither learned nor unlearned, but by the mean of the batch.
What to do
    Take grpo, rloo or reinforce_plus_plus_baseline, which give all turns one advantage.
What decides
    Advantages of the first turn of two rollouts with different rewards.
Sources
    verl #6376: https://github.com/verl-project/verl/issues/6376
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks.turns import VERL_TURNS
from grposcope.faults.known_task import Known

ESTIMATOR = "algorithm.adv_estimator"
REMEDY = f"set {ESTIMATOR} to grpo, rloo or reinforce_plus_plus_baseline"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Rollouts have several turns, and the estimator's return stops at masked tokens."""
    if config.on(VERL_TURNS) and config.get(ESTIMATOR) == "reinforce_plus_plus":
        yield fact(
            True,
            f"{ESTIMATOR} reinforce_plus_plus sets the return to 0 at every token of a tool, so that only the last "
            "turn is paid for the outcome",
            config.signs(ESTIMATOR, VERL_TURNS),
            grade="failing",
            brief="turns before a tool's answer are not paid",
            remedy=REMEDY,
        )


FAULT = Fault(
    name="returns stop at tools",
    rank=5.15,
    remedy=REMEDY,
    effect="only the last turn is paid for the outcome",
    settings=SettingsCheck(
        "returns stop at tools", _settings, ("verl",), "an estimator whose return stops at text of tools", ("failing",)
    ),
)
