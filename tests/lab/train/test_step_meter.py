"""The rate and the decay that a step of Adam took, by the weights alone, against what the optimiser was given."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from grposcope.instruments.verify.own_loop import verify_batch  # noqa: E402
from grposcope.lab.train.step_meter import StepMeter, _fitted  # noqa: E402
from grposcope.signs.rollouts.evidence import OptimizerEvidence, Stated  # noqa: E402


def steps(kind: type, rate: float, decay: float, due: float, count: int = 5, dtype: object = None) -> StepMeter:
    """The meter after some steps on a random quadratic."""
    stream = torch.Generator().manual_seed(0)
    weights = [torch.nn.Parameter(0.1 * torch.randn(40, 30, generator=stream).to(dtype or torch.float32))]
    optimizer = kind(weights, lr=rate, weight_decay=decay)
    meter = StepMeter(optimizer, lambda: due)
    for _ in range(count):
        weights[0].grad = torch.randn(40, 30, generator=stream).to(weights[0].dtype)
        optimizer.step()
    return meter


@pytest.mark.parametrize(("rate", "decay"), [(1e-3, 0.0), (1e-3, 0.5), (2e-5, 0.0), (1e-2, 3.0)])
def test_it_reads_off_what_adamw_was_given(rate: float, decay: float) -> None:
    meter = steps(torch.optim.AdamW, rate, decay, 7.0)
    assert meter.rate == pytest.approx(rate, rel=2e-3)
    assert meter.decay == pytest.approx(decay, abs=0.01) or (rate < 1e-4 and math.isnan(meter.decay))
    assert meter.scheduled == 7.0


def test_a_step_that_changes_nothing_has_a_rate_of_zero() -> None:
    assert steps(torch.optim.AdamW, 0.0, 0.0, 1e-3).rate == 0


def test_what_cannot_show_it_tells_nothing() -> None:
    assert math.isnan(steps(torch.optim.Adam, 1e-3, 0.5, 1.0).decay)  # its decay is in the gradient
    assert math.isnan(steps(torch.optim.AdamW, 1e-3, 0.0, 1.0, dtype=torch.bfloat16).rate)
    noise = np.random.default_rng(0)
    assert all(map(math.isnan, _fitted(noise.normal(size=500), noise.normal(size=500), noise.normal(size=500))))


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        (OptimizerEvidence(2, 2.0, 1.0, 1e-3, "", 5e-3, 0.0, 1e-3), "learning rate off schedule"),
        (OptimizerEvidence(2, 2.0, 1.0, 1e-3, "", 0.0, math.nan, 1e-3), "learning rate off schedule"),
        (OptimizerEvidence(2, 2.0, 1.0, 1e-3, "", 1e-3, 0.5, 1e-3), "weight decay not in force"),
        (OptimizerEvidence(2, 2.0, 1.0, 1e-3, "", 1.001e-3, 0.001, 1e-3), ""),
        (OptimizerEvidence(2, 2.0, 1.0, 1e-3), ""),
    ],
)
def test_what_is_in_force_is_held_to_what_is_stated(seen: OptimizerEvidence, fault: str) -> None:
    said = verify_batch([], Stated(decay=0.0), optimizer=[seen])
    broken = [claim["findings"][0]["fault"] for claim in said.document["claims"] if claim["status"] == "broken"]
    assert broken == ([fault] if fault else [])


def test_adapters_that_are_zero_before_their_first_step_tell_the_rate_alone() -> None:
    """The second matrix of LoRA begins at 0, and the first has no gradient then."""
    first, second = torch.nn.Parameter(torch.randn(64, 4)), torch.nn.Parameter(torch.zeros(4, 64))
    optimizer = torch.optim.AdamW([first, second], lr=3e-3, weight_decay=0.1)
    meter = StepMeter(optimizer, lambda: 3e-3)
    (torch.randn(8, 64) @ first @ second).sum().backward()
    optimizer.step()
    assert meter.rate == pytest.approx(3e-3, rel=1e-3)
    assert math.isnan(meter.decay)


def test_weights_along_the_step_tell_nothing() -> None:
    push = np.linspace(1.0, 2.0, 100)
    assert all(map(math.isnan, _fitted(-0.01 * push, push, 3 * push)))
