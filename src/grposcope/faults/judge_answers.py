"""One grade for one fact: what an instrument warns of is failing where the verdict calls the same thing failing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from grposcope.core.answer import Answer
from grposcope.core.finding import Finding
from grposcope.signs.texts import exploits

_SAME: Mapping[str, Sequence[str]] = {"rewards": ("reward hacking", "never paid"), "texts": exploits.FAULTS}
"""Instrument -> the faults that are the same fact as what it warns of."""


def graded(said: Answer, findings: Sequence[Finding]) -> Answer:
    """The answer of an instrument with the grade that the findings on its run give; as it is where it does not warn."""
    if said.word != "warning":
        return said
    same = _SAME.get(said.name, ())
    worse = any(finding.present and finding.grade == "failing" and finding.fault in same for finding in findings)
    return replace(said, word="failing") if worse else said
