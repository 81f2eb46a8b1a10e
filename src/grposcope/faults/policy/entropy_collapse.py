"""The entropy falls to a small fraction of its early value.

Asked as
    The entropy collapses
What it is
    The policy writes nearly the same answer every time. Some fall is what learning looks like; a few per cent of
    the start is not.
How it shows
    Late entropy below a fifth of the early one.
What it does to the gradient
    Rollouts of a group agree, so groups die and exploration ends.
What to do
    Raise the upper clip (clip-higher, DAPO), add an entropy bonus or a KL term, or lower the learning rate.
What decides
    pass@k of the checkpoints before and after: grposcope evaluate BEFORE AFTER.
Sources
    arXiv:2503.14476 (DAPO), clip-higher
    verl #781: https://github.com/verl-project/verl/pull/781
    verl #4818: https://github.com/verl-project/verl/issues/4818
"""

from __future__ import annotations

from grposcope.core.fault import Fault
from grposcope.signs.entropy import TEST

FAULT = Fault(
    name="entropy collapse",
    rank=80,
    remedy="raise the upper clip (clip-higher, DAPO), add an entropy bonus or KL, or lower the learning rate",
    effect="answers vary less, so pass@k and exploration may suffer",
    log=TEST,
)
