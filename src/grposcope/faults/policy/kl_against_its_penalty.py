"""The KL grows as if its penalty pushed it on, or did not exist.

What it is
    The KL term of the loss has the wrong sign, so that every step leads further away, or it has no gradient: detached,
    overwritten, multiplied by a coefficient that is not the one of the settings.
How it shows
    The log of the KL rises along one straight line from the first steps on, over many e-folds, as only a feedback does;
    or the loss is the KL times a number below 0, in all rows or from one on;
    or the penalty, coefficient × KL, is larger than rewards differ, and the KL goes on growing as before. In settings:
    a coefficient below 0.
What it does to the gradient
    With the wrong sign the term drives the policy away; without a gradient the setting has no effect, however large.
What to do
    Check the sign and the gradient of the KL term before its coefficient is changed: raising it makes it worse, or does
    nothing. Then go back to a checkpoint from before the growth.
What decides
    Ten steps from the same start with 100 × the coefficient, grposcope compare ONE OTHER: equal to the last digit means
    no gradient, faster growth a wrong sign. With rollouts: grposcope verify FOLDER names the term.
Sources
    ToolRL #52: https://github.com/qiancheng0/ToolRL/issues/52
    Logic-RL #58: https://github.com/Unakar/Logic-RL/issues/58
    rLLM #111, a coefficient of -0.001: https://github.com/rllm-org/rllm/issues/111
    SkyRL #1340: https://github.com/NovaSky-AI/SkyRL/issues/1340
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from grposcope.core.fault import Fault, LogTest, SettingsCheck
from grposcope.core.finding import Finding, Sign, cannot_tell, fact
from grposcope.core.settings import Settings
from grposcope.core.text import number
from grposcope.faults.known_task import Known
from grposcope.maths.timeseries import level
from grposcope.maths.timeseries.change import LATE
from grposcope.signs.mismatch import straight
from grposcope.signs.parts_of_the_loss import (
    changed_multiple,
    coefficient_in_force,
    loss_as_multiple,
    loss_beside_noise,
)
from grposcope.signs.quantities import LEAST, SHORT, MetricSeries, Quantities
from grposcope.signs.thresholds import MIDDLE

SMALLEST = 1e-4
"""Coefficient of a KL term, at least, that is read off the loss."""

EFOLDS, ON_A_LINE = 6.0, 0.97
"""e-folds of the KL, and the share of the variance of its log that one straight line explains, of a feedback."""

LEAVES = 0.1
"""Nats of KL per token that a feedback has to reach to matter."""

OUTWEIGHS = 0.5
"""Coefficient × KL, as a share of the range of the rewards, from which a penalty should hold the policy."""

PAID, MUCH = 0.2, 1.0
"""Coefficient × KL, as a share of that range, from which a penalty that is paid for no gain should turn the policy
back, and the nats of KL per token from which it is looked at."""

EVENLY = 0.9
"""Share of the variance of the KL that one line explains, of a KL that grows all along."""

UNHELD = 0.8
"""Rise of the KL over the second half, as a share of that over the first, above which nothing holds it."""

CHECK = "check the sign and the gradient of the KL term before its coefficient is changed"
BACK = "go back to a checkpoint from before the growth"

FOLLOWS = (
    "growing oscillation", "oscillation", "kl blow-up", "entropy explosion", "entropy collapse", "gradient explosion",
    "length", "reward decline", "clip saturation",
)  # fmt: skip
"""Faults that follow where the KL term drives the policy away."""


def _check(quantities: Quantities) -> Finding:
    """A KL with a penalty in force that grows by feedback, or that goes on growing where the penalty outweighs."""
    kl = quantities.require("kl", LEAST)
    if (subtracted := _subtracted(quantities, kl)) is not None:
        return subtracted
    name, coefficient = coefficient_in_force(quantities)
    steadily = straight(kl.steps, kl.values)[1] > EVENLY  # no step that was too large led there
    if coefficient is None and steadily and (multiple := loss_beside_noise(quantities, "kl")) is not None:
        name, coefficient = f"the term that {quantities.key(multiple.loss)} shows", multiple.coefficient
    if coefficient is None:
        return cannot_tell("no coefficient of a KL term is logged")
    if coefficient <= 0:
        return fact(False, "there is no KL term")
    evidence = (Sign(f"{name}", coefficient), Sign(f"{kl.name}, last row", float(kl.values[-1]), column=kl.name))
    if (rate := _feedback(kl)) is not None:
        because = (
            f"{quantities.key(kl.name)} grows by {rate:.1%} a row at one rate from step {int(kl.steps[0]):,} on, to "
            f"{number(kl.values[-1])} nats, although its penalty ({name} {coefficient:g}) should hold it"
        )
        return _found(because, quantities, kl, evidence)
    late = kl.level(LATE).value
    scale = quantities.reward_margin(1.0)
    if float(np.median(kl.values[level.rows(len(kl), LATE)])) < late / 2:
        return fact(False, "the KL is large in single rows, and does not go on so", evidence)
    if scale is None or coefficient * late < PAID * scale or not _unheld(kl):
        return fact(False, "the KL does not grow against its penalty", evidence)
    if coefficient * late < OUTWEIGHS * scale and not steadily:
        return fact(False, "the KL does not grow against its penalty", evidence)
    if coefficient * late < OUTWEIGHS * scale:
        return _paid_for_nothing(quantities, kl, (name, coefficient), evidence)
    because = (
        f"{quantities.key(kl.name)} goes on to {number(late)} nats although its penalty, {coefficient:g} × "
        f"{number(late)} = {number(coefficient * late)}, is as large as rewards differ: {name} seems to have no effect"
    )
    return _found(because, quantities, kl, evidence)


def _paid_for_nothing(
    quantities: Quantities, kl: MetricSeries, term: tuple[str, float], evidence: tuple[Sign, ...]
) -> Finding:
    """A KL whose penalty (name and value of its coefficient) grows in the second half by PAID / 2 of the range of
    the rewards or more, while the reward does not gain, and nothing turns it back."""
    (name, coefficient), reward = term, quantities.require("reward", LEAST)
    late, middle = kl.level(LATE).value, kl.level(MIDDLE).value
    gain, rise = reward.change(MIDDLE, LATE).value, coefficient * (late - middle)
    scale = quantities.reward_margin(1.0) or math.inf
    if late < MUCH or gain > 0 or rise < PAID / 2 * scale:
        return fact(False, "the KL does not grow against its penalty", evidence)
    because = (
        f"{quantities.key(kl.name)} goes on from {number(middle)} to {number(late)} nats since the middle of the run, "
        f"and the reward does not gain; its penalty, {number(coefficient)} × {number(late)} = "
        f"{number(coefficient * late)}, should turn it back: {name} seems to have no effect"
    )
    return _found(because, quantities, kl, evidence)


def _subtracted(quantities: Quantities, kl: MetricSeries) -> Finding | None:
    """That the loss is the KL times a number below 0, in all rows or since one: the term has the wrong sign; None where
    it is not."""
    multiple, turned = loss_as_multiple(quantities, "kl"), changed_multiple(quantities, "kl", SMALLEST, sign=-1)
    noisy = loss_beside_noise(quantities, "kl") if multiple is None and turned is None else None
    away = "the KL term is subtracted from the loss, so that every step leads away from the start"
    if turned is not None:
        onset, coefficient = turned
        brief = f"{quantities.key('loss')} is {number(coefficient)} × {quantities.key(kl.name)} since step {onset:,}"
        because, rows = f"{brief}: {away}", "last rows"
    elif multiple is not None and multiple.coefficient < 0:
        onset, coefficient = None, multiple.coefficient
        brief = f"{quantities.key(multiple.loss)} is {number(coefficient)} × {quantities.key(multiple.of)}"
        because, rows = f"{brief} in the {multiple.rows} rows that have a KL: {away}", "median row"
    elif noisy is not None and noisy.coefficient < 0:
        onset, coefficient = None, noisy.coefficient
        brief = f"{quantities.key(noisy.loss)} is {number(coefficient)} × {quantities.key(noisy.of)} but for noise"
        because, rows = f"{brief}, which {noisy.rows} rows show: {away}", "fitted"
    else:
        return None
    evidence = (Sign(f"loss over KL, {rows}", coefficient, limit="above 0 for a penalty", column="loss"),)
    return fact(True, because, evidence, onset, explains=FOLLOWS, brief=brief, remedy=CHECK)


def _found(because: str, quantities: Quantities, kl: MetricSeries, evidence: tuple[Sign, ...]) -> Finding:
    brief = quantities.went(kl.name, float(kl.values[0]), float(kl.values[-1])) + " against its penalty"
    return fact(True, because, evidence, explains=FOLLOWS, brief=brief, remedy=f"{CHECK}; {BACK}")


def _feedback(kl: MetricSeries) -> float | None:
    """Growth per row of a KL whose log lies on one line over EFOLDS or more; None where it is bent, as by learning."""
    logs = kl.logs
    if logs is None or len(logs) < 0.95 * len(kl) or kl.values[-1] < LEAVES:
        return None
    half = len(logs) // 2
    slope, explained = straight(logs.steps, logs.values)
    halves = [straight(logs.steps[span], logs.values[span])[0] for span in (slice(0, half), slice(half, None))]
    rise = slope * float(logs.steps[-1] - logs.steps[0])
    by_power = straight(np.log(np.arange(1.0, len(logs) + 1)), logs.values)[1]
    even = min(halves) > 0.5 * max(halves) > 0
    if rise < EFOLDS or explained < max(ON_A_LINE, by_power) or not even:
        return None
    return math.expm1(slope * float(np.median(np.diff(logs.steps))))


def _unheld(kl: MetricSeries) -> bool:
    """Whether the KL rises in the second half as it does in the first, without turning back."""
    n = len(kl)
    width = max(n // 10, min(SHORT, n // 3))
    first, middle, last = (float(values.mean()) for values in (
        kl.values[:width], kl.values[(n - width) // 2 : (n + width) // 2], kl.values[-width:]
    ))  # fmt: skip
    return last - middle > UNHELD * (middle - first) > 0


COEFFICIENTS = {
    "trl": ("beta",), "ms-swift": ("beta",), "open-instruct": ("beta",), "mlx-lm-lora": ("beta",),
    "grposcope": ("kl",),
    "verl": ("actor_rollout_ref.actor.kl_loss_coef", "algorithm.kl_ctrl.kl_coef"),
    "nemo-rl": ("loss_fn.reference_policy_kl_penalty",), "skyrl": ("trainer.algorithm.kl_loss_coef",),
    "slime": ("kl_loss_coef", "kl_coef"), "openrlhf": ("algo.kl.init_coef", "init_kl_coef"),
    "roll": ("kl_loss_coef", "init_kl_coef"),
}  # fmt: skip
"""Trainer -> the keys of the coefficients of its KL terms."""


def _settings(config: Settings, facts: Known) -> Iterator[Finding]:
    """A coefficient below 0, which pays for leaving the reference."""
    for key in COEFFICIENTS[config.dialect.name]:
        coefficient = config.number(key)
        if coefficient is not None and coefficient < 0:
            yield fact(
                True,
                f"{key} is {coefficient:g}: with a coefficient below 0 the policy is paid for leaving the reference",
                config.signs(key),
                grade="warning",
                explains=("kl blow-up", "entropy explosion"),
                brief="a KL coefficient below 0",
                remedy=f"set {key} to {-coefficient:g}, or to 0 for no term",
            )


FAULT = Fault(
    name="kl against its penalty",
    rank=25,
    remedy=f"{CHECK}; {BACK}",
    effect="the policy leaves its start whatever the coefficient",
    beside="warning",
    log=LogTest(
        "kl against its penalty",
        _check,
        needs=("kl",),
        where_logged=True,
        statistic="loss over KL; log KL along a straight line; coefficient × KL against the range of the rewards",
        threshold=f"loss over KL below 0 in all rows; {EFOLDS:g} e-folds at one rate with R² > {ON_A_LINE:g}; or "
        f"coefficient × KL > {OUTWEIGHS:g} of the "
        "range while the KL grows as before",
    ),
    settings=SettingsCheck(
        "kl against its penalty", _settings, tuple(COEFFICIENTS), "a KL coefficient below 0", ("warning",), "rLLM #111"
    ),
)
