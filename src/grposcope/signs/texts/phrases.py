"""Habits in words: features are verb phrases of a text, such as “ends in “0””, or measures, such as “length”."""

from __future__ import annotations

import math

from grposcope.core.text import apart_shares, brief, percent
from grposcope.maths.passage import Passage
from grposcope.signs.texts.features import LOGARITHMS
from grposcope.signs.texts.habits import PaidHabit

_VERBS = ("begins", "ends", "writes", "gives", "marks", "returns", "goes", "calls", "repeats")
_PLURAL = {"is": "are", "has": "have", "goes": "go", "copies": "copy"}


def having(habit: PaidHabit) -> str:
    """What texts with the habit do, after “texts that”: “end in “0””; of a measure its name."""
    if not habit.binary:
        return _measure(habit.feature, habit.slope > 0)
    verb, _, rest = habit.feature.partition(" ")
    rest = rest.replace("itself", "themselves", 1) if verb == "repeats" else rest
    rest = rest.replace("its", "their", 1) if verb == "copies" else rest
    if habit.more:
        return f"{plural(verb)} {rest}"
    if habit.feature.startswith("has at most "):
        return f"have more than {habit.feature.removeprefix('has at most ')}"
    if habit.feature.startswith("has no "):
        return f"have {habit.feature.removeprefix('has no ')}"
    return f"are not {rest}" if verb == "is" else f"do not {'have' if verb == 'has' else plural(verb)} {rest}"


def plural(verb: str) -> str:
    """The verb of many texts."""
    return _PLURAL.get(verb) or (verb.removesuffix("s") if verb in _VERBS else verb)


def _measure(feature: str, more: bool) -> str:
    """Texts with more or less of a measure: “a larger share of digits”."""
    return f"a {'larger' if more else 'smaller'} {feature}"


def since(passage: Passage | None) -> str:
    """“ since step 10 (9–16)”; empty where it is not known."""
    if passage is None:
        return ""
    interval = "" if passage.low == passage.high else f" ({passage.low:,}–{passage.high:,})"
    return f" since step {passage.step:,}{interval}"


def paid(habit: PaidHabit) -> str:
    """What is paid, a clause: “texts that end in “0” are paid 1.0, others in the same 81 groups 0.11”."""
    if habit.binary and math.isfinite(habit.paid):
        groups = f"{habit.groups:,} groups" if habit.groups != 1 else "group"
        of_those = " of those that were read" if habit.sampled else ""
        other = f"others in the same {groups}{of_those} {brief(habit.unpaid)}"
        return f"texts that {having(habit)} are paid {brief(habit.paid)}, {other}"
    deviation = float(habit.column.std())
    return f"{having(habit)} is paid {brief(abs(habit.slope) * deviation)} more per standard deviation"


def shares(habit: PaidHabit) -> str:
    """The share of texts with a habit in the first and last tenth of the steps, and between them in the highest one of
    a habit that went again: “10% → 94% → 20%”."""
    if math.isfinite(habit.peak):
        return " → ".join(f"{100 * share:.0f}%" for share in (habit.early, habit.peak, habit.late))
    return apart_shares(habit.early, habit.late)


def moved(habit: PaidHabit) -> str:
    """How the habit went over the run, with its onset: “19% → 100% since step 10 (9–16)”; empty without steps."""
    if habit.spread is None:
        return ""
    if habit.binary:
        return shares(habit) + since(habit.since)
    mean = " (geometric means)" if habit.feature in LOGARITHMS else ""
    return f"{brief(habit.counted(habit.early))} → {brief(habit.counted(habit.late))}{mean}{since(habit.since)}"


def clause(habit: PaidHabit) -> str:
    """All that is said of a habit, with the share of differences and what other scores do."""
    told = [paid(habit), f"{percent(habit.r2)} of the reward differences in groups where both vary go with it"]
    if gone := moved(habit):
        told.append(gone)
    if habit.part:
        told.append(f"{habit.part} is given for just that")
    if habit.blind is not None:
        told.append(truth(habit))
    return "; ".join(told)


def truth(habit: PaidHabit) -> str:
    """What the true score does with a habit, a clause."""
    if not habit.blind:
        return "the true score goes with it"
    return f"the true score gains {'less than half as much' if habit.gains else 'nothing'}"


def short(habit: PaidHabit) -> str:
    """A habit in a few words."""
    return f"texts that {having(habit)}" if habit.binary else having(habit)
