"""The check of settings for a batch of rollouts that is used for more steps than the measured curvature allows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from grposcope.core.errors import UserError
from grposcope.core.fault import SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import number
from grposcope.faults.known import Known
from grposcope.instruments import has
from grposcope.signs.settings.names import EVERY, LEARNING_RATE, key_of
from grposcope.signs.settings.recipe import interval
from grposcope.signs.settings.verl import ACTOR

KEYS = {
    "trl": ("num_iterations", "steps_per_generation", "gradient_accumulation_steps"),
    "verl": ("data.train_batch_size", ACTOR + "ppo_mini_batch_size", ACTOR + "ppo_epochs"),
    "nemo-rl": ("grpo.num_prompts_per_step", "policy.train_global_batch_size"),
    "ms-swift": ("num_iterations", "steps_per_generation", "gradient_accumulation_steps"),
    "skyrl": ("trainer.train_batch_size", "trainer.policy_mini_batch_size", "trainer.update_epochs_per_batch"),
    "slime": ("rollout_batch_size", "global_batch_size", "num_steps_per_rollout"),
    "prime-rl": (),
    "grposcope": ("interval",),
}
"""The keys that decide how many steps are taken on a batch."""


def settings(config: Settings, known: Known) -> Iterator[Finding]:
    """Steps on a batch beyond N*, from the curvature of an earlier run at this learning rate."""
    steps, rule = interval(config, known.world), known.rule
    if steps == 1:
        return
    if steps is None:
        yield cannot_tell("the number of steps on one batch of rollouts is not known")
        return
    if rule is None or not math.isfinite(rule.curvature.value) or not rule.curvature.value > 0:
        why = known.rule_source or "no curvature is known: give an earlier run"
        yield cannot_tell(f"each batch is used for {steps} steps, and {why}", "curvature")
        return
    rate = config.number(key_of(config, LEARNING_RATE)) or rule.lr
    try:
        limit = _limit(known, rate)
    except UserError as error:
        yield cannot_tell(str(error))
        return
    if steps <= limit / 2:
        return
    beyond = steps > limit
    yield fact(
        True,
        f"each batch is used for {steps} steps; without importance ratios at most {number(limit)} are stable at the "
        f"learning rate {rate:g} and the curvature {number(rule.curvature.value)} ({known.rule_source}); the clipped "
        "ratio raises that limit by an unknown amount",
        config.signs(*KEYS[config.dialect.name]),
        fault="growing oscillation" if beyond else "oscillation",
        grade="warning" if beyond else "note",
        brief=f"a batch is used {'beyond' if beyond else 'near'} the stable limit",
        remedy=f"use at most {max(int(limit / 2), 1)} steps on a batch, or a smaller learning rate",
    )


def _limit(known: Known, rate: float) -> float:
    """N* at a learning rate, by the update rule of the earlier run; UserError where it has no effective step."""
    if known.rule is None or not has("stability"):
        raise UserError("the module instruments.stability is not installed")
    from grposcope.instruments.stability import refresh, stability

    rule = known.rule
    step = stability.effective_step(rule.optimizer, rate, rule.momentum, rule.rms_gradient)
    return refresh.threshold(replace(rule, step=step).step, rule.momentum, rule.curvature.value)


CHECK = SettingsCheck(
    "growing oscillation",
    settings,
    EVERY,
    "steps on one batch beyond the stable limit N* of an earlier run",
    ("warning", "note"),
    "arXiv:2606.30789; grposcope.instruments.stability.refresh",
)
"""Tells oscillation, near the limit, and growing oscillation, beyond it, apart."""
