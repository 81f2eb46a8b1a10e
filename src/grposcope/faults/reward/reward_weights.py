"""Weights of rewards that differ in number from the rewards, or are all 0.

What it is
    TRL takes one weight per reward function.
How it shows
    It refuses to start where the numbers differ; where all weights are 0 the reward is 0 in every row.
What it does to the gradient
    With weights of 0 there is nothing to learn from.
What to do
    Give one weight per function, and at least one that is not 0.
What decides
    Counting both.
Sources
    ms-swift 4.6, GRPOArguments: https://github.com/modelscope/ms-swift
    TRL 1.16, GRPOTrainer: https://huggingface.co/docs/trl/grpo_trainer"""

from __future__ import annotations

from collections.abc import Iterator

from grposcope.core.fault import Fault, SettingsCheck
from grposcope.core.finding import Finding, fact
from grposcope.core.settings import Settings
from grposcope.faults.checks.effective_weights import WEIGHTS
from grposcope.faults.known_task import Known


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """One weight per reward function, and not all of them 0."""
    weights, functions = config.get(WEIGHTS), config.reward_functions
    if not isinstance(weights, list) or (config.dialect.name == "ms-swift" and config.says("reward_model")):
        return  # models of ms-swift have a weight each, too
    if functions is not None and len(weights) != functions:
        because = f"{len(weights)} weights for {functions} reward functions: {config.dialect.title} refuses to start"
        yield fact(True, because, config.signs(WEIGHTS), grade="failing", remedy="give one weight per function",
                   brief="weights and rewards differ in number")  # fmt: skip
    elif weights and not any(weights):
        yield fact(True, "the policy is trained on no reward", config.signs(WEIGHTS), grade="failing",
                   brief="all reward weights are 0", remedy="give at least one weight that is not 0")  # fmt: skip


FAULT = Fault(
    name="reward weights",
    rank=1.4,
    remedy="give one weight per function",
    settings=SettingsCheck(
        "reward weights", _settings, ("trl", "ms-swift"),
        "weights that differ in number from the rewards, or are all 0", ("failing",),
    ),
)  # fmt: skip
