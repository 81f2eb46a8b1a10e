"""A KL coefficient so large that the policy is held at its start, whatever the reward asks for.

What it is
    The coefficient is a hundred times a usual one: a typing error, a value meant for a KL that is averaged otherwise,
    or one that a controller has raised.
How it shows
    The coefficient, as set or as loss ÷ KL in the rows, is 1 or more; the KL stays near 0 although there is a gradient,
    and the reward does not rise.
What it does to the gradient
    The term of the KL grows with the distance until it balances the advantages, after a step or two; the gradient norm
    is large and leads back.
What to do
    Lower the coefficient to 0.001 to 0.04. A higher learning rate does not help.
What decides
    Twenty steps with a hundredth of the coefficient: the KL grows by a multiple.
Sources
    arXiv:2402.03300 (GRPO), which has 0.04
    method of this project
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import number
from grposcope.faults.known_task import Known
from grposcope.maths.timeseries.change import LATE
from grposcope.signs import run_outcome
from grposcope.signs.parts_of_the_loss import (
    changed_multiple,
    coefficient_in_force,
    loss_as_multiple,
    loss_beside_noise,
)
from grposcope.signs.quantities import LEAST, SHORT, Quantities
from grposcope.signs.settings.kl import LOSS_COEFFICIENT, REWARD_COEFFICIENT
from grposcope.signs.settings.names import EVERY, by_our_names, key_of

STRONG = 1.0
"""Coefficient of the KL from which it holds the policy: 25 times that of the GRPO paper."""

NEAR = 0.02
"""Late nats of KL per token below which the policy is near its start."""


def _check(quantities: Quantities) -> Finding:
    """A coefficient of STRONG or more, by the rows or the settings, a KL below NEAR, and no gain."""
    kl = quantities.require("kl", LEAST)
    if (changed := changed_multiple(quantities, "kl", STRONG)) is not None:
        step, ratio = changed
        key, now = quantities.key(kl.name), float(np.median(kl.values[kl.steps >= step]))
        before = float(np.median(kl.values[kl.steps < step][-SHORT:]))
        if now <= max(NEAR, before):
            because = (
                f"since step {step:,} the loss is {number(ratio)} × {key}, where 0.001 to 0.04 is usual, and {key} is "
                f"{number(now)} nats, {number(before)} before: the penalty draws the policy back to its start"
            )
            return fact(True, because, (Sign("coefficient of the KL", ratio),), step,
                        brief=f"KL coefficient {number(ratio)} since step {step:,}",
                        explains=("gradient explosion", "low learning rate", "no learning"))  # fmt: skip
    exact = loss_as_multiple(quantities, "kl")
    multiple = exact or loss_beside_noise(quantities, "kl")
    name, stated = coefficient_in_force(quantities)
    if multiple is None and stated is None:
        return cannot_tell("no coefficient of a KL term is logged")
    coefficient = stated or 0.0 if multiple is None else multiple.coefficient
    late, outcome = kl.level(LATE).value, run_outcome.of_run(quantities.run)
    evidence = (
        Sign(
            f"coefficient of the KL{', fitted' if multiple and not exact else ''}",
            coefficient,
            limit=f"usual up to 0.1, held from {STRONG:g}",
        ),
        Sign(f"{kl.name}, last {1 - LATE[0]:.0%}", late, column=kl.name),
    )
    if coefficient < STRONG or late > NEAR or kl.values.min() < 0 or not kl.values.any():
        return fact(False, "the KL penalty does not hold the policy at its start", evidence)
    if outcome.direction == "up":
        return fact(False, "the reward rises under the penalty", evidence)
    key = quantities.key(kl.name)
    how = f"the loss is {number(coefficient)} × {key}" if exact else f"{name} is {number(coefficient)}"
    if multiple is not None and exact is None:
        how = f"the loss is {number(coefficient)} × {key} but for noise"
    because = (
        f"{how}, where 0.001 to 0.04 is usual, and {key} stays at {number(late)} nats: the penalty holds the policy at "
        "its start"
    )
    return fact(True, because, evidence, brief=f"KL coefficient {number(coefficient)}, {key} held at {number(late)}",
                explains=("low learning rate", "no learning"))  # fmt: skip


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A coefficient of the KL in the loss of STRONG or more."""
    value, keys = by_our_names(config).get("kl"), (key_of(config, "kl"), LOSS_COEFFICIENT, REWARD_COEFFICIENT)
    key = next((key for key in keys if config.number(key) == value), "")
    if not isinstance(value, int | float) or isinstance(value, bool) or value < STRONG or _is_off(config):
        return
    yield fact(
        True,
        f"the coefficient of the KL is {value:g}, where 0.001 to 0.04 is usual: the policy stays at its start",
        config.signs(key) if key else (),
        grade="warning",
        explains=("no learning",),
        brief="a KL coefficient that holds the policy",
        remedy="set it to 0.001 to 0.04, or 0",
    )


_SWITCHES = {"slime": ("use_kl_loss",), "roll": ("use_kl_loss",),
             "skyrl": ("trainer.algorithm.use_kl_loss", "trainer.algorithm.use_kl_in_reward")}  # fmt: skip
"""Trainer -> what switches its KL term on, beside a coefficient."""


def _is_off(config: Settings) -> bool:
    """Whether the term with this coefficient is switched off, as far as is known."""
    switches = _SWITCHES.get(config.dialect.name, ())
    return bool(switches) and not any(config.on(switch) for switch in switches)


FAULT = Fault(
    name="kl penalty outweighs the reward",
    rank=26,
    remedy="lower the coefficient of the KL to 0.001 to 0.04, or 0; a higher learning rate does not help",
    effect="the policy stays where it started",
    beside="warning",
    log=LogTest(
        "kl penalty outweighs the reward",
        _check,
        needs=("kl", "loss"),
        where_logged=True,
        statistic="loss over KL, or the coefficient that is set; late KL; what became of the reward",
        threshold=f"coefficient of {STRONG:g} or more, late KL below {NEAR:g} nats and no gain, a fact",
    ),
    settings=SettingsCheck(
        "kl penalty outweighs the reward", _settings, EVERY[:6] + EVERY[7:],
        "a KL coefficient that holds the policy at its start", ("warning",),
    ),
)  # fmt: skip
