"""The check of settings for a batch of rollouts that is used for more steps than the measured curvature allows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from grposcope.core.errors import UserError
from grposcope.core.fault import SettingsCheck
from grposcope.core.finding import Finding, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import number
from grposcope.faults.known_task import Known
from grposcope.instruments import has
from grposcope.signs.settings.names import EVERY, key_of
from grposcope.signs.settings.recipe import interval
from grposcope.signs.settings.verl import ACTOR

if TYPE_CHECKING:
    from grposcope.instruments.dynamics.stability import Stability

KEYS = {
    "trl": ("num_iterations", "steps_per_generation", "gradient_accumulation_steps"),
    "verl": ("data.train_batch_size", ACTOR + "ppo_mini_batch_size", ACTOR + "ppo_epochs"),
    "nemo-rl": ("grpo.num_prompts_per_step", "policy.train_global_batch_size"),
    "ms-swift": ("num_iterations", "steps_per_generation", "gradient_accumulation_steps"),
    "skyrl": ("trainer.train_batch_size", "trainer.policy_mini_batch_size", "trainer.update_epochs_per_batch"),
    "slime": ("rollout_batch_size", "global_batch_size", "num_steps_per_rollout"),
    "prime-rl": (),
    "openrlhf": ("rollout.batch_size", "rollout_batch_size", "train.batch_size", "train_batch_size"),
    "grposcope": ("interval",),
}
"""The keys that decide how many steps are taken on a batch."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Steps on a batch beyond N*, or rollouts older than K*, by an earlier run's curvature at this learning rate."""
    steps, rule = interval(config, facts.world), facts.rule
    if steps == 1 and (rule is None or not rule.lag):
        return
    if steps is None:
        yield cannot_tell("the number of steps on one batch of rollouts is not known")
        return
    if rule is None or not math.isfinite(rule.curvature.value) or not rule.curvature.value > 0:
        why = facts.rule_source or "no curvature is known: give an earlier run"
        used = f"each batch is used for {steps} step{'s' * (steps > 1)}"
        yield cannot_tell(f"{used}, and {why}", "curvature")
        return
    rate = config.number(key_of(config, "lr")) or rule.lr
    try:
        check = _check(facts, rate, steps)
    except UserError as error:
        yield cannot_tell(str(error))
        return
    limit, late = check.limit, rule.lag > 0
    age = check.rule.oldest if late else steps
    if age <= limit / 2:
        return
    beyond = age > limit
    at = f"at the learning rate {rate:g} and the curvature {number(rule.curvature.value)} ({facts.rule_source})"
    published = f"the published rule κηK < 1 − β, which is safe, allows fewer than {number(check.published)}"
    what = f"each batch is used for {steps} steps; without importance ratios at most {number(limit)} are stable {at}"
    if late:
        what = f"gradients are up to {age} steps late, as in the earlier run; at most {number(limit)} are stable {at}"
    yield fact(
        True,
        f"{what}; {published}; the clipped ratio raises that limit by an unknown amount",
        config.signs(*KEYS[config.dialect.name]),
        fault="growing oscillation" if beyond else "oscillation",
        grade="warning" if beyond else "note",
        brief=f"{'rollouts are old' if late else 'a batch is used'} {'beyond' if beyond else 'near'} the stable limit",
        remedy=f"let rollouts be at most {max(int(limit / 2), 1)} steps old, or use a smaller learning rate"
        if late
        else f"use at most {max(int(limit / 2), 1)} steps on a batch, or a smaller learning rate",
    )


def _check(facts: Known, rate: float, steps: int) -> Stability:
    """The check at a learning rate, by the update rule of the earlier run; UserError where it has no effective step."""
    if facts.rule is None or not has("dynamics"):
        raise UserError("the module instruments.dynamics is not installed")
    from grposcope.instruments.dynamics import stability

    rule = facts.rule
    step = stability.effective_step(rule.optimizer, rate, rule.momentum, rule.rms_gradient)
    return stability.check(replace(rule, step=step, interval=steps))


CHECK = SettingsCheck(
    "growing oscillation",
    _settings,
    EVERY,
    "steps on one batch beyond the stable limit N* of an earlier run, or rollouts older than its K*",
    ("warning", "note"),
    "arXiv:2606.30789; grposcope.dynamics.refresh",
)
"""Tells oscillation, near the limit, and growing oscillation, beyond it, apart."""
