"""Tokens that a tool or an environment wrote have a weight in the loss.

What it is
    A mask of the whole completion in rollouts of several turns, or a loss that does not take the mask it is given:
    that of Unsloth and that of Liger, in their earlier versions.
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
    TRL #4975, Liger's loss: https://github.com/huggingface/trl/pull/4975
    Unsloth #5673, env_mask of rollout_func: https://github.com/unslothai/unsloth/issues/5673
    Search-R1, masking of retrieved tokens: https://arxiv.org/abs/2503.09516"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks.turns import of_prime_rl
from grposcope.faults.known_task import Known
from grposcope.signs.rollouts.claims import tokens

_LIGER = ("use_liger_kernel", "use_liger_loss")
"""Settings of TRL by which Liger computes the loss."""


def _of_script(config: Settings) -> Iterator[Finding]:
    """A mask of what environments wrote, in a script whose loss did not take it in earlier versions."""
    script = config.script or {}
    turns = [name for name in ("env_mask", "tools", "environment_factory") if name in script]
    if not turns:
        return
    liger = [key for key in _LIGER if config.on(key)]
    by = "Unsloth" if "unsloth" in script else "Liger" if liger else ""
    if not by:
        return
    line = script[turns[0]]
    since = "its versions before #5682 of May 2026" if by == "Unsloth" else "TRL before #4975 of February 2026"
    because = (
        f"{by} computes the loss, and in {since} without the mask of what tools and environments wrote ({turns[0]}, "
        f"line {line}): then their tokens are trained on as if the policy had written them"
    )
    remedy = (
        f"see that the version is a newer one, or train without {by}; print the mask that the loss multiplies by for "
        "one rollout in which a tool answered: it must be 0 on the answer"
    )
    yield fact(True, because, (*config.signs(*liger), Sign(turns[0], where=f"line {line}")), grade="warning",
               brief="the mask of tools may not reach the loss", remedy=remedy)  # fmt: skip


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """What environments answer is not masked, or is trained on by likelihood beside the reward."""
    if config.dialect.name == "trl":
        yield from _of_script(config)
        return
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
        _settings,
        ("prime-rl",),
        "answers of environments that are trained on",
        ("warning", "note"),
        scripts=("trl",),
    ),
)
