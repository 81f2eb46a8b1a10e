"""What the table of rules that are not flagged says of a sign that points to a fault and is no more than chance."""

from __future__ import annotations

from dataclasses import replace

from grposcope.core.finding import fact, measured
from grposcope.instruments.diagnosis.answer import _by_chance


def test_a_sign_that_chance_explains_says_so() -> None:
    by_chance = replace(measured(0.2, "57% of groups have equal rewards"), adjusted=1.0)
    assert _by_chance(by_chance) == "; no more than chance explains (p = 0.2)"
    assert _by_chance(replace(by_chance, p=1e-9, adjusted=1e-8)) == ""  # what leaves it out is no chance
    assert _by_chance(measured(0.9, "the reward rose from 0.4 to 0.5")) == ""
    assert _by_chance(fact(False, "the learning rate is not 0")) == ""
