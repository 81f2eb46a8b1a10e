"""What the table of rules that are not flagged says of a sign that points to a fault and is no more than chance."""

from __future__ import annotations

from grposcope.core.finding import fact, measured
from grposcope.instruments.diagnosis.answer import _by_chance


def test_a_sign_that_chance_explains_says_so() -> None:
    assert _by_chance(measured(0.2, "57% of groups have equal rewards")) == "; no more than chance explains (p = 0.2)"
    assert _by_chance(measured(0.7, "held-out score fell from 23% to 9%")) == "; no more than chance explains"
    assert _by_chance(measured(0.9, "the reward rose from 0.4 to 0.5")) == ""
    assert _by_chance(fact(False, "the learning rate is not 0")) == ""
