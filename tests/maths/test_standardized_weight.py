"""The weight of a prompt under standardized advantages, against the 2^G outcomes of a group and its own integral."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad

from grposcope.core.errors import UserError
from grposcope.lab.objectives.advantages import standardized
from grposcope.maths import standardized_weight
from grposcope.signs import standardizing


def by_outcomes(p: float, group: int) -> float:
    """The factor on ∇p in E (1/G) Σ A_i s_i by all 2^G outcomes: ∇ log P(outcome) is (r − p)/(p(1−p)) ∇p a rollout."""
    total = 0.0
    for outcome in product((0.0, 1.0), repeat=group):
        r = np.array(outcome)
        if r.std() > 0:
            chance = math.prod(p if one else 1 - p for one in outcome)
            total += chance * float(((r - r.mean()) / r.std() * (r - p)).mean()) / (p * (1 - p))
    return total


@pytest.mark.parametrize("group", [2, 3, 4, 5, 8, 11])
def test_the_weight_is_that_of_all_outcomes(group: int) -> None:
    for p in (0.03, 0.1, 0.5, 0.72, 0.99):
        assert float(standardized_weight.weight(p, group)) == pytest.approx(by_outcomes(p, group), abs=1e-9)


def test_the_library_of_advantages_has_this_weight_with_its_deviation() -> None:
    """ddof 1 multiplies by √((G−1)/G), and no ε is far from 1e-4."""
    import torch

    p, group, total = 0.2, 6, 0.0
    for outcome in product((0.0, 1.0), repeat=group):
        a = standardized(torch.tensor([outcome], dtype=torch.float64))[0].numpy()
        chance = math.prod(p if one else 1 - p for one in outcome)
        total += chance * float((a * (np.array(outcome) - p)).mean()) / (p * (1 - p))
    scaled = float(standardized_weight.weight(p, group)) * math.sqrt((group - 1) / group)
    assert total == pytest.approx(scaled, rel=1e-3)


@pytest.mark.parametrize("group", [2, 3, 4, 8, 32, 64])
def test_the_objective_is_its_integral(group: int) -> None:
    for p in (0.0, 0.05, 0.4, 1.0):
        area = quad(lambda x: float(standardized_weight.weight(x, group)), 0, p, epsabs=1e-12)[0]
        assert float(standardized_weight._objective(p, group)) == pytest.approx(area, abs=1e-9)


def test_at_two_and_three_rollouts_it_is_a_scale_and_later_it_is_not() -> None:
    p = np.linspace(0, 1, 21)
    for group, constant in ((2, 1.0), (3, math.sqrt(2))):
        np.testing.assert_allclose(standardized_weight.weight(p, group), constant, atol=1e-12)
    assert np.ptp(standardized_weight.weight(p, 4)) > 0.05


def test_it_grows_towards_arcsin_and_no_further() -> None:
    at = [float(standardized_weight.relative(0.1, group)) for group in (3, 4, 8, 16, 32, 64, 4096)]
    assert at == sorted(at)
    assert at[2] == pytest.approx(1.25, abs=0.005)
    assert at[-1] == pytest.approx(standardized_weight.limit(0.1), rel=1e-3)
    assert float(standardized_weight.weight(0.0, 9)) == pytest.approx(math.sqrt(8))
    scale = float(standardized_weight._objective(1.0, 4096))
    assert float(standardized_weight._objective(0.3, 4096)) / scale == pytest.approx(
        2 * math.asin(math.sqrt(0.3)) / math.pi, abs=2e-3
    )


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(UserError, match="group of 1"):
        standardized_weight.weight(0.5, 1)
    with pytest.raises(UserError, match="between 0 and 1"):
        standardized_weight.weight(1.2, 4)


def test_what_is_said() -> None:
    assert "nothing else" in standardizing.effect(3)
    assert "1.25 × at a success rate of 10%" in standardizing.effect(8)
    assert standardizing.effect(8, 0.3).count("×") == 2
    assert standardizing.rows((3, 8), (0.1,)) == [("3", "1.00"), ("8", "1.25"), ("limit (arcsin)", "1.67")]
