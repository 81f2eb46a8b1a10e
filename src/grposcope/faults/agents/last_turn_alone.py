"""Only the last turn of a trajectory is trained on: the others have an advantage of 0.

Asked as
    Training with step_wise_trajectories is unstable, or learns next to nothing
What it is
    A row of training for each turn, and the advantage of the last one is copied with its mask, so that it stands at the
    places of the last turn's tokens in every row.
How it shows
    In a trajectory whose last turn has an advantage, the tokens of the turns before it have 0. Groups, rewards and the
    mean advantage look normal.
What it does to the gradient
    All turns but the last have none: (N − 1)/N of the rows are computed for nothing, and what led there is not learned.
What to do
    Give every turn the number of its trajectory, times its own mask. In SkyRL: a version with #1507.
What decides
    Advantages and masks of the rows of one trajectory: grposcope verify FOLDER.
Sources
    SkyRL #1492: https://github.com/NovaSky-AI/SkyRL/issues/1492
    SkyRL #1507: https://github.com/NovaSky-AI/SkyRL/pull/1507
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import trajectory_weights

STEPWISE = "generator.step_wise_trajectories"
REMEDY = "give every turn the advantage of its trajectory, times its own mask (in SkyRL: a version with #1507)"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Each turn is a row of training."""
    if config.on(STEPWISE):
        yield fact(
            True,
            "before SkyRL #1507 (April 2026) the advantage of the last turn is copied to the rows of the others with "
            "the mask of the last, so that their own tokens have 0",
            config.signs(STEPWISE),
            grade="note",
            brief="turns before the last have no advantage in older versions",
            remedy="see which SkyRL is installed (pip show skyrl): take one with #1507",
        )


FAULT = Fault(
    name="last turn alone",
    rank=5.34,
    remedy=REMEDY,
    effect="what led to the last turn is not learned",
    beside="warning",
    rollouts=(trajectory_weights.PROOF,),
    settings=SettingsCheck(
        "last turn alone", _settings, ("skyrl",), "turns before the last without an advantage", ("note",), "SkyRL #1492"
    ),
)
