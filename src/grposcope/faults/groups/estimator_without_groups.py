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
    AReaL 1.0.4, Normalization: https://github.com/inclusionAI/AReaL
    OpenRLHF 0.11, train_ppo_ray: https://github.com/OpenRLHF/OpenRLHF
    verl 0.9.1, trainer/config/ppo_trainer.yaml: https://verl.readthedocs.io/en/latest/algo/grpo.html"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.names import group_size, key_of
from grposcope.signs.settings.recipe import NORMS_OF_AREAL
from grposcope.signs.settings.verl import ESTIMATOR, ROLLOUT


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """verl and OpenRLHF train PPO with a critic unless the estimator is named; AReaL's normalisation has a size."""
    group = group_size(config) or 1
    if config.dialect.name == "openrlhf":
        yield from _openrlhf(config, group)
        return
    if config.dialect.name == "areal":
        yield from _areal(config, group)
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


def _areal(config: Settings, group: int) -> Iterator[Finding]:
    """AReaL, whose groups are as many rows in turn as its normalisation says, by default 1."""
    if group < 2 or config.partial or any(key.startswith("critic.") for key in config.given):
        return
    whole = {name: f"actor.{name}." for name in NORMS_OF_AREAL if _is_given(config, f"actor.{name}")}
    sizes = {
        prefix: f"{prefix}group_size"
        for prefix in whole.values()
        if config.get(f"{prefix}mean_level") == "group" and f"{prefix}group_size" not in config.opaque
    }
    for prefix, key in sizes.items():
        size = config.whole(key) or (None if config.says(key) else 1)
        if size is None or size == group or config.on(f"{prefix}mean_leave1out"):
            continue
        alone = "each rollout is compared with itself alone"
        alone += ", and every reward becomes 0" if "reward_norm" in prefix else ""
        yield fact(
            True,
            f"a prompt has {group} rollouts, and {key} is {size}{'' if config.says(key) else ' by default'}: "
            + (alone if size == 1 else f"means are taken over {size} rollouts in turn, whatever prompts they are of"),
            config.signs(key, "gconfig.n_samples"),
            grade="failing" if size == 1 or group % size else "warning",
            explains=("starved", "no learning") if size == 1 else (),
            brief="groups of the normalisation are not those of the prompts",
            remedy=f"set {key} to ${{gconfig.n_samples}}",
            source=_OF_AREAL,
        )
    before = any(config.says(f"actor.{name}") for name in ("group_size", "group_reward_norm", "group_adv_norm"))
    if not before and not any(config.given.get(f"{prefix}mean_level", "batch") for prefix in whole.values()):
        yield fact(
            True,
            "neither actor.reward_norm nor actor.adv_norm subtracts a mean, and there is no critic: the advantage is "
            f"the scaled reward, and the {group} rollouts of a prompt are not compared",
            config.signs("gconfig.n_samples"),
            grade="warning",
            brief="no baseline",
            remedy="give actor.reward_norm with mean_level: group and group_size: ${gconfig.n_samples}",
            source=_OF_AREAL,
        )


_OF_AREAL = "source of AReaL 1.0.4: https://github.com/inclusionAI/AReaL"


def _is_given(config: Settings, block: str) -> bool:
    """Whether a file has a block of settings, be it with a part of them alone."""
    return any(key.startswith(f"{block}.") for key in (*config.given, *config.opaque))


FAULT = Fault(
    name="estimator without groups",
    rank=2.1,
    remedy=f"set {ESTIMATOR}=grpo",
    settings=SettingsCheck(
        "estimator without groups",
        _settings,
        ("verl", "openrlhf", "areal"),
        "several rollouts per prompt with the default estimator, which is PPO's; groups of another size",
        ("failing", "warning"),
    ),
)
