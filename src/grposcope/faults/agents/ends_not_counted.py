"""Rollouts of agents that their environment ends are counted as cut at the token limit.

Asked as
    completions/clipped_ratio is 1 with an environment
What it is
    A trainer counts a completion as cut if its last token is not an end token. An environment that ends a rollout
    leaves none. Without turns or tools the same is called end not recognised.
How it shows
    The mean length is far below the share that is counted as cut times the longest, while turns or calls are logged.
    Cut ones would all be as long as the limit.
What it does to the gradient
    Nothing by itself. With mask_truncated_completions these rollouts leave the loss, and with an overlong penalty
    they pay it.
What to do
    Do not mask or penalise truncated completions here, and judge by stop reasons.
What decides
    The last tokens and the stop reasons of ten rollouts that are counted as cut.
Sources
    TRL #4976: https://github.com/huggingface/trl/issues/4976
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks.turns import key_of_turns
from grposcope.faults.known_task import Known
from grposcope.signs.counted_as_cut import TEST

MASK = "mask_truncated_completions"
REMEDY = f"set {MASK} to false, and judge rollouts by their stop reasons"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Truncated completions are masked while tools or environments may end them."""
    key = key_of_turns(config)
    if key and config.on(MASK):
        yield fact(
            True,
            "a rollout that its environment or the limit on calls ends has no end token and counts as truncated, so "
            f"that {MASK} takes it out of the loss",
            config.signs(MASK, key),
            grade="warning",
            brief="rollouts that the environment ended are masked",
            remedy=REMEDY,
        )


FAULT = Fault(
    name="ends not counted",
    rank=50,
    remedy="do not mask or penalise truncated completions, and write the stop reason of every rollout",
    effect="a mask of truncated completions would leave them out",
    beside="note",
    log=TEST,
    settings=SettingsCheck(
        "ends not counted", _settings, ("trl",), "rollouts that an environment ends and a mask leaves out", ("warning",)
    ),
)
