"""The tests' own measure of how far floats are apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from closeness import within_ulps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [1.0, -0.3, 1e-30, 5e20])
def test_neighbouring_floats_are_one_unit_apart(dtype: type, value: float) -> None:
    near = x = np.array([value], dtype=dtype)
    for apart in range(1, 4):
        near = np.nextafter(near, dtype(np.copysign(np.inf, value)))
        assert within_ulps(x, near, apart)
        assert within_ulps(near, x, apart)
        assert not within_ulps(x, near, apart - 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_units_are_those_of_16_bit_floats_too(dtype: torch.dtype) -> None:
    x = torch.tensor([-0.7, 3.0], dtype=dtype)
    near = x * (1 + torch.finfo(dtype).eps)
    assert not within_ulps(x, near, 0)
    assert within_ulps(x, near, 2)


def test_tensors_and_lists_are_arrays_too() -> None:
    assert within_ulps(torch.tensor([0.1 + 0.2], dtype=torch.float64, requires_grad=True), [0.3], 1)
    assert not within_ulps([0.1 + 0.2], [0.3], 0)


@pytest.mark.parametrize("other", [0.0, 1e-300, math.inf, -math.inf, math.nan])
def test_what_is_not_a_number_equals_itself_alone(other: float) -> None:
    for value in (math.nan, math.inf, -math.inf):
        same = value == other or (math.isnan(value) and math.isnan(other))
        assert within_ulps([1.0, value], [1.0, other], 10**6) == same


def test_zeros_are_equal_and_nothing_is_near_zero() -> None:
    assert within_ulps([0.0], [-0.0], 0)
    assert not within_ulps([0.0], [1e-300], 10**6)


def test_other_shapes_and_other_types_are_apart() -> None:
    assert not within_ulps(np.zeros(2), np.zeros((2, 1)), 10**6)
    assert not within_ulps(np.zeros(2), np.zeros(2, np.float32), 10**6)


def test_one_number_that_is_apart_parts_the_arrays() -> None:
    assert not within_ulps(np.ones((3, 3)), np.where(np.eye(3) > 0, [1, 1, 1.1], 1.0), 1000)
