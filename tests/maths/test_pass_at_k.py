"""pass@k and its variance over completions against enumeration and published implementations."""

from __future__ import annotations

import math
from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.instruments.evaluation.scores import _pass_at_k_variance
from grposcope.maths.pass_at_k import pass_at_k


@pytest.mark.parametrize(("n", "k"), [(n, k) for n in range(1, 7) for k in range(1, n + 1)])
def test_pass_at_k_is_the_share_of_subsets_with_a_success(n: int, k: int) -> None:
    for correct in range(n + 1):
        outcomes = [1] * correct + [0] * (n - correct)
        share = sum(any(subset) for subset in combinations(outcomes, k)) / comb(n, k)
        assert pass_at_k(n, correct, k) == pytest.approx(share, abs=1e-15)


@pytest.mark.parametrize(("n", "correct", "k"), [(4, 2, 5), (0, 0, 1), (4, 2, 0), (4, 5, 1), (4, -1, 1)])
def test_what_cannot_be_drawn_is_refused(n: int, correct: int, k: int) -> None:
    with pytest.raises(UserError, match="completions"):
        pass_at_k(n, correct, k)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.7, 1.0])
def test_pass_at_k_is_unbiased(p: float) -> None:
    n, k = 6, 3
    mean = 0.0
    for outcomes in product((0, 1), repeat=n):
        c = sum(outcomes)
        mean += p**c * (1 - p) ** (n - c) * pass_at_k(n, c, k)
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.7, 1.0])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 1), (6, 3), (7, 3)])
def test_the_variance_is_unbiased(n: int, k: int, p: float) -> None:
    """Its mean over all outcomes is the variance of the estimate over them."""
    chances = [comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    estimates = [pass_at_k(n, c, k) for c in range(n + 1)]
    mean = math.fsum(w * x for w, x in zip(chances, estimates, strict=True))
    true = math.fsum(w * (x - mean) ** 2 for w, x in zip(chances, estimates, strict=True))
    found = math.fsum(w * _pass_at_k_variance(n, c, k) for c, w in enumerate(chances))
    assert found == pytest.approx(true, abs=1e-12)


def test_the_variance_of_pass_at_1_is_that_of_a_share() -> None:
    assert _pass_at_k_variance(10, 3, 1) == pytest.approx(0.3 * 0.7 / 9)
    assert math.isnan(_pass_at_k_variance(7, 3, 4))


RIGHT = [4, 0, 0, 6, 6, 5, 7, 3, 7, 5, 0, 0]
"""Right completions of 8, problem by problem, for the reference values."""

PUBLISHED = {1: 0.4479166666666667, 2: 0.5952380952380952, 4: 0.6595238095238095, 8: 0.6666666666666666}
"""passk-inference 0.3.1 (`pass_at_k`) and scorio 0.2.3 (`eval.pass_at_k`) on RIGHT; both give these digits."""


@pytest.mark.parametrize("k", PUBLISHED)
def test_pass_at_k_is_that_of_two_published_implementations(k: int) -> None:
    assert np.mean([pass_at_k(8, c, k) for c in RIGHT]) == pytest.approx(PUBLISHED[k], abs=1e-15)


POSTERIOR = {1: 0.01094307423970144, 2: 0.008765730896501995, 4: 0.004936913252410921}
"""scorio 0.2.3, second value of `eval.pass_at_k_ci` on 25 times those of RIGHT that are not 0, of 200 completions."""


@pytest.mark.parametrize("k", POSTERIOR)
def test_the_noise_of_sampling_is_that_of_a_posterior_where_completions_are_many(k: int) -> None:
    """scorio's is for these problems alone, as ours, under a uniform prior, which many completions outweigh."""
    right = [25 * c for c in RIGHT if c]
    error = math.sqrt(math.fsum(_pass_at_k_variance(200, c, k) for c in right)) / len(right)
    assert error == pytest.approx(POSTERIOR[k], rel=0.05)
