"""Corrections by name."""

from __future__ import annotations

import re

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.maths.corrections import named
from grposcope.maths.importance import Ratios


@pytest.mark.parametrize("name", ["sequence_cap:2", "icepop:0.5,5", "none", "full", "geometric_band:0.99,1.01"])
def test_a_correction_has_the_name_it_was_asked_for_by(name: str) -> None:
    assert named(name).name == name


def test_bounds_left_out_are_those_of_trainers() -> None:
    assert named("sequence_mask").name == "sequence_mask:3"
    ratios = Ratios.of([np.log([2.5, 1.0]), np.log([3.5, 1.0])])
    assert named("sequence_mask").coefficients(ratios).tolist() == pytest.approx([2.5, 2.5, 0, 0])
    assert named("sequence_mask:2").coefficients(ratios).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("truncate:2", "unknown correction 'truncate'; use one of none, "),
        ("sequence_cap:a", "write it like sequence_cap:2"),
        ("sequence_cap:2,3", "write it like sequence_cap:2"),
        ("sequence_cap:-1", "write it like sequence_cap:2"),
        ("sequence_cap:nan", "write it like sequence_cap:2"),
        ("icepop:5,0.5", "write it like icepop:0.5,5"),
        ("one_sided:1", "write it like one_sided:0.2"),
        ("none:1", "write it like none"),
    ],
)
def test_names_and_bounds_that_cannot_be(text: str, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        named(text)
