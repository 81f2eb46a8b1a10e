"""The prompt of a turn is not the tokens of the turns before it.

What it is
    The conversation was turned into text and tokenised again, or the template rewrites earlier turns: it strips
    thinking, or renders calls of tools anew.
How it shows
    The ids of a turn's prompt leave those of the turns before it, although the prompt is as long. A compaction makes a
    much shorter one and is not meant here.
What it does to the gradient
    Trained as one row, tokens were drawn from another context than they are scored in; trained as rows, a trajectory
    falls apart into many.
What to do
    Hand token ids from turn to turn and append to them; use a template that keeps earlier turns as they were.
What decides
    The ids of two calls of one rollout: the first place at which they differ.
Sources
    verl #6854: https://github.com/verl-project/verl/issues/6854
    prime-rl #1334: https://github.com/PrimeIntellect-ai/prime-rl/issues/1334
    NeMo-RL #2821: https://github.com/NVIDIA-NeMo/RL/issues/2821
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.rollouts.claims import turns

FAULT = Fault(
    name="turns retokenised",
    rank=4.95,
    remedy="hand token ids from turn to turn and append to them; use a template that keeps earlier turns as they were",
    effect="tokens are scored in another context than they were drawn in",
    beside="warning",
    rollouts=(turns.PROOF,),
)
