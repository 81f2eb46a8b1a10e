"""Gradients of micro-batches are added up without division, or divided by another number.

What it is
    A loss that the trainer no longer divides by the number of passes, which nothing else divides either; or a mean over
    the tokens of a batch of rollouts that is not the batch of the step.
How it shows
    The derivatives of the loss are as many times too large as there are passes. In settings of TRL before #6024 (June
    2026): dapo, cispo or vespo with steps_per_generation other than gradient_accumulation_steps. In those of ms-swift
    before #10116 (September 2026): dapo, cispo or fipo with accumulation, which is divided by once more. In a log: a
    gradient norm in the hundreds or thousands from the first row on, beside a policy and rewards that are as ever; or
    norm and loss that are larger by one factor from one step on.
What it does to the gradient
    Every step is larger by the number of passes: the clip of the norm bites all the time, and the rate is not the
    stated one.
What to do
    Divide the loss of each pass by their number, or the sum once. In TRL: a version with #6024, or equal numbers; in
    ms-swift a version with #10116, or loss_type grpo.
What decides
    The norm of the gradient of one batch with one pass and with several.
Sources
    verl #6609, context parallel: https://github.com/verl-project/verl/issues/6609
    ms-swift #6815, 1,500 under one stage of ZeRO: https://github.com/modelscope/ms-swift/issues/6815
    TRL #6024: https://github.com/huggingface/trl/pull/6024
    ms-swift #10117: https://github.com/modelscope/ms-swift/issues/10117
    TRL #3021: https://github.com/huggingface/trl/issues/3021
    Hugging Face, gradient accumulation: https://huggingface.co/blog/gradient_accumulation"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.gradient_norms import TEST
from grposcope.signs.rollouts.claims import gradient

BY_TOKENS = ("dapo", "cispo", "vespo")
"""Losses of TRL that are divided by the tokens of the batch of rollouts."""

BY_WINDOW = ("dapo", "cispo", "fipo")
"""Losses of ms-swift that are divided by the tokens of all passes of a step."""

PASSES, ROLLED = "gradient_accumulation_steps", "steps_per_generation"


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A loss divided by the tokens of a batch of rollouts, and steps of another number of passes."""
    if config.dialect.name == "ms-swift":
        yield from _divided_twice(config)
        return
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


def _divided_twice(config: Settings) -> Iterator[Finding]:
    """A loss that is divided by the tokens of all passes, and by their number on top."""
    passes, loss = config.whole(PASSES), config.get("loss_type")
    if loss not in BY_WINDOW or not passes or passes < 2:
        return
    yield fact(
        True,
        f"before ms-swift #10116 (September 2026) the loss {loss}, which is divided by the tokens of all {passes} "
        f"passes of a step, is divided by {passes} on top: gradients and the logged loss are 1/{passes} of the mean "
        "over tokens",
        config.signs("loss_type", PASSES),
        grade="note",
        brief=f"gradients are 1/{passes} as large in older versions of ms-swift",
        remedy="see which ms-swift is installed (pip show ms-swift): take one with #10116, or set loss_type to grpo",
    )


FAULT = Fault(
    name="accumulation not scaled",
    rank=7.4,
    remedy="divide the loss of each pass by the number of passes",
    beside="warning",
    log=TEST,
    rollouts=(gradient.PROOF,),
    settings=SettingsCheck(
        "accumulation not scaled",
        _settings,
        ("trl", "ms-swift"),
        "a loss divided by the tokens of another number of passes than a step has, or by their number once more",
        ("note",),
        "TRL #6024: https://github.com/huggingface/trl/pull/6024; ms-swift #10117",
    ),
)
