"""A logged metric is not what its name says.

What it is
    The deviation of the batch under the name of the groups', lengths of completions that ended only, sums without
    weights.
How it shows
    Worked out again from the rollouts of the same steps, it is another number, often that of another definition.
What it does to the gradient
    None: the gradient is right. Curves, alarms and comparisons show another quantity.
What to do
    Read the metric as what it measures, or log the right quantity under its name.
What decides
    The rollouts of two logged steps: grposcope verify LOG --rollouts FOLDER.
Sources
    method of this project"""

from __future__ import annotations

from grposcope.core.fault import OWN_METHOD, Fault
from grposcope.signs.rollouts.claims import metrics

FAULT = Fault(
    name="wrong metric",
    rank=9.2,
    remedy="read the metric as what it measures, or log the right quantity under its name",
    source=OWN_METHOD,
    instead="note",
    rollouts=(metrics.PROOF,),
)
