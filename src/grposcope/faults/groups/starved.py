"""Most groups have equal rewards, and the reward is below its ceiling.

Asked as
    reward_std is 0. What is wrong?
What it is
    The groups are too small, the prompts are too hard, the verifier rejects right answers, sampling is nearly
    greedy, or the reward is coarse. At success rate p a group of G rollouts is dead with probability p^G + (1 − p)^G.
How it shows
    The late share of dead groups is above its limit and the reward below its ceiling. The spread of a reward
    function can be positive at the same time, because trainers take it over the whole batch.
What it does to the gradient
    A group of equal rewards has none.
What to do
    Where the reward is low, check that the verifier accepts a right answer; then easier prompts, more rollouts per
    prompt, or partial credit. Where it is not, read some dead groups: harder prompts where most are all right, a policy
    that varies where they are one answer.
What decides
    A right answer graded by hand; how many dead groups each size gives, by grposcope lint --success-rate P on the
    settings, or by grposcope plan RUN where rewards of single rollouts are recorded.
Sources
    theory: advantage degeneracy, P(dead) = p^G + (1 − p)^G
    TRL #3857: https://github.com/huggingface/trl/issues/3857
    ms-swift #4512: https://github.com/modelscope/ms-swift/issues/4512
    ms-swift #4570: https://github.com/modelscope/ms-swift/issues/4570
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.faults.checks.expected_dead import CHECK
from grposcope.signs.dead_groups import STARVED

FAULT = Fault(
    name="starved",
    rank=100,
    remedy="use easier prompts, more rollouts per prompt or partial credit; check that the verifier accepts a "
    "right answer",
    beside="warning",
    outgrown=True,
    implies=("empty steps",),
    log=STARVED,
    settings=CHECK,
)
