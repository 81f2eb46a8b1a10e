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
    OpenRLHF 0.11, train_ppo_ray: https://github.com/OpenRLHF/OpenRLHF
    verl 0.9.1, trainer/config/ppo_trainer.yaml: https://verl.readthedocs.io/en/latest/algo/grpo.html"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.names import group_size, key_of
from grposcope.signs.settings.verl import ESTIMATOR, ROLLOUT


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """verl and OpenRLHF train PPO with a critic unless the estimator is named."""
    group = group_size(config) or 1
    if config.dialect.name == "openrlhf":
        yield from _openrlhf(config, group)
        return
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


def _openrlhf(config: Settings, group: int) -> Iterator[Finding]:
    """OpenRLHF without an estimator, where nothing of the critic is set either, as PPO would have it."""
    dotted = any(key.startswith("rollout.") for key in config.given)
    key = "algo.advantage.estimator" if dotted else "advantage_estimator"
    critic = any(name.startswith(("critic", "save_value")) for name in (*config.given, *config.opaque))
    if config.says(key) or config.get(key) != "gae" or group < 2 or critic:
        return
    yield fact(
        True,
        f"{key} is not set, and its default is gae: a critic is trained, and the {group} rollouts of a prompt are not "
        "compared",
        config.signs(key, key_of(config, "group")),
        grade="warning",
        brief="this is PPO with a critic, not GRPO",
        remedy=f"set {key} to group_norm, dr_grpo or rloo",
    )


FAULT = Fault(
    name="estimator without groups",
    rank=2.1,
    remedy=f"set {ESTIMATOR}=grpo",
    settings=SettingsCheck(
        "estimator without groups",
        _settings,
        ("verl", "openrlhf"),
        "several rollouts per prompt with the default estimator, which is PPO's",
        ("failing", "warning"),
    ),
)
