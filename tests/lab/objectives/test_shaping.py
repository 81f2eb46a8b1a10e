"""The overlong punishment of DAPO at its corners."""

from __future__ import annotations

import pytest
import torch

from grposcope.lab.objectives import shaping


@pytest.mark.parametrize(
    ("length", "penalty"),
    [(0, 0.0), (79, 0.0), (80, 0.0), (81, -1 / 20), (90, -0.5), (99, -19 / 20), (100, -1.0), (150, -1.0)],
)
def test_corners(length: int, penalty: float) -> None:
    given = shaping.overlong(torch.tensor([length]), limit=100, buffer=20)
    assert given.tolist() == pytest.approx([penalty], rel=1e-14)


def test_it_never_rises_with_length() -> None:
    given = shaping.overlong(torch.arange(200), limit=100, buffer=33)
    assert not (given.diff() > 0).any()


def test_a_buffer_of_zero_punishes_nothing_within_the_limit() -> None:
    assert shaping.overlong(torch.tensor([1, 99, 100]), limit=100, buffer=0).tolist() == [0.0, 0.0, 0.0]
