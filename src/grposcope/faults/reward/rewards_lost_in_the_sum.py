"""Reward functions pay, and the reward that is trained on is one number in every row.

Asked as
    reward is 0 although the reward functions are not
What it is
    What the functions return does not reach the sum: a gate sets the total to 0 (of completions that count as
    truncated, of a failed check), their weights are 0, or a default stands where the sum should.
How it shows
    Components of the reward vary from row to row, or spread within the batch; the reward is the same in all rows.
What it does to the gradient
    All rewards are equal, so that there is none.
What to do
    Print for one rollout what each function returned, its weight, and the total; correct what lies between.
What decides
    The total of one rollout beside what its functions returned for it.
Sources
    verifiers #186: https://github.com/PrimeIntellect-ai/verifiers/pull/186
"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.text import listed, number, visible
from grposcope.maths.timeseries.noise import Array
from grposcope.signs.quantities import LEAST, NO_SPREAD, Quantities

FOLLOWS = (
    "never paid", "starved", "empty steps", "zero loss", "no learning", "constant reward", "saturated",
    "dead after a fall",
)  # fmt: skip
"""Faults that follow from rewards that are all alike."""


def _check(quantities: Quantities) -> Finding:
    """One reward in all rows, without any spread, while components vary that do not make up for each other."""
    reward, parts = quantities.require("reward", LEAST), quantities.components()
    if not parts:
        return cannot_tell(quantities.absent_components(), "components")
    paid = {name: series for name, series in parts.items() if np.ptp(series.values) > NO_SPREAD}
    spread = quantities.get("reward_std", LEAST)
    if np.ptp(reward.values) > 0 or (spread is not None and (np.abs(spread.values) > NO_SPREAD).any()):
        return fact(False, "the reward varies")
    table = quantities.run.table
    if not paid or _makes_up(np.array([table[f"component/{name}"] for name in paid])):
        return fact(False, "the components of the reward vary no more than their sum")
    levels = [f"{visible(name, 40)} is {number(float(series.values.mean()))}" for name, series in paid.items()]
    rows = f"{len(reward)} {reward.rows}"
    because = (
        f"{quantities.key(reward.name)} is exactly {reward.values[0]:g} in all {rows} although its components vary (in "
        f"the mean {listed(levels)}): what the functions return is lost before it is the reward"
    )
    evidence = (
        Sign(f"{reward.name}, every row", float(reward.values[0]), column=reward.name),
        *(
            Sign(f"{name}, mean of all rows", float(series.values.mean()), column=series.name)
            for name, series in paid.items()
        ),
    )
    return fact(True, because, evidence, explains=FOLLOWS,
                brief=f"the reward is {reward.values[0]:g} in all {rows} although its components vary")  # fmt: skip


def _makes_up(columns: Array) -> bool:
    """Whether components (C, n), C > 1, may have a weighted sum that is the same in all rows, none of it with weight
    0: a share of them that is a linear function of the others."""
    whole = columns[:, np.isfinite(columns).all(0)]
    if len(whole) < 2 or whole.shape[1] <= len(whole):
        return False
    centred = whole - whole.mean(1, keepdims=True)
    sizes = np.linalg.svd(centred / np.maximum(centred.std(1, keepdims=True), NO_SPREAD), compute_uv=False)
    return bool(sizes[-1] < 1e-6 * sizes[0])


FAULT = Fault(
    name="rewards lost in the sum",
    rank=118,
    remedy="print for one rollout what each function returned, its weight, and the total: look for weights of 0, a "
    "gate that sets the total to 0 (of completions that count as truncated or that failed a check), and a default "
    "that stands in its place",
    effect="nothing can be learned",
    beside="failing",
    log=LogTest(
        "rewards lost in the sum",
        _check,
        needs=("components", "reward"),
        statistic="the reward of every row, its spread, and the components",
        threshold=f"one reward in all of at least {LEAST} rows, components that vary, none a linear function of others",
    ),
)
