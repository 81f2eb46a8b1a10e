"""The entropy grows to a multiple of its early value.

What it is
    The policy dissolves into noise: too large steps, too strong an entropy bonus, an upper clip bound that favours
    unlikely tokens (clip-higher), or rewards for nothing.
How it shows
    Late entropy above three times the early one.
What it does to the gradient
    Scores of unlikely tokens dominate; the signal of the reward drowns in them.
What to do
    Lower the upper clip bound where it is above the lower one (clip_ratio_high, epsilon_high), the entropy bonus or the
    learning rate, and check completions for gibberish.
What decides
    Completions from before and after, and the same ten steps without the bonus and with equal clip bounds.
Sources
    rLLM #116: https://github.com/rllm-org/rllm/issues/116
    theory: policy concentration; the ratio is chosen by this project
    verl #2738: https://github.com/verl-project/verl/issues/2738
    RL-Factory #80: https://github.com/Simple-Efficient/RL-Factory/issues/80
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.entropy import TEST

FAULT = Fault(
    name="entropy explosion",
    rank=90,
    remedy="lower the upper clip bound where it is above the lower one (clip_ratio_high, epsilon_high), the entropy "
    "bonus or the learning rate; check completions for gibberish",
    effect="answers vary less, so pass@k and exploration may suffer",
    beside="warning",
    log=TEST,
)
