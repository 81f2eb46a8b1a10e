"""A gradient that is exactly 0 in every row although rewards differ within groups: it is lost after the advantages."""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import LogTest
from grposcope.core.finding import Finding, Grade, Sign, fact
from grposcope.core.text import number
from grposcope.signs import first_rows, run_outcome
from grposcope.signs.lasting_state import begins
from grposcope.signs.quantities import LEAST, NO_SPREAD, SHORT, MetricSeries, Quantities
from grposcope.signs.rewards_differ import DEAD, OVER_BATCH, rewards_differ

LOST, UNTRAINED = "lost gradient", "no token trained on"
"""The two faults that the same rows tell apart."""

NEUTRAL = {"gen_kl_error": 0.0, "token_mult_prob_error": 1.0, "mismatch/k3": 0.0, "mismatch/mult_error": 1.0}
"""Means over the tokens trained on, and the value that each has where there is no token."""

OFTEN = 0.9
"""Share of the rows without a gradient in which some group has different rewards, at least."""

FOLLOWS = ("empty steps", "zero loss", "no learning")
"""Faults that follow from a gradient of 0."""

BACKWARD = (
    "find where the gradient is lost between the loss and the weights: after one backward pass list the trainable "
    "parameters whose grad is missing or 0 (require_grad, adapters with gradient checkpointing), count the tokens of "
    "the mask, and try another version or ZeRO stage of DeepSpeed"
)
DIGITS = (
    "log the norm with more digits: one of 1e-6 is a gradient that is scaled down (importance weights near 0, a loss "
    "divided once more), and not lost"
)
"""What to do first where a log has few digits."""

TINY = 1e-5
"""Gradient norm below which hardly a weight moves: of a model of 1e8 weights a coordinate has 1e-9 then, below Adam's
ε of 1e-8."""

SCALED = (
    "find what scales the loss: compare the log-probabilities of sampler and trainer first (importance weights near 0 "
    "leave nothing, as where the sampler has lost its weights in a sleep mode or a transfer), then what divides it"
)
"""What to do about a gradient that is next to none."""

FEW_DIGITS, MANY_VALUES = (3, 4), 20
"""Digits of a log to which a small number is printed as 0, and the different values at the last of them that show so
few digits to be those of the log."""

COMPARE = (
    "compare the rewards of the rollouts of one prompt: where they are alike, read its completions and see whether the "
    "reward reads the prompt alone; where they differ"
)
MASK = "print the mask of one batch as the loss sees it: no token of it is 1; correct where it is built"
NORM = "take the norm from the engine (DeepSpeed: get_global_grad_norm()); the training itself has a gradient"


def _check(quantities: Quantities) -> Finding:
    """Every gradient norm is 0 while groups differ; that no token is in the mask where means over tokens are empty."""
    norm = quantities.require("grad_norm", LEAST)
    if (since := _lost_since(quantities, norm)) is not None:
        step, differ = since
        because = (
            f"the gradient is {_zero(quantities)} in every row since step {step:,} {differ}: it is lost after the "
            "advantages"
        )
        evidence = [Sign("largest gradient norm since", 0.0, column=norm.name)]
        return fact(True, because, tuple(evidence), step, fault=LOST, remedy=f"{MASK}; {BACKWARD}", explains=FOLLOWS,
                    brief=f"{quantities.key(norm.name)} is 0 since step {step:,}")  # fmt: skip
    if (scaled := _scaled_down(quantities, norm)) is not None:
        return scaled
    if norm.values.any():
        return fact(False, f"the gradient is not 0 in all {len(norm)} rows")
    differ = rewards_differ(quantities)
    if not differ:
        return fact(False, "groups may be dead, which have no gradient")
    rows = f"the gradient is {_zero(quantities)} on all {len(norm)} rows"
    backward = BACKWARD if _digits(quantities) is None else f"{DIGITS}; else {BACKWARD}"
    evidence = [Sign("largest gradient norm", 0.0, column=norm.name)]
    if empty := _empty_means(quantities):
        evidence += [Sign(f"{name}, every row", NEUTRAL[name], column=name) for name in empty]
        means = ", ".join(empty)
        because = f"{rows}, and so is all that is a mean over the tokens trained on ({means}), although {differ}"
        return fact(True, because, tuple(evidence), fault=UNTRAINED, remedy=MASK, explains=(LOST, *FOLLOWS), brief=rows)
    kl = quantities.get("kl", SHORT)
    if kl is not None:
        evidence.append(Sign(f"largest {kl.name}", float(kl.values.max()), column=kl.name))
    if run_outcome.of_run(quantities.run).direction == "up" or (kl is not None and _moves(kl.values)):
        because = f"{rows} although the policy moves and {differ}: the norm is not what is logged"
        grades: tuple[Grade, Grade] = ("note", "note")
        return fact(True, because, tuple(evidence), fault=LOST, remedy=NORM, grades=grades, brief=rows)
    still = ", and the KL to the starting policy is exactly 0" if kl is not None and not kl.values.any() else ""
    if differ == OVER_BATCH:
        because = (
            f"{rows}{still} although {differ}: whether they do within groups is not logged; if so, it is lost between "
            "the loss and the weights, and if not, all answers to a prompt are paid alike"
        )
        return fact(
            True, because, tuple(evidence), fault=LOST, remedy=f"{COMPARE}, {backward}", explains=FOLLOWS, brief=rows
        )
    lost = "lost" if _digits(quantities) is None else "lost, or scaled down,"
    because = f"{rows}{still} although {differ}: it is {lost} between the loss and the weights"
    return fact(True, because, tuple(evidence), fault=LOST, remedy=backward, explains=FOLLOWS, brief=rows)


