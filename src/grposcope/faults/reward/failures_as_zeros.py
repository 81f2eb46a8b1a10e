"""Rollouts that failed for reasons of the infrastructure are trained on as bad answers.

What it is
    Time-outs, lost connections and crashed graders that give a reward of 0.
How it shows
    Rollouts with an error all have one reward and an advantage, or logged rewards are 0 where the function gives
    another. In a log: the reward falls in the rows in which more rollouts failed, by what the others are paid.
What it does to the gradient
    It pushes away from whatever was running when the failure came, and shifts the advantages of all siblings;
    failures of long rollouts are a punishment of length.
What to do
    Leave failed rollouts out of their groups, or draw them again.
What decides
    Rewards of rollouts with an error: grposcope verify FOLDER.
Sources
    agent-lightning #74: https://github.com/microsoft/agent-lightning/issues/74
    method of this project"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.agents import ERRORS
from grposcope.signs.rollouts.claims import rewards

ZERO = "generator.zero_reward_on_non_stop"


def _settings(config: Settings, known: Known) -> Iterator[Finding]:
    """Rollouts that were cut or taken back are paid 0."""
    if config.on(ZERO):
        yield fact(
            True,
            f"{ZERO} pays 0 for a rollout that was taken back or lost, as for one that was cut: both count as bad "
            "answers in the baseline of their group",
            config.signs(ZERO),
            grade="note",
            brief="rollouts that were taken back are paid 0",
            remedy=f"set {ZERO} to false, and leave out rollouts that failed",
        )


FAULT = Fault(
    name="failures as zeros",
    rank=5.8,
    remedy="leave failed rollouts out of their groups, or draw them again",
    effect="failures of the infrastructure are learned as bad answers",
    beside="warning",
    log=ERRORS,
    rollouts=(rewards.PROOF,),
    settings=SettingsCheck(
        "failures as zeros", _settings, ("skyrl",), "failures that the settings pay as zeros", ("note",)
    ),
)
