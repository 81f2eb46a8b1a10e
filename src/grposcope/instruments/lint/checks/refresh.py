"""A batch of rollouts that is used for more steps than the measured curvature allows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from grposcope.core.errors import UserError
from grposcope.core.text import number
from grposcope.instruments.lint.checks.derived import ACTOR, interval
from grposcope.instruments.lint.checks.optimisation import KEYS as RATE
from grposcope.instruments.lint.config import Known, TrainerConfig
from grposcope.instruments.lint.findings import Fault, Untold
from grposcope.instruments.stability import refresh, stability

KEYS = {
    "trl": ("num_iterations", "steps_per_generation", "gradient_accumulation_steps"),
    "verl": ("data.train_batch_size", ACTOR + "ppo_mini_batch_size", ACTOR + "ppo_epochs"),
    "nemo-rl": ("grpo.num_prompts_per_step", "policy.train_global_batch_size"),
    "grposcope": ("interval",),
}
"""The keys that decide how many steps are taken on a batch."""


def too_long(config: TrainerConfig, known: Known) -> Iterator[Fault | Untold]:
    """Steps on a batch beyond N*, from the curvature of an earlier run at this learning rate."""
    steps = interval(config, known.world)
    if steps == 1:
        return
    if steps is None:
        yield Untold("the number of steps on one batch of rollouts is not known")
        return
    rule = known.rule
    if rule is None or not math.isfinite(rule.curvature.value) or not rule.curvature.value > 0:
        yield Untold(
            f"each batch is used for {steps} steps, and "
            f"{known.rule_source or 'no curvature is known: give an earlier run'}"
        )
        return
    rate = config.number(RATE.get(config.dialect.name, "lr")) or rule.lr
    try:
        step = stability.effective_step(rule.optimizer, rate, rule.momentum, rule.rms_gradient)
        limit = refresh.threshold(replace(rule, step=step).step, rule.momentum, rule.curvature.value)
    except UserError as error:
        yield Untold(str(error))
        return
    if steps <= limit / 2:
        return
    keys = tuple(key for key in KEYS[config.dialect.name] if config.get(key) is not None)
    beyond = steps > limit
    yield Fault(
        "warning" if beyond else "note",
        "a batch is used beyond the stable limit" if beyond else "a batch is used near the stable limit",
        f"each batch is used for {steps} steps; without importance ratios at most {number(limit)} are stable at the "
        f"learning rate {rate:g} and the curvature {number(rule.curvature.value)} ({known.rule_source}); the clipped "
        "ratio raises that limit by an unknown amount",
        f"use at most {max(int(limit / 2), 1)} steps on a batch, or a smaller learning rate",
        keys,
    )
