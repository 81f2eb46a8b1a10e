"""What the texts of a run do and those of the first run do not, on the same prompts: sentences, table, document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from grposcope.core.answer import Table
from grposcope.core.run import Run
from grposcope.core.text import brief, number, percent
from grposcope.signs.texts import phrases, sample
from grposcope.signs.texts.features import LOGARITHMS
from grposcope.signs.texts.habits import LEVEL
from grposcope.signs.texts.text_differences import FEW, TextDifference, TextsBetween, between


def of_runs(
    runs: Sequence[Run], names: Sequence[str], sources: Sequence[str]
) -> tuple[tuple[str, ...], tuple[Table, ...], tuple[dict[str, Any], ...]]:
    """The texts of each run against those of the first. names, sources: of the runs.

    A line for each run after the first that has texts as the first has, the table of what differs, and the document.
    """
    first = sample.recorded(runs[0])
    apart = [between(first, sample.recorded(run)) if first else None for run in runs[1:]]
    compared = [(name, source, own) for name, source, own in zip(names[1:], sources[1:], apart, strict=True) if own]
    rows = [_row(name, difference) for name, _, own in compared for difference in own.differences]
    caption = (
        "Means over prompts that both runs have, of counts geometric ones, of the latest group of each. Prompts are "
        "the units; all features are "
        f"tested together at {percent(LEVEL)}. One name for what goes together."
    )
    header = ("run", "feature of its texts", names[0], "this run", "z", "p")
    return (
        tuple(_line(name, names[0], own) for name, _, own in compared),
        (Table("What its texts do otherwise", header, rows, caption),) if rows else (),
        tuple({"run": source, **asdict(own)} for _, source, own in compared),
    )


def _row(name: str, own: TextDifference) -> tuple[str, ...]:
    return name, own.feature, *_levels(own), number(own.z), f"{own.p:.2g}"


def _levels(own: TextDifference) -> tuple[str, str]:
    return (percent(own.first), percent(own.second)) if own.binary else (brief(own.first), brief(own.second))


def _line(name: str, other: str, own: TextsBetween) -> str:
    if own.prompts < FEW:
        return (
            f"{name} against {other}: their texts have {own.prompts:,} prompts in common; {FEW} are needed to compare "
            "what is written."
        )
    where = f"on {own.prompts:,} prompts that both have"
    if not own.differences:
        return f"{name} against {other}: their texts differ in no feature beyond noise, {where}."
    told = own.differences[0]
    first, second = _levels(told)
    if told.binary:
        return f"{name} against {other}: {second} of the texts {_plural(told.feature)}, against {first}, {where}."
    mean = ", geometric means" if told.feature in LOGARITHMS else ""
    return f"{name} against {other}: {told.feature} of the texts is {second}, against {first}{mean}, {where}."


def _plural(feature: str) -> str:
    verb, _, rest = feature.partition(" ")
    return f"{phrases.plural(verb)} {rest}"
