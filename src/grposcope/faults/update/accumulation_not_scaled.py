"""Gradients of micro-batches are added up without division, or divided by another number.

What it is
    A loss that the trainer no longer divides by the number of passes, which nothing else divides either; or a mean over
    the tokens of a batch of rollouts that is not the batch of the step.
How it shows
    The derivatives of the loss are as many times too large as there are passes. In settings of TRL before #6024 (June
    2026): dapo, cispo or vespo with steps_per_generation other than gradient_accumulation_steps.
What it does to the gradient
    Every step is larger by the number of passes: the clip of the norm bites all the time, and the rate is not the
    stated one.
What to do
    Divide the loss of each pass by their number, or the sum once. In TRL: a version with #6024, or equal numbers.
What decides
    The norm of the gradient of one batch with one pass and with several.
Sources
    TRL #6024: https://github.com/huggingface/trl/pull/6024
    TRL #3021: https://github.com/huggingface/trl/issues/3021
    Hugging Face, gradient accumulation: https://huggingface.co/blog/gradient_accumulation"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import gradient

BY_TOKENS = ("dapo", "cispo", "vespo")
"""Losses of TRL that are divided by the tokens of the batch of rollouts."""

PASSES, ROLLED = "gradient_accumulation_steps", "steps_per_generation"


def settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A loss divided by the tokens of a batch of rollouts, and steps of another number of passes."""
    passes, rolled = config.whole(PASSES), config.whole(ROLLED) if config.says(ROLLED) else None
    if config.get("loss_type") not in BY_TOKENS or not passes or not rolled or passes == rolled:
        return
    factor = passes / rolled
    yield fact(
        True,
        f"before TRL #6024 (June 2026) the loss {config.get('loss_type')} is divided by the tokens of {rolled} passes "
        f"(steps_per_generation) while a step adds up {passes}, so that gradients are {factor:.3g} × the mean "
        "over tokens",
        config.signs("loss_type", ROLLED, PASSES),
        grade="note",
        brief=f"gradients are {factor:.3g} × as large in older versions of TRL",
        remedy="see which TRL is installed (pip show trl): take one with #6024, or set steps_per_generation to "
        "gradient_accumulation_steps",
    )


FAULT = Fault(
    name="accumulation not scaled",
    rank=7.4,
    remedy="divide the loss of each pass by the number of passes",
    beside="warning",
    rollouts=(gradient.PROOF,),
    settings=SettingsCheck(
        "accumulation not scaled",
        settings,
        ("trl",),
        "a loss divided by the tokens of another number of passes than a step has",
        ("note",),
        "TRL #6024: https://github.com/huggingface/trl/pull/6024",
    ),
)
