"""Advantages or the loss have the opposite sign.

What it is
    A reward that is minimised, a loss that is maximised, or advantages that are subtracted the wrong way round.
How it shows
    Advantages are those of the settings times −1, or the derivatives of the loss are. In a log: the reward falls from
    the first steps on, as fast as learning would raise it, while the policy is near its start and writes as it did.
What it does to the gradient
    Bad rollouts become likelier and good ones less likely: every step undoes what the last earned.
What to do
    Reverse the sign where advantages or loss are computed; a test with one good and one bad rollout holds it.
What decides
    Advantages of one batch beside its rewards: grposcope verify FOLDER.
Sources
    method of this project
"""

from __future__ import annotations

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, measured
from grposcope.core.text import listed, number
from grposcope.maths.timeseries.change import EARLY, LATE
from grposcope.signs.falls_at_once import LEFT, NEAR, SOON, fall
from grposcope.signs.quantities import LEAST, Quantities
from grposcope.signs.rollouts.claims import advantages, gradient

FOLLOWS = (
    "reward decline", "held-out decline", "starved", "dead after a fall", "empty steps", "constant reward",
    "never paid", "kl blow-up", "entropy explosion", "entropy collapse", "length", "no learning",
)  # fmt: skip
"""Faults that follow where every step undoes what would be learned."""


def _check(quantities: Quantities) -> Finding:
    """A reward that falls from the first steps on, near the start of the policy."""
    reward = quantities.require("reward", LEAST)
    drop = fall(quantities)
    if drop is None and quantities.get("kl", LEAST) is None:
        quantities.require("kl", LEAST)
    if drop is None:
        return measured(1.0, "the reward does not fall from the first steps on near the start of the policy")
    near = [] if drop.kl is None else [f"the KL to the start is {number(drop.kl)} nats per token"]
    same = [f"{listed(drop.beside)} {'is' if len(drop.beside) == 1 else 'are'} as at first"] if drop.beside else []
    because = (
        f"the reward falls from the first steps on, from {number(drop.first)} to {number(drop.low)} at step "
        f"{drop.step:,}, where {' and '.join([*near, *same])}: so it is when advantages or the loss have the opposite "
        "sign"
    )
    seen = () if drop.kl is None else (Sign("KL where it has fallen", drop.kl, limit=f"near up to {NEAR:g}"),)
    evidence = (
        *seen,
        Sign("reward in the first rows", drop.first, column=reward.name),
        Sign(f"reward at step {drop.step:,}", drop.low, limit=f"fallen at {LEFT:g} of the first", column=reward.name),
    )
    p = reward.change(EARLY, LATE).p_down
    where = "" if drop.kl is None else f", at a KL of {number(drop.kl)}"
    brief = f"the reward falls from the first steps on{where}"
    return measured(p, because, evidence, brief=brief, explains=FOLLOWS)


FAULT = Fault(
    name="reversed sign",
    rank=2.4,
    remedy="check the sign of advantages and loss with one good and one bad rollout, and reverse it where it is wrong",
    beside="failing",
    log=LogTest(
        "reversed sign",
        _check,
        needs=("reward", "kl"),
        where_logged=True,
        statistic="reward of the first and last rows; KL, entropy, cut completions and mismatch where it has fallen",
        threshold=f"p < α, {LEFT:g} of the first reward left within {SOON:g} of the run, at a KL below {NEAR:g} nats "
        "and the rest as at first",
    ),
    rollouts=(advantages.PROOF, gradient.PROOF),
)
