"""pass@k against enumeration, and the standard error over problems."""

from __future__ import annotations

from itertools import combinations, product
from math import comb

import pytest
import torch

from grposcope.policies import Policy
from grposcope.tasks.arithmetic import Arithmetic
from grposcope.training.evaluate import evaluate, pass_at_k
from grposcope.training.sampler import Sampling


@pytest.mark.parametrize(("n", "k"), [(n, k) for n in range(1, 7) for k in range(1, n + 1)])
def test_pass_at_k_is_the_share_of_subsets_with_a_success(n: int, k: int) -> None:
    for correct in range(n + 1):
        outcomes = [1] * correct + [0] * (n - correct)
        share = sum(any(subset) for subset in combinations(outcomes, k)) / comb(n, k)
        assert pass_at_k(n, correct, k) == pytest.approx(share, abs=1e-15)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.7, 1.0])
def test_pass_at_k_is_unbiased(p: float) -> None:
    n, k = 6, 3
    mean = 0.0
    for outcomes in product((0, 1), repeat=n):
        c = sum(outcomes)
        mean += p**c * (1 - p) ** (n - c) * pass_at_k(n, c, k)
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


class Lucky(Arithmetic):
    """Rewards by the index of the completion alone: problem i passes i times out of four."""

    def rewards(self, problems, completions):
        seen: dict[str, int] = {}
        out = []
        for problem in problems:
            seen[problem.id] = seen.get(problem.id, 0) + 1
            index = [p.id for p in self.problems("heldout")[:4]].index(problem.id)
            out.append(float(seen[problem.id] <= index))
        return out


def test_evaluate_counts_problems_as_the_units(policy: Policy) -> None:
    task = Lucky(size=50)
    accuracy = evaluate(policy, task, task.problems("heldout")[:4], 4, Sampling(3), torch.Generator().manual_seed(0))
    one, two, four = accuracy["pass@1"], accuracy["pass@2"], accuracy["pass@4"]
    assert one.n == 4
    assert one.value == pytest.approx((0 + 0.25 + 0.5 + 0.75) / 4)
    assert one.se == pytest.approx(torch.tensor([0, 0.25, 0.5, 0.75]).std().item() / 2)
    assert two.value == pytest.approx((0 + 0.5 + 5 / 6 + 1) / 4)
    assert four.value == pytest.approx(0.75)
    assert set(accuracy) == {"pass@1", "pass@2", "pass@4", "reward", "length"}
