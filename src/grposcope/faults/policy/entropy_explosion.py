"""The entropy grows to a multiple of its early value.

What it is
    The policy dissolves into noise: too large steps, too strong an entropy bonus, an upper clip bound that favours
    unlikely tokens (clip-higher), or rewards for nothing.
How it shows
    Late entropy above three times the early one.
What it does to the gradient
    Scores of unlikely tokens dominate; the signal of the reward drowns in them.
What to do
    Lower the upper clip bound where it is above the lower one (clip_ratio_high, epsilon_high), the entropy bonus or the
    learning rate, and check completions for gibberish.
What decides
    Completions from before and after, and the same ten steps without the bonus and with equal clip bounds.
Sources
    rLLM #116: https://github.com/rllm-org/rllm/issues/116
    theory: policy concentration; the ratio is chosen by this project
    verl #2738: https://github.com/verl-project/verl/issues/2738
    RL-Factory #80: https://github.com/Simple-Efficient/RL-Factory/issues/80
"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.known_task import Known
from grposcope.signs.entropy import TEST
from grposcope.signs.settings.names import key_of

_STRONG = 0.05
"""Coefficient of an entropy bonus from which it is strong: the examples of the trainers have 0 to 0.01."""

_SWITCH = "trainer.algorithm.use_entropy_loss"
"""What switches the bonus of SkyRL on."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """An entropy bonus of _STRONG or more that is on."""
    key = key_of(config, "entropy_bonus")
    coefficient = config.number(key)
    if coefficient is None or coefficient < _STRONG or (config.dialect.name == "skyrl" and not config.on(_SWITCH)):
        return
    yield fact(
        True,
        f"the bonus for entropy has the coefficient {coefficient:g}, where 0 to 0.01 is usual: it pays for unlikely "
        "tokens at every place, whatever the reward",
        config.signs(key),
        grade="warning",
        explains=("gibberish", "length", "reward decline"),
        brief="a strong entropy bonus",
        remedy=f"set {key} to 0, or to 0.001 where the entropy falls",
    )


FAULT = Fault(
    name="entropy explosion",
    rank=90,
    remedy="lower the upper clip bound where it is above the lower one (clip_ratio_high, epsilon_high), the entropy "
    "bonus or the learning rate; check completions for gibberish",
    effect="answers vary less, so pass@k and exploration may suffer",
    beside="warning",
    log=TEST,
    settings=SettingsCheck(
        "entropy explosion",
        _settings,
        ("trl", "verl", "skyrl", "slime", "openrlhf", "roll"),
        "a strong entropy bonus",
        ("warning",),
        "examples of verl (0.001), slime and OpenRLHF (0), August 2026",
    ),
)
