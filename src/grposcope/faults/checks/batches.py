"""The check of batch sizes, of whichever trainer: what the trainers look at only after the models are loaded, or not
at all."""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks import batches_of_trl, batches_of_verl
from grposcope.faults.known_task import Known
from grposcope.signs.settings.names import group_size
from grposcope.signs.settings.trl import GRPO_CONFIG
from grposcope.signs.settings.verl import VALIDATE

SOURCE = f"{GRPO_CONFIG}; {VALIDATE}; https://docs.nvidia.com/nemo/rl/latest/guides/grpo.html"


def settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """The sizes of batches, passes, processes and replicas, as the trainer of the settings wants them."""
    if config.dialect.name == "trl":
        yield from batches_of_trl.settings(config, facts)
    elif config.dialect.name == "verl":
        yield from batches_of_verl.settings(config)
    else:
        yield from _nemo_rl(config)


def _nemo_rl(config: Settings) -> Iterator[Finding]:
    """NeMo-RL: the rollouts of a step are a whole number of training batches."""
    prompts, batch = "grpo.num_prompts_per_step", "policy.train_global_batch_size"
    count, size, group = config.whole(prompts), config.whole(batch), group_size(config)
    if not (count and size and group):
        yield cannot_tell(f"{prompts}, {batch} or the group size is not known", prompts, batch)
    elif count * group % size:
        yield fact(
            True,
            f"{count} × {group} = {count * group} rollouts are not a multiple of the training batch of {size}",
            config.signs(prompts, batch),
            grade="failing",
            brief="batches do not divide",
            remedy=f"choose {batch} so that it divides {count * group}",
        )


CHECK = SettingsCheck(
    "indivisible batches",
    settings,
    ("trl", "verl", "nemo-rl"),
    "batches that do not divide into groups, mini-batches, passes, processes and GPUs; sizes refused together",
    ("failing", "warning", "note"),
)
"""Tells indivisible batches, indivisible gpus and refused settings apart."""
