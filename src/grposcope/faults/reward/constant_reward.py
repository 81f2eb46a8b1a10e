"""Exactly the same mean reward in every row, or in every row up to the end.

What it is
    The reward function no longer tells answers apart: a grader that fails, a cache, a loophole, or answers that are
    all alike.
How it shows
    One number in ten rows and 0.15 of the run or more, up to the end. No test is needed.
What it does to the gradient
    Rewards within every group are equal, so there is none.
What to do
    Read completions of the last steps and run the reward function on them by hand; go back to a checkpoint from
    before the onset.
What decides
    The reward of a right answer, of a wrong one and of an empty one, given by hand.
Sources
    verifiers #186, a gate for truncation: https://github.com/PrimeIntellect-ai/verifiers/pull/186
    ms-swift #3130: https://github.com/modelscope/ms-swift/issues/3130
    method of this project
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Grade, Sign, fact
from grposcope.core.not_finite import Floats
from grposcope.core.settings import Settings
from grposcope.core.text import number, percent
from grposcope.faults.known_task import Known
from grposcope.signs import heldout, run_outcome
from grposcope.signs.quantities import NO_SPREAD, SHORT, Quantities

LATE = 0.15
"""Share of the run that the reward must be constant for, where it varied before."""


HARDLY = 0.05
"""Mean reward of earlier rows up to which a reward of 0 at last is no change."""

WRONG = 0.8
"""Held-out share of right answers below which a reward that pays every rollout is wrong."""

ROWS = 0.9
"""Share of the rows in which a reward function pays rollouts unlike each other."""

FLAT = (
    "look at how the rewards of the functions become one: no weight, a cap, or a condition that replaces the sum (a "
    "gate for what counts as truncated) pays all rollouts the same; print for one rollout what each function returned, "
    "its weight and the total"
)
"""What to do where single functions tell rollouts apart and the reward does not."""

FROM_THE_START = (
    "run the reward function by hand on a right answer, on a wrong one and on an empty one: it pays all that the "
    "policy writes the same"
)
"""What to do where the reward never varied."""


def _check(quantities: Quantities) -> Finding:
    """The reward is one number in the last SHORT rows or more, and in LATE of the run."""
    reward = quantities.require("reward", SHORT)
    n, last = len(reward), float(reward.values[-1])
    same = int(np.argmin(np.append(reward.values[::-1] == last, False)))
    evidence = (Sign("rows up to the end with the same reward", float(same), column=reward.name),)
    if why := _excluded(quantities, reward.values, same):
        return fact(False, why, evidence)
    alike = same == n and _alike(quantities, last)
    since = f"in all {n} {reward.rows}" if same == n else f"in the last {same} of {n} {reward.rows}"
    because = brief = f"{'every rollout has a reward of' if alike else 'the reward is'} exactly {last:.6g} {since}"
    grades, more = _grades(quantities, reward.values, same)
    flattened = _flattened(quantities) if alike else ""
    if flattened:
        more, brief = f"{more}, although {flattened}", because
    below = 0 < last < _BELOW * _most(quantities, reward.values)
    explains = FAULT.implies if same == n else _OF_ONE_BATCH if below else ()
    return fact(
        True, because + more, evidence, None if same == n else int(reward.steps[-same]), grades=grades, brief=brief,
        remedy=FLAT if flattened else FROM_THE_START if same == n else "", explains=explains,
    )  # fmt: skip


_BELOW = 0.9
"""Constant reward over the largest below which it is not all that can be earned."""

_OF_ONE_BATCH = ("reward hacking", "held-out decline", "kl blow-up", "clip saturation")
"""Faults that follow where the reward stands below its largest, as where one batch is trained on again and again."""


def _most(quantities: Quantities, rewards: Floats) -> float:
    """The largest reward there can be, as far as the log says, or that was seen."""
    return float(rewards.max()) if quantities.reward_range is None else quantities.reward_range[1]


def _excluded(quantities: Quantities, rewards: Floats, same: int) -> str:
    """Why a reward (n,) whose last `same` rows are alike is no constant one; empty where it is."""
    n, last = len(rewards), float(rewards[-1])
    if same < max(SHORT, LATE * n):
        few = f"the reward varies; only the last {same} of {n} rows have the same value"
        return "the reward varies up to the last row" if same == 1 else few
    if same == n and last == 0 and _alike(quantities, last) and not _flattened(quantities):
        return "the reward is 0 in every row: it was never paid"
    if same < n and last == 0 and 0 <= rewards[: n - same].mean() <= HARDLY:
        return "the reward is hardly ever paid, before its last rows as in them"
    return ""


def _grades(quantities: Quantities, rewards: Floats, same: int) -> tuple[tuple[Grade, Grade] | None, str]:
    """The grades of a reward (n,) whose last `same` rows are alike, None for those of the fault; what makes it worse.

    All solved may be why the reward stands at its highest, unless a held-out score or a single row says otherwise.
    """
    n, last = len(rewards), float(rewards[-1])
    if same == n and last > 0 and (held := _held_out_below(quantities)):
        return ("failing", "failing"), f", while {held}: it pays wrong answers too"
    top = rewards.max() if quantities.reward_range is None or same < n else quantities.reward_range[1]
    if last < top or (same == n and last <= 0):
        return None, ""
    if same == n:
        return ("warning", "warning") if _alike(quantities, last) else ("note", "note"), ""
    if _at_once(rewards, n - same):
        before = f", and {rewards[n - same - 1]:.3g} in the row before: no policy learns that in a step"
        return ("failing", "failing"), before
    return ("note", "note"), ""


def _at_once(rewards: Floats, first: int) -> bool:
    """Whether rewards (n,) came from below WRONG of the way from the least to the constant one in a single row."""
    least, last = float(rewards[:first].min()), float(rewards[first])
    return float(rewards[max(0, first - SHORT) : first].max()) < least + WRONG * (last - least)


def _held_out_below(quantities: Quantities) -> str:
    """That the last held-out score says most answers are wrong, as a clause; empty where it does not."""
    outcome = run_outcome.of_heldout(quantities)
    if not outcome.name or not 0 <= outcome.end.value <= WRONG or not outcome.end.value + 4 * outcome.end.se < 1:
        return ""
    return f"held-out {heldout.name(outcome.name)} is {percent(outcome.end.value)}"


def _flattened(quantities: Quantities) -> str:
    """That a reward function pays rollouts unlike each other, where their sum does not, as a clause; else empty."""
    spreads = quantities.components("component_std").values()
    wide = [spread for spread in spreads if len(spread) >= SHORT and np.mean(spread.values > NO_SPREAD) >= ROWS]
    if not wide:
        return ""
    widest = max(wide, key=lambda spread: float(np.median(spread.values)))
    return f"{quantities.key(widest.name)} is {number(float(np.median(widest.values)))} in the median row"


def _alike(quantities: Quantities, mean: float) -> bool:
    """Whether all rollouts of a mean reward are paid the same: it is an end of the range, or they have no spread."""
    spread = quantities.get("reward_std", 1)
    return mean in (quantities.reward_range or ()) or (spread is not None and not spread.values.any())


_UNVERIFIED = (("orchestrator.buffer.skip_verification", True), ("buffer.skip_verification", True),
               ("orchestrator.verification.enabled", False), ("verification.enabled", False))  # fmt: skip
"""Keys of prime-rl, December 2025 to April 2026, with which nothing is graded, and the value at which it is so."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """Rollouts that prime-rl does not grade."""
    key = next((key for key, value in _UNVERIFIED if config.get(key) is value), "")
    if key:
        yield fact(
            True,
            f"{key} is {str(config.get(key)).lower()}: rollouts are not graded, and every reward is 0",
            config.signs(key),
            grade="failing",
            explains=("starved", "never paid", "no learning"),
            brief="rollouts are not graded",
            remedy=f"leave {key} out, unless a teacher alone is learned from",
        )


FAULT = Fault(
    name="constant reward",
    rank=60,
    remedy="read completions of the last steps and run the reward function on them by hand: it no longer "
    "distinguishes answers; go back to the checkpoint before the onset",
    effect="equal rewards teach nothing",
    beside="warning",
    implies=("dead after a fall", "starved", "saturated", "empty steps", "never paid", "reward decline"),
    log=LogTest(
        "constant reward",
        _check,
        needs=("reward",),
        statistic="rows up to the end with exactly the same mean reward",
        threshold=f"{SHORT} rows and {LATE:g} of the run",
    ),
    settings=SettingsCheck(
        "constant reward",
        _settings,
        ("prime-rl",),
        "rollouts that are not graded",
        ("failing",),
        "prime-rl, CHANGELOG of December 2025 and March 2026: https://github.com/PrimeIntellect-ai/prime-rl",
    ),
)
