"""The failure modes that a diagnosis knows, and the rule that finds each: one file per mode or closely tied pair.

To add a rule, write a file with a `Rule` and enter it here: one line per mode, at its place in the order.
"""

from __future__ import annotations

from grposcope.instruments.diagnosis.findings import Rule
from grposcope.instruments.diagnosis.rules import (
    cancelling_components,
    clip_saturation,
    constant_reward,
    dead_groups,
    empty_steps,
    entropy,
    gradient_spikes,
    heldout_decline,
    kl,
    length,
    misconfiguration,
    muted_component,
    never_paid,
    no_learning,
    non_finite,
    off_policy,
    oscillation,
    reward_decline,
    reward_hacking,
    zero_loss,
)

RULES: dict[str, Rule] = {
    "misconfiguration": misconfiguration.RULE,
    "non-finite": non_finite.RULE,
    "growing oscillation": oscillation.RULE,
    "reward hacking": reward_hacking.RULE,
    "kl blow-up": kl.RULE,
    "constant reward": constant_reward.RULE,
    "saturated": dead_groups.SATURATED,
    "entropy collapse": entropy.RULE,
    "entropy explosion": entropy.RULE,
    "starved": dead_groups.STARVED,
    "dead after a fall": dead_groups.STARVED,
    "never paid": never_paid.RULE,
    "oscillation": oscillation.RULE,
    "length": length.RULE,
    "cancelling components": cancelling_components.RULE,
    "empty steps": empty_steps.RULE,
    "gradient explosion": gradient_spikes.RULE,
    "gradient spikes": gradient_spikes.RULE,
    "clip saturation": clip_saturation.RULE,
    "held-out decline": heldout_decline.RULE,
    "reward decline": reward_decline.RULE,
    "sampler mismatch": off_policy.RULE,
    "muted component": muted_component.RULE,
    "zero loss": zero_loss.RULE,
    "no learning": no_learning.RULE,
}
"""Mode -> its rule, causes before what follows: the first flagged mode is the headline, unless another explains it.

A rule that tells two modes apart stands at both.
"""


def minor_modes() -> set[str]:
    """Modes that say that nothing happens rather than that something goes wrong."""
    return {mode for mode, rule in RULES.items() if rule.minor}
