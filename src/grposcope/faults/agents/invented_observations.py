"""The policy writes what the environment would answer, and goes on from it.

Asked as
    The model hallucinates the tool's result
What it is
    Sampling does not stop where a turn ends, so that the policy goes on with "Observation: …" by itself; a template or
    a stop string is missing.
How it shows
    What the answers of the environment begin with stands inside turns of the policy.
What it does to the gradient
    Made-up results are trained on as the policy's own words, and stand in the context of later turns.
What to do
    Stop at that beginning where completions are drawn, or cut there: text, tokens and mask alike.
What decides
    One rollout as text: what stands between an action and the first message of a tool.
Sources
    AgenticArXiv-RL #81: https://github.com/Algorineko/AgenticArXiv-RL/pull/81
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import texts
from grposcope.signs.texts.foreign_turns import REMEDY

FAULT = Fault(
    name="invented observations",
    rank=6.1,
    remedy=REMEDY,
    effect="made-up results are learned",
    beside="warning",
    instead="warning",
    rollouts=(texts.PROOF,),
)
