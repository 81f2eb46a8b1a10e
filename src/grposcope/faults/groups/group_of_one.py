"""Groups of one rollout, which have nothing to compare it with.

What it is
    The group size is 1, often because a setting of the sampler (`rollout.n` of verl) was left at its default.
How it shows
    TRL refuses to start. Elsewhere every advantage is 0, or, in verl, the raw reward. The group size that the log
    records is 1, or no group of its rollouts has two.
What it does to the gradient
    It is 0; in verl it is REINFORCE without a baseline, whose variance grows with the square of the mean reward.
What to do
    Draw 4 rollouts of a prompt or more.
What decides
    The group size in the settings, or the number of rollouts with the same prompt in a batch.
Sources
    TRL 1.16, GRPOConfig: https://huggingface.co/docs/trl/grpo_trainer
    verl 0.9.1, core_algos: https://github.com/verl-project/verl"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Grade, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs import run_outcome
from grposcope.signs.quantities import Quantities
from grposcope.signs.settings.names import EVERY, group_size, key_of
from grposcope.signs.settings.recipe import group_relative


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A group size of 1 where the rollouts of a prompt are compared."""
    trainer, key = config.dialect.name, key_of(config, "group")
    group = group_size(config)
    if not group_relative(config) or (trainer == "areal" and config.on("actor.reward_norm.mean_leave1out")):
        return
    if group is None:
        yield cannot_tell(f"{key} is not known", key)
    elif group == 1:
        grade: Grade = "failing"
        consequence = "TRL refuses to start" if trainer == "trl" else "every advantage is 0"
        because = f"a rollout is compared with the others of its group, but there are no others: {consequence}"
        if trainer == "verl":
            grade = "warning"
            because = (
                "a rollout has nothing to compare with: verl sets the mean of such a group to 0 and its standard "
                "deviation to 1, so the raw reward is the advantage, and no baseline lowers its variance"
            )
        yield fact(True, because, config.signs(key), grade=grade, brief="groups of one rollout",
                   explains=() if trainer == "verl" else ("starved", "zero loss", "lost gradient", "no learning"),
                   remedy=f"set {key} to 4 or more")  # fmt: skip


def _check(quantities: Quantities) -> Finding:
    """Groups of one rollout, by the setting that is recorded or by the rollouts themselves."""
    run = quantities.run
    if quantities.group_size != 1 and not (len(run.groups) and int(run.groups.sizes.max()) == 1):
        return fact(False, "no group of one rollout is recorded")
    because = "each group has one rollout, so there is nothing to compare it with"
    return fact(True, because, (Sign("rollouts of a group", 1.0),), brief=because,
                grades=run_outcome.although_it_learned(run))  # fmt: skip


FAULT = Fault(
    name="group of one",
    rank=2.0,
    remedy="set num_generations, rollout.n or n_samples_per_prompt to 4 or more",
    beside="warning",
    log=LogTest(
        "group of one",
        _check,
        needs=(),
        statistic="the group size that is recorded, and the rollouts of each group",
        threshold="a fact, no noise involved",
    ),
    settings=SettingsCheck("group of one", _settings, EVERY, "groups of one rollout", ("failing", "warning")),
)