def _scaled_down(quantities: Quantities, norm: MetricSeries) -> Finding | None:
    """That the norm is above 0 and below TINY in nearly every row although groups differ; None where it is not so."""
    differ = rewards_differ(quantities)
    if norm.values.min() < 0 or np.mean(norm.values > 0) < OFTEN or np.mean(norm.values < TINY) < OFTEN:
        return None
    if not differ or differ == OVER_BATCH:
        return None
    median, key = number(float(np.median(norm.values))), quantities.key(norm.name)
    because = (
        f"{key} is {median} in the median row although {differ}: norms of 0.01 to 10 are usual, and Adam hardly moves "
        f"a weight below {TINY:g}, so that the loss is scaled down"
    )
    evidence = (Sign(f"{norm.name}, median row", float(np.median(norm.values)), column=norm.name),)
    return fact(True, because, evidence, fault=LOST, remedy=SCALED, explains=FOLLOWS,
                brief=f"{key} is {median} in the median row")  # fmt: skip


def is_lost(quantities: Quantities) -> bool:
    """Whether there is no gradient although groups differ, so that their rewards do not explain it."""
    norm = quantities.get("grad_norm", LEAST)
    if norm is None:
        return False
    return _lost_since(quantities, norm) is not None or (not norm.values.any() and bool(rewards_differ(quantities)))


def _lost_since(quantities: Quantities, norm: MetricSeries) -> tuple[int, str] | None:
    """The step since which the gradient is exactly 0 although groups differ, and by what that is seen, where it began
    in the middle of the run; None else."""
    first, dead = begins(norm.values == 0), quantities.dead_fraction
    if first is None or dead is None or quantities.dead_fraction_is_bound:
        return None
    spread = quantities.column("reward_std")
    if spread is not None and not np.median(spread.values[spread.steps >= norm.steps[first]]) > NO_SPREAD:
        return None
    alive = 1 - dead.values[dead.steps >= norm.steps[first]]
    if not len(alive) or np.mean(alive > 0) < OFTEN:
        return None
    return int(norm.steps[first]), f"although {alive.mean():.0%} of groups have different rewards in these rows"


def _zero(quantities: Quantities) -> str:
    """How a zero of the log is told: exactly, or to the digits that the log has."""
    digits = _digits(quantities)
    return "exactly 0" if digits is None else f"0 to the {digits} digits that the log has (below {0.5 * 10**-digits:g})"


def _digits(quantities: Quantities) -> int | None:
    """The digits behind the point to which all numbers of a log are printed, of FEW_DIGITS; None where there are more,
    or where too few numbers show it."""
    table = quantities.run.table
    values = np.concatenate([column[np.isfinite(column)] for name, column in table.items() if name != "step"])
    values = values[(values != 0) & (np.abs(values) < 1e6)]
    for digits in FEW_DIGITS:
        scaled = values * 10.0**digits
        if np.abs(scaled - np.round(scaled)).max(initial=0.0) > 1e-4:
            continue
        last = np.unique(np.round(scaled)[np.round(scaled) % 10 != 0])
        return digits if len(last) >= MANY_VALUES else None
    return None


def _empty_means(quantities: Quantities) -> list[str]:
    """Means over the tokens trained on that are in every row what they are where there is no such token."""
    table = quantities.run.table
    return [name for name, value in NEUTRAL.items() if name in table and bool(np.all(table[name] == value))]


def _moves(kl: np.ndarray) -> bool:
    """Whether KL (n,) grew from where it began, so that weights change."""
    third = max(len(kl) // 3, 1)
    return bool(kl[:third].max() > 0 and np.median(kl[-third:]) > 2 * np.median(kl[:third]) > 0)


TEST = LogTest(
    LOST,
    _check,
    needs=("grad_norm",),
    statistic="gradient norms, how rewards differ within groups, means over the tokens trained on",
    threshold=f"0 in every row of at least {LEAST} while fewer than {DEAD:g} of the groups are dead",
    early=first_rows.no_gradient,
)
"""Tells a gradient that is lost from a mask without tokens."""
