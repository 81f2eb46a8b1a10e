"""Whether settings make rollouts of several turns, and of which key that is seen; where prime-rl has its settings."""

from __future__ import annotations

from grposcope.core.settings import Settings

TRL_TURNS = "max_tool_calling_iterations"
VERL_TURNS = "actor_rollout_ref.rollout.multi_turn.enable"
SKYRL_TURNS = "generator.max_turns"
SLIME_TURNS = "custom_generate_function_path"


def of_prime_rl(config: Settings, name: str) -> str:
    """The key of a setting of prime-rl's orchestrator, in a file of the whole run or of the orchestrator alone."""
    return next((key for key in (f"orchestrator.{name}", name) if config.says(key)), f"orchestrator.{name}")


def key_of_turns(config: Settings) -> str:
    """The key by which rollouts have several turns; empty where none says so.

    TRL's tools are arguments of the trainer, so that only a limit on their calls is seen.
    """
    several = {
        "trl": (TRL_TURNS, config.says(TRL_TURNS)),
        "verl": (VERL_TURNS, config.on(VERL_TURNS)),
        "skyrl": (SKYRL_TURNS, (config.whole(SKYRL_TURNS) or 1) > 1),
        "slime": (SLIME_TURNS, config.says(SLIME_TURNS)),
    }
    key, there = several.get(config.dialect.name, ("", False))
    return key if there else ""
