"""The learning rate is not the one of the stated schedule.

What it is
    A scheduler that steps with micro-batches, begins anew after a restart, or has another length or warm-up.
How it shows
    Logged rates differ from the schedule, or jump at a restart; rise anew in the middle of a run, where the reward is
    lost; or rise to its end, a warm-up that covers the run; or the weights before and after a step show another
    rate than the scheduler had for it, as where groups of parameters have rates of their own.
What it does to the gradient
    Steps are larger or smaller than stated; a rate that begins anew comes with its warm-up and its peak.
What to do
    Step the scheduler once for each optimiser step, and restore it with the checkpoint.
What decides
    The logged learning rate beside the schedule, and that which steps took: grposcope verify FOLDER, verify_every.
Sources
    NeMo-RL #3171, neither optimiser nor scheduler restored: https://github.com/NVIDIA-NeMo/RL/pull/3171
    method of this project"""

from __future__ import annotations

import numpy as np

from grposcope.core.fault import Fault, LogTest
from grposcope.core.finding import Finding, Sign, fact
from grposcope.core.text import apart
from grposcope.maths.timeseries.noise import Array
from grposcope.signs.jumps import jump
from grposcope.signs.quantities import LEAST, SHORT, MetricSeries, Quantities
from grposcope.signs.rollouts.claims import first_update, resume

WARM = 3
"""Rows of a warm-up, at least, that have to come again."""

FELL = 0.5
"""Rate of the row over that of the row before it, at most, where a schedule begins anew."""

ALIKE = 1e-5
"""Relative difference of two rates that are the same but for rounding."""

REMEDY = (
    "restore the scheduler with the checkpoint, and see that the optimiser's moments are restored too, which are saved "
    "beside it: without them each of the next steps is about the learning rate in every coordinate"
)


_AGAIN, _WITHIN = 3.0, 15
"""Factor by which the rate rises again, once it has fallen, within so many rows."""

_AROUND, _LOST = 25, 5.0
"""Rows before a rise of the rate and behind it whose rewards are compared, and the standard errors that are lost."""

_SUDDEN, _BESIDE = 2.5, 2
"""Spreads of a fall of the reward from one row to the next, and the steps from the rise of the rate to it."""

_RISING = 0.9
"""Share of the log over which the rate rises from row to row where its warm-up covers the log."""

_FEW, _MANY = 0.1, 100
"""Rate of the first rows over that of the last, at most, of such a warm-up, and the rows of a log that may show it."""

_OF_RESTARTS = (
    "where restarts of the schedule are meant, let them begin at a lower peak, or use none (linear or cosine without "
    "cycles): what was learned is lost at each. Where they are not, restore the scheduler with the checkpoint; the "
    "checkpoint from before that step is the one to go on from"
)
"""What to do where the reward is lost as the rate rises again."""

_OF_A_LONG_WARM_UP = (
    "give the warm-up 10 to 50 steps (or a tenth of the run): a scheduler that counts other steps than the optimiser's "
    "or a number of warm-up steps from a longer run, makes it so long"
)
"""What to do where the rate rises over the whole log."""


def _check(quantities: Quantities) -> Finding:
    """Rates of the first rows, a warm-up, that come again from a later row on."""
    rate = quantities.require("lr", LEAST)
    values = rate.values
    warm = int(np.argmin(np.append(np.diff(values) > ALIKE * values.max(), False))) + 1
    rows = [row for row in range(SHORT, len(values) - WARM) if _again(values, row, warm)] if warm >= WARM else []
    if not rows:
        nothing = fact(False, "no warm-up of the learning rate comes again")
        return _rises_again(quantities, rate) or _only_warms_up(quantities, rate) or nothing
    row, step = rows[0], int(rate.steps[rows[0]])
    again = f", and again at {len(rows) - 1} later step{'s' * (len(rows) > 2)}" if len(rows) > 1 else ""
    because = (
        f"{quantities.key(rate.name)} falls from {values[row - 1]:.3g} to {values[row]:.3g} at step {step:,}{again} "
        "and begins the warm-up of the first rows anew: the scheduler was not restored, unless another run begins there"
    )
    evidence = (
        Sign(f"{rate.name}, row before", float(values[row - 1]), column=rate.name),
        Sign(f"{rate.name}, at step {step:,}", float(values[row]), column=rate.name),
    )
    return fact(True, because, evidence, step, remedy=REMEDY,
                brief=f"the learning rate warms up anew at step {step:,}")  # fmt: skip


