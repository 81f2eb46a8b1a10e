"""What a monitor has enough evidence of, as a finding of the fault that it watches for.

The p-value is the inverse of the e-value, which holds at any time; adjusted, it allows for the share of the chance of a
needless alarm that the monitor has at this alarm. What became of the run is not known yet, so the grade is a warning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from grposcope.core.finding import Finding, Sign, at, fact, measured
from grposcope.core.text import number, percent
from grposcope.faults import catalogue
from grposcope.faults.length.length import FEWER_CUT
from grposcope.instruments.autopilot import monitors
from grposcope.signs import checkpoints

FAULTS = {
    "reward": "reward decline",
    "heldout": "held-out decline",
    "cut": "length",
    "dead": "starved",
    "not_finite": "non-finite",
}
"""Monitor -> the fault of the catalogue that it watches for."""

SEEN = {"reward": "the mean reward", "heldout": "held-out accuracy"}
"""What the monitors of falls look at."""

SHARES = {
    "cut": (monitors.CUT, "of the completions are cut at the token limit"),
    "dead": (monitors.DEAD, "of the groups have equal rewards below the highest"),
}
"""Monitor -> the share that is not yet too much, and of what."""

BEST, LIMIT, NOW = "best level", "lower limit", "mean since the onset"
"""What the signs of a fall are called."""

SOURCE = "bets valid at any time (Waudby-Smith & Ramdas 2024), grposcope.maths.betting"

LARGEST = 700.0
"""Logarithm of the largest e-value."""


def fall(
    monitor: str, step: int, log_e: float, onset: int | None, best: float, limit: float, now: float, share: float = 1.0
) -> Finding:
    """That the mean reward or held-out accuracy fell below `limit`, seen at `step`.

    best: the best level; now: the mean since the onset. share: of the chance of a needless alarm, for this alarm.
    """
    since = "" if onset is None else f" since step {onset:,}"
    because = (
        f"{SEEN[monitor]} was at least {number(best)} and has been {number(now)}{since}, below the limit of "
        f"{number(limit)} ({_by_chance(log_e)})"
    )
    signs = [Sign(BEST, best), Sign(LIMIT, limit), Sign(NOW, now)]
    return _of_bets(monitor, step, log_e, share, because, signs, onset)


def too_many(monitor: str, step: int, log_e: float, share: float = 1.0) -> Finding:
    """That too many completions are cut or too many groups are dead, seen at `step`; share: as in `fall`."""
    most, what = SHARES[monitor]
    because = f"more than {percent(most)} {what} ({_by_chance(log_e)})"
    return _of_bets(monitor, step, log_e, share, because, [], None)


def not_finite(step: int, onset: int) -> Finding:
    """That the gradient has not been finite from `onset` to `step`."""
    because = f"the gradient has not been finite since step {onset:,}"
    return _told(fact(True, because, onset=onset, fault=FAULTS["not_finite"]), step)


def explained(alarm: Finding, cause: str, remedy: str = "") -> Finding:
    """The finding with its cause in few words, and what a person does about that cause where it is special."""
    return replace(alarm, brief=cause, remedy=remedy or alarm.remedy)


def sign(alarm: Finding, what: str) -> float:
    """The value of a sign of a fall: BEST, LIMIT or NOW; NaN where it has none."""
    return next((each.value for each in alarm.evidence if each.what == what), math.nan)


def monitor_of(fault: str) -> str:
    """The monitor that watches for a fault; empty where none does."""
    return next((monitor for monitor, name in FAULTS.items() if name == fault), "")


def of_earlier_version(content: Mapping[str, Any]) -> Finding:
    """The finding of a decision that an earlier version recorded: monitor, e, since, level, limit, value and cause."""
    numbers = {name: float(content[name]) for name in ("e", "level", "limit", "value")}
    monitor, step, since = str(content["monitor"]), int(content["step"]), int(content["since"])
    log_e, onset = math.log(max(numbers["e"], 1.0)), None if since < 0 else since
    if monitor == "not_finite":
        alarm = not_finite(step, step if onset is None else onset)
    elif monitor in SHARES:
        alarm = too_many(monitor, step, log_e)
    else:
        alarm = fall(monitor, step, log_e, onset, numbers["level"], numbers["limit"], numbers["value"])
    return explained(alarm, str(content["cause"]))


def _of_bets(
    monitor: str, step: int, log_e: float, share: float, because: str, signs: list[Sign], onset: int | None
) -> Finding:
    p = math.exp(-min(max(log_e, 0.0), LARGEST))
    seen = measured(p, because, signs, FAULTS[monitor], status="present", adjusted=min(1.0, p / share))
    remedy = FEWER_CUT if monitor == "cut" else ""
    return _told(replace(seen, since=at(onset), remedy=remedy), step)


def _told(alarm: Finding, step: int) -> Finding:
    remedy = alarm.remedy or catalogue.faults()[alarm.fault].remedy
    told = checkpoints.advised(remedy, checkpoints.before(alarm.since), alarm.since)
    return replace(alarm, seen=step, grade="warning", remedy=told, source=SOURCE)


def _by_chance(log_e: float) -> str:
    """In how many sound runs chance makes as much evidence, a clause: an e-value of e comes in at most one of e."""
    e = math.exp(min(log_e, LARGEST))
    return f"chance shows as much in at most 1 of {'a billion' if e > 1e9 else f'{max(e, 1.0):,.0f}'} sound runs"
