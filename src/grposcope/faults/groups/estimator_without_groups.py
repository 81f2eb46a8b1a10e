"""Several rollouts of each prompt, which the estimator does not compare: verl trains PPO with a critic by default.

What it is
    `algorithm.adv_estimator` is not set, and its default is gae.
How it shows
    A critic is loaded and trained; logs have critic/vf_loss. The rollouts of a prompt are treated as if each were of a
    prompt of its own.
What it does to the gradient
    Advantages are those of a critic that begins untrained, not of a group.
What to do
    Set algorithm.adv_estimator=grpo.
What decides
    The resolved configuration that verl prints at its start.
Sources
    verl 0.9.1, trainer/config/ppo_trainer.yaml: https://verl.readthedocs.io/en/latest/algo/grpo.html"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.names import group_size
from grposcope.signs.settings.verl import ESTIMATOR, ROLLOUT


def settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """verl trains PPO with a critic unless the estimator is named."""
    group = group_size(config) or 1
    if not config.says(ESTIMATOR) and config.get(ESTIMATOR) == "gae" and group > 1:
        yield fact(
            True,
            f"{ESTIMATOR} is not set, and its default is gae: a critic is trained, and the {group} rollouts of a "
            "prompt are not compared",
            config.signs(ESTIMATOR, ROLLOUT + "n"),
            grade="failing",
            brief="this is PPO with a critic, not GRPO",
            remedy=f"set {ESTIMATOR}=grpo",
        )


FAULT = Fault(
    name="estimator without groups",
    rank=2.1,
    remedy=f"set {ESTIMATOR}=grpo",
    settings=SettingsCheck(
        "estimator without groups",
        settings,
        ("verl",),
        "several rollouts per prompt with the default estimator, which is PPO's",
        ("failing",),
    ),
)
