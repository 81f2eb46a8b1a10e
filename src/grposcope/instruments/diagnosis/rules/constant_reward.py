"""Constant reward: exactly the same mean reward in every row, or in every row up to the end. No test is needed."""

from __future__ import annotations

import numpy as np

from grposcope.core.text import brief
from grposcope.instruments.diagnosis.findings import OWN_METHOD, Evidence, Grade, Rule, RuleResult
from grposcope.instruments.diagnosis.quantities import SHORT, Quantities

LATE = 0.15
"""Share of the run that the reward must be constant for, where it varied before."""


def check(quantities: Quantities) -> RuleResult:
    """The reward is one number in the last SHORT rows or more, and in LATE of the run."""
    reward = quantities.require("reward", SHORT)
    n, last = len(reward), float(reward.values[-1])
    same = int(np.argmin(np.append(reward.values[::-1] == last, False)))
    evidence = (Evidence("rows up to the end with the same reward", float(same), column=reward.name),)
    if same < max(SHORT, LATE * n):
        return RuleResult(
            1.0,
            "the reward varies up to the last row"
            if same == 1
            else f"the reward varies; only the last {same} of {n} rows have the same value",
            evidence,
        )
    top = reward.values.max() if quantities.reward_range is None or same < n else quantities.reward_range[1]
    solved = last >= top and (same < n or last > 0)
    since = f"in all {n} steps" if same == n else f"in the last {same} of {n} steps"
    subject = "every rollout has a reward of" if same == n and _alike(quantities, last) else "the reward is"
    because = f"{subject} exactly {brief(last)} {since}"
    onset = None if same == n else int(reward.steps[-same])
    grade: Grade | None = "note" if solved else None
    return RuleResult(0.0, because, evidence, onset, beside=grade, instead=grade, brief=because)


def _alike(quantities: Quantities, mean: float) -> bool:
    """Whether all rollouts of a mean reward are paid the same: it is an end of the range, or they have no spread."""
    spread = quantities.get("reward_std", 1)
    return mean in (quantities.reward_range or ()) or (spread is not None and not spread.values.any())


RULE = Rule(
    mode="constant reward",
    needs=("reward",),
    statistic="rows up to the end with exactly the same mean reward",
    threshold=f"{SHORT} rows and {LATE:g} of the run",
    source=OWN_METHOD,
    advice="read completions of the last steps and run the reward function on them by hand: it no longer "
    "distinguishes answers; go back to a checkpoint before the onset",
    check=check,
    proof=True,
    beside="warning",
    costs="equal rewards teach nothing",
)
