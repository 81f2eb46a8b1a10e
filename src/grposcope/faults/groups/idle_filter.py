"""Settings of a filter of groups that is off.

Asked as
    Does gen_batch_size do anything? Why are groups with equal rewards still trained on?
What it is
    How many batches a filter may draw, and how large they are, is set, and the switch of the filter itself is not.
How it shows
    In the settings. The share of groups with equal rewards in the log stays what it is without a filter.
What it does to the gradient
    Groups with equal rewards are trained on, and have no gradient.
What to do
    Switch the filter on, or leave its settings out.
What decides
    The first rows of the log: batches drawn for each that is kept (train/num_gen_batches of verl) are logged where it
    is on.
Sources
    verl #876: https://github.com/verl-project/verl/issues/876
    verl #953: https://github.com/verl-project/verl/issues/953
    NeMo-RL, DAPO guide: https://docs.nvidia.com/nemo/rl/latest/guides/dapo.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known

SWITCHES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "verl": (
        "algorithm.filter_groups.enable",
        ("algorithm.filter_groups.max_num_gen_batches", "algorithm.filter_groups.metric", "data.gen_batch_size"),
    ),
    "nemo-rl": (
        "grpo.use_dynamic_sampling", ("grpo.dynamic_sampling_max_gen_batches", "grpo.batch_multiplier"),
    ),
    "ms-swift": ("dynamic_sample", ("max_resample_times",)),
}  # fmt: skip
"""Trainer -> the switch of its filter, and what is read only where it is on."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """What belongs to a filter, in settings that do not switch it on."""
    switch, idle = SWITCHES[config.dialect.name]
    named = [key for key in idle if config.says(key) and not _is_usual(config, key)]
    if not named or config.on(switch) or switch in config.opaque or config.partial:
        return
    verb = "has" if len(named) == 1 else "have"
    yield fact(
        True,
        f"{switch} is not on, so that {', '.join(named)} {verb} no effect: groups with equal rewards are trained on",
        config.signs(*named, switch),
        grade="warning",
        brief="a filter of groups that is off",
        remedy=f"set {switch} to true, or leave {', '.join(named)} out",
    )


_OF_THE_BASE = {"grpo.dynamic_sampling_max_gen_batches": 10, "max_resample_times": 3}
"""Values that stand in the base configuration of NeMo-RL beside a filter that is off, and the default of ms-swift."""


def _is_usual(config: Settings, key: str) -> bool:
    """Whether a setting is what it is without a filter: batches as large as those of training, or multiplied by 1."""
    value = config.get(key)
    return (
        value is None
        or value in (1, 0, _OF_THE_BASE.get(key))
        or (key == "data.gen_batch_size" and value == config.get("data.train_batch_size"))
    )


FAULT = Fault(
    name="idle filter",
    rank=3.03,
    remedy="switch the filter on, or leave its settings out",
    settings=SettingsCheck(
        "idle filter", _settings, tuple(SWITCHES), "settings of a filter of groups that is off", ("warning",)
    ),
)
