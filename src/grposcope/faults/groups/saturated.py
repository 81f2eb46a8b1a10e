"""Nearly all groups have equal rewards, and the reward is near its maximum.

What it is
    The prompts are solved. At success rate p a group of G rollouts is dead with probability p^G + (1 − p)^G.
How it shows
    The late share of dead groups is above its limit and the reward near its ceiling.
What it does to the gradient
    A group of equal rewards has none; what remains comes from few prompts.
What to do
    Stop, train on harder prompts, or filter out solved ones (dynamic sampling, DAPO).
What decides
    grposcope plan RUN: the share of dead groups at other group sizes and success rates.
Sources
    arXiv:2503.14476 (DAPO), dynamic sampling
    theory: advantage degeneracy, P(dead) = p^G + (1 − p)^G
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.faults.checks.expected_dead import CHECK
from grposcope.signs.dead_groups import SATURATED

FAULT = Fault(
    name="saturated",
    rank=70,
    remedy="stop, train on harder prompts, or filter out solved ones (dynamic sampling, DAPO): these "
    "prompts are solved",
    effect="further steps on these prompts teach nothing",
    outgrown=True,
    implies=("empty steps",),
    log=SATURATED,
    settings=CHECK,
)
