"""The standard errors of a held-out evaluation are over problems."""

from __future__ import annotations

import pytest
import torch

from grposcope.lab.policies import Policy
from grposcope.lab.sampling.evaluate import evaluate
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks.arithmetic import Arithmetic


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
