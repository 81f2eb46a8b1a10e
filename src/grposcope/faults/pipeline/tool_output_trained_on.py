"""Tokens that a tool or an environment wrote have a weight in the loss.

What it is
    A mask of the whole completion in rollouts of several turns.
How it shows
    The mask is 1 on tokens that tool_mask marks as written by others.
What it does to the gradient
    The policy learns to write the tool's answers itself; these tokens are unlikely under it, so they dominate the
    update.
What to do
    Mask what tools wrote, and keep attending to it.
What decides
    tool_mask beside the mask of one rollout: grposcope verify FOLDER.
Sources
    TRL #4974: https://github.com/huggingface/trl/issues/4974
    Search-R1, masking of retrieved tokens: https://arxiv.org/abs/2503.09516"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks.turns import of_prime_rl
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import tokens


def settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """What environments answer is not masked, or is trained on by likelihood beside the reward."""
    mask, kind = of_prime_rl(config, "mask_env_responses"), of_prime_rl(config, "algo.type")
    if config.off(mask):
        yield fact(
            True,
            f"{mask} false trains on what environments and tools answer, as if the policy had written it",
            config.signs(mask),
            grade="warning",
            brief="answers of environments are trained on",
            remedy=f"set {mask} to true",
        )
    if config.get(kind) == "echo":
        yield fact(
            True,
            f"{kind} echo also trains on the likelihood of what tools answer, by the alpha of its roles: the update is "
            "not that of the reward alone",
            config.signs(kind),
            grade="note",
            brief="the likelihood of tools' answers is trained",
            remedy=f"set {kind} to grpo to train on the reward alone",
        )


FAULT = Fault(
    name="tool output trained on",
    rank=4.4,
    remedy="leave the tokens of tools and environments out of the mask, where it is built",
    beside="warning",
    rollouts=(tokens.PROOF,),
    settings=SettingsCheck(
        "tool output trained on",
        settings,
        ("prime-rl",),
        "answers of environments that are trained on",
        ("warning", "note"),
    ),
)
