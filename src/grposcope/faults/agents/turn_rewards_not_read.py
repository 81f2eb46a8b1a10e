"""Rewards of single turns are logged or carried and no estimator reads them.

What it is
    SkyRL's step-wise mode makes a row of each turn, takes the advantage of the last and copies it to the others.
How it shows
    In the settings. In a run: all turns of a trajectory have one advantage, whatever their rewards.
What it does to the gradient
    It is that of the last turn's reward: what earlier turns were paid is neither learned nor subtracted.
What to do
    Pay the whole trajectory at its last turn, or train without the step-wise mode, where rewards of turns add up.
What decides
    Rewards and advantages of the turns of one trajectory: grposcope verify FOLDER.
Sources
    SkyRL, generator.step_wise_trajectories: https://github.com/NovaSky-AI/SkyRL
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

STEPWISE = "generator.step_wise_trajectories"
REMEDY = f"pay the whole trajectory at its last turn, or set {STEPWISE} to false"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Each turn is a row, and the last one's advantage is that of all."""
    if config.on(STEPWISE):
        yield fact(
            True,
            f"{STEPWISE} gives all turns the advantage of the last one: rewards of earlier turns are not trained on",
            config.signs(STEPWISE),
            grade="note",
            brief="rewards of earlier turns are not trained on",
            remedy=REMEDY,
        )


FAULT = Fault(
    name="turn rewards not read",
    rank=5.35,
    remedy=REMEDY,
    effect="only the last turn's reward is learned from",
    settings=SettingsCheck(
        "turn rewards not read", _settings, ("skyrl",), "turn rewards that are not trained on", ("note",)
    ),
)
