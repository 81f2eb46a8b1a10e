"""Steps of one or two prompts, whose rewards say which prompts were drawn.

What it is
    The batch of a step has one or two prompts.
How it shows
    The mean reward jumps from step to step, as prompts are easy or hard, and does not settle.
What it does to the gradient
    A step learns from one or two groups, or from none where their rewards are equal; the next one may undo it.
What to do
    Draw more prompts a step, or accumulate gradients over more; judge by means over many steps or a held-out score.
What decides
    The prompts of a step in the settings: rollouts of a step over the group size.
Sources
    TRL 1.16, GRPOConfig: https://huggingface.co/docs/trl/grpo_trainer
    method of this project: the variance of a mean over prompts"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.settings.names import EVERY, group_size, key_of

FEW = 2
"""Prompts of a step up to which its mean reward is mostly which prompts these are."""

_OF_TRL = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations")


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """FEW prompts in a step or fewer, where the file says how many."""
    prompts, keys = _prompts(config, facts)
    if prompts is None or not 0 < prompts <= FEW:
        return
    each = "one prompt" if prompts == 1 else f"{prompts} prompts"
    yield fact(
        True,
        f"a step has {each}: its mean reward is mostly whether {'that is' if prompts == 1 else 'these are'} easy or "
        "hard, so that it moves from step to step whatever is learned, and a step without a group that differs teaches "
        "nothing",
        config.signs(*keys),
        grade="note",
        brief=f"steps of {each}",
        remedy="draw 16 prompts a step or more, if need be by accumulating gradients, and judge by means over many "
        "steps",
    )


def _prompts(config: Settings, facts: Known) -> tuple[int | None, tuple[str, ...]]:
    """Prompts of a step of the optimiser and the keys that say so; None where the file does not say it."""
    if config.dialect.name in ("trl", "ms-swift"):
        each, passes, group = config.whole(_OF_TRL[0]), config.whole(_OF_TRL[1]), group_size(config)
        if not (each and passes and group and facts.world) or not config.says(_OF_TRL[0]):
            return None, ()
        return each * passes * facts.world // group, _OF_TRL
    key = key_of(config, "prompts")
    count = config.whole(key) if config.says(key) else None
    if config.dialect.name == "mlx-lm-lora" and count is not None:
        return count * (config.whole(_OF_TRL[1]) or 1), (key, _OF_TRL[1])
    return count, (key,)


FAULT = Fault(
    name="batch of few prompts",
    rank=5.05,
    remedy="draw more prompts a step",
    settings=SettingsCheck("batch of few prompts", _settings, EVERY, "steps of one or two prompts", ("note",)),
)