def _rises_again(quantities: Quantities, rate: MetricSeries) -> Finding | None:
    """That the rate, once it had fallen, rises _AGAIN times or more within _WITHIN rows, and the reward falls there;
    None where it does not."""
    reward, values = quantities.get("reward", LEAST), rate.values
    rows = _turning_up(values) if reward is not None else []
    if reward is None or not len(rows):
        return None
    fall = jump(reward.values, -1, _SUDDEN)  # before a step at the new rate can tell: prompts or grading are others
    rows = [row for row in rows if fall is None or abs(reward.steps[fall] - rate.steps[row]) > _BESIDE]
    losses = [(row, *lost) for row in rows if (lost := _lost_behind(reward, float(rate.steps[row]))) is not None]
    if not losses:
        return None
    row, before, after = losses[0]
    step, top = int(rate.steps[row]), float(values[row : row + _WITHIN].max())
    again = f", and likewise at {len(losses) - 1} later step{'s' * (len(losses) > 2)}" if len(losses) > 1 else ""
    first, last = apart(before, after)
    because = (
        f"{quantities.key(rate.name)}, which had fallen, rises from {values[row]:.3g} to {top:.3g} within {_WITHIN} "
        f"rows of step {step:,}, and the mean reward of {_AROUND} rows goes from {first} before it to {last} behind it"
        + again
    )
    evidence = (
        Sign(f"{rate.name}, at step {step:,}", float(values[row]), column=rate.name),
        Sign(f"{rate.name}, largest of the rows behind", top, column=rate.name),
    )
    return fact(True, because, evidence, step, remedy=_OF_RESTARTS, grades=("note", "warning"),
                brief=f"the learning rate rises again at step {step:,}", explains=("reward decline",))  # fmt: skip


def _turning_up(values: Array) -> list[int]:
    """The rows to which the rates (n,) fell, to FELL of what was before or less, and behind which they rise _AGAIN
    times within _WITHIN rows."""
    rows = np.arange(SHORT, len(values) - _WITHIN)
    if not len(rows):
        return []
    here = values[rows]
    low = (here > 0) & (here < FELL * np.maximum.accumulate(values)[rows - 1])
    turns = (here <= values[rows - 1]) & (here < values[rows + 1])
    ahead = np.lib.stride_tricks.sliding_window_view(values, _WITHIN)[rows].max(axis=1)
    return [int(row) for row in rows[low & turns & (ahead >= _AGAIN * here)]]


def _lost_behind(reward: MetricSeries, step: float) -> tuple[float, float] | None:
    """The mean rewards of the _AROUND rows up to a step and of those behind it, where these are lower by _LOST standard
    errors; else None."""
    row = int(np.searchsorted(reward.steps, step, side="right"))
    before, after = reward.values[max(row - _AROUND, 0) : row], reward.values[row : row + _AROUND]
    if min(len(before), len(after)) < SHORT:
        return None
    error = float(np.hypot(before.std(ddof=1), after.std(ddof=1))) / len(after) ** 0.5
    fell = float(before.mean() - after.mean()) > _LOST * error > 0
    return (float(before.mean()), float(after.mean())) if fell else None


def _only_warms_up(quantities: Quantities, rate: MetricSeries) -> Finding | None:
    """That the rate rises from row to row over _RISING of a long log and is at its largest at the end; else None."""
    values, rises = rate.values, np.diff(rate.values) > 0
    if quantities.run.meta.status == "running":
        return None
    if len(values) < _MANY or rises.mean() < _RISING or values[-1] < values.max() or values[SHORT] > _FEW * values[-1]:
        return None
    because = (
        f"{quantities.key(rate.name)} rises from {values[0]:.3g} in the first row to {values[-1]:.3g} in the last of "
        f"{len(values):,} ({values[len(values) // 2]:.3g} in the middle): its warm-up covers the whole log"
    )
    evidence = (Sign(f"{rate.name}, last row", float(values[-1]), column=rate.name),)
    return fact(True, because, evidence, None, remedy=_OF_A_LONG_WARM_UP, grades=("note", "note"),
                brief="the learning rate rises to the last row", explains=("no learning",),
                effect="most steps are shorter than they could be")  # fmt: skip


def _again(values: Array, row: int, warm: int) -> bool:
    """Whether the rates (n,) from a row on are those of the first rows, as many as the warm-up has or are left."""
    count = min(warm, len(values) - row)
    same = np.abs(values[row : row + count] - values[:count]) <= ALIKE * np.abs(values[:count]).max()
    return bool(count >= WARM and values[row] <= FELL * values[row - 1] and same.all())


FAULT = Fault(
    name="learning rate off schedule",
    rank=8.4,
    remedy="step the scheduler once per optimiser step, and restore it with the checkpoint",
    beside="warning",
    instead="warning",
    log=LogTest(
        "learning rate off schedule",
        _check,
        needs=("lr",),
        statistic="learning rates from each row on beside those of the first rows",
        threshold=f"a warm-up of {WARM} rows or more that comes again from a row with {FELL:g} × the rate before or "
        "less",
        where_logged=True,
    ),
    rollouts=(first_update.PROOF, resume.PROOF),
)
