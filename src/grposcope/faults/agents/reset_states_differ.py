"""Rollouts of one group began in different states or environments.

What it is
    The environment is reset with a seed of its own for each rollout, another set of tools is offered, or a group mixes
    environments.
How it shows
    Rollouts of a group have different keys of the state before their first turn, or different environments.
What it does to the gradient
    The baseline compares luck: a rollout of an easy state looks better than its siblings, which is noise that grows
    with how much states differ.
What to do
    Reset all rollouts of a group with one seed and one set of tools.
What decides
    Seed or first observation of the rollouts of one group.
Sources
    NeMo-RL #4013: https://github.com/NVIDIA-NeMo/RL/issues/4013
    slime #1414: https://github.com/THUDM/slime/issues/1414
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import turns

FAULT = Fault(
    name="reset states differ",
    rank=4.7,
    remedy="reset all rollouts of a group with one seed and one set of tools",
    effect="the baseline compares luck",
    beside="warning",
    rollouts=(turns.PROOF,),
)
