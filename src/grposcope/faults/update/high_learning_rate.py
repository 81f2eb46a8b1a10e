"""A learning rate higher than those others have published, or one whose first steps lead far away.

What it is
    The rate of Adam is above the largest among the published settings, for all weights or for adapters.
How it shows
    Where it is too high indeed: an entropy that collapses, a KL that runs away, spikes of the gradient norm, then a
    fall of the reward. In a log: a KL of a quarter of a nat or more within the first few steps; a reward that is lost
    within the first rows; or a reward and a held-out score that fall slowly from the first rows on while the entropy
    rises.
What it does to the gradient
    A step of Adam moves every weight by about the learning rate, whatever the size of the gradient.
What to do
    Start with 1e-6 for full training, 1e-5 for adapters.
What decides
    Fifty steps at a third of the rate, beside fifty at this one.
Sources
    DeepThinkVLA #1: https://github.com/OpenBMB/DeepThinkVLA/issues/1
    open-r1 #255: https://github.com/huggingface/open-r1/issues/255
    ms-swift #4800: https://github.com/modelscope/ms-swift/issues/4800
    The published settings that benchmarks/lint.md lists"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.early_kl import REMEDY, TEST
from grposcope.signs.settings.names import EVERY, key_of
from grposcope.signs.settings.recipe import adapter_scale, has_adapters

FULL, ADAPTERS = 2e-5, 5e-5
"""Largest learning rates of Adam among the published settings of benchmarks/lint.md, for all weights (but for one
script, which has 5e-5) and for adapters (but for one of distillation, which has 1e-4).
"""

USUAL, MUCH = 1e-6, 1e-5
"""The usual learning rate for all weights, and from where it is many times that."""

LOST = ("kl blow-up", "entropy collapse", "entropy explosion", "gradient explosion", "gibberish", "degenerate output")
"""What steps that are too large do to a policy, as a log or its texts show it."""

FAR = 10
"""Times these from which a learning rate is more than unusual."""

_LOSING = 1e-4
"""Learning rate of Adam for all weights that is five times the largest published one: steps that lose a policy."""

_ADAM = ("adam", "lion")
"""What the name of an optimiser has in it whose steps are about the learning rate."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A learning rate beyond what others train with."""
    key = key_of(config, "lr")
    rate = config.number(key)
    if rate is None:
        yield cannot_tell(f"{key} is not known", key)
        return
    yield from _scaled_adapters(config)
    optimizer = str(config.get(key_of(config, "optim")) or "adam").lower()
    if not any(word in optimizer for word in _ADAM):
        return  # a step of another optimiser is not about the rate
    if config.dialect.name == "trl" and has_adapters(config) is None and ADAPTERS >= rate >= MUCH:
        yield fact(
            True,
            f"nothing in the file says that adapters (LoRA) are trained; if all weights are, {rate:g} is "
            f"{rate / USUAL:.3g} times their usual rate ({USUAL:g})",
            config.signs(key),
            grade="note",
            explains=LOST,
            brief="a learning rate that loses some policies, if all weights are trained",
            remedy="start with 1e-6 for full training, 1e-5 for adapters",
        )
        return
    adapters = has_adapters(config)
    limit, of = (FULL, "all weights") if adapters is False else (ADAPTERS, "adapters")
    whose = "even for" if adapters is None else "for"
    if limit >= rate >= MUCH and of == "all weights":
        yield fact(
            True,
            f"{rate:g} is {rate / USUAL:.3g} times the usual rate for {of} ({USUAL:g}); some published runs train so, "
            "others lost the policy within a few steps",
            config.signs(key),
            grade="note",
            explains=LOST,
            brief="a learning rate that loses some policies",
            remedy="start with 1e-6 for full training, 1e-5 for adapters",
        )
    if rate > limit:
        yield fact(
            True,
            f"{rate:g} is {rate / limit:.3g} times the largest usual rate of published settings {whose} {of} "
            f"({limit:g}); a step of Adam moves every weight by about the learning rate",
            config.signs(key),
            grade="failing" if adapters is False and rate >= _LOSING else "warning" if rate > FAR * limit else "note",
            explains=LOST,
            brief="a learning rate higher than published ones",
            remedy="start with 1e-6 for full training, 1e-5 for adapters",
        )


_SCALED = 8.0
"""alpha over rank of adapters from which a step moves the weights several times as far as usual: 1 to 4 are usual."""


def _scaled_adapters(config: Settings) -> Iterator[Finding]:
    """Adapters that are multiplied by _SCALED or more."""
    scale = adapter_scale(config)
    if scale is None or scale[0] < _SCALED or not has_adapters(config):
        return
    yield fact(
        True,
        f"adapters are multiplied by alpha ÷ rank = {scale[0]:g}, where 1 to 4 is usual: the same learning rate moves "
        "the weights several times as far",
        config.signs(*scale[1]),
        grade="note",
        explains=LOST,
        brief="adapters at a large scale",
        remedy=f"set {scale[1][1]} to once or twice the rank, or lower the learning rate by as much",
    )


FAULT = Fault(
    name="high learning rate",
    rank=4.0,
    remedy=REMEDY,
    beside="warning",
    log=TEST,
    settings=SettingsCheck(
        "high learning rate",
        _settings,
        EVERY[:-1],
        "a learning rate higher than published ones",
        ("failing", "warning", "note"),
    ),
)
