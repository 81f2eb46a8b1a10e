"""The share of weights that a step changes: all in float32, few in bfloat16 at a small rate, none where it is lost."""

from __future__ import annotations

import math

import torch
from torch import nn

from grposcope.lab.train.moved_weights import EACH, PARAMETERS, MovedWeights


def network(kind: torch.dtype = torch.float32, layers: int = 3) -> nn.Sequential:
    """Linear layers with weights of about 0.02 and a gradient."""
    torch.manual_seed(0)
    made = nn.Sequential(*(nn.Linear(48, 48) for _ in range(layers)))
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.02)
    made.to(kind)
    made(torch.randn(64, 48, dtype=kind)).square().sum().backward()
    return made


def share(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """The share of weights that a step of the optimiser changes."""
    before = MovedWeights(model.parameters())
    optimizer.step()
    return before.share()


def test_a_step_changes_all_weights_of_float32() -> None:
    model = network()
    assert share(model, torch.optim.AdamW(model.parameters(), 1e-6)) == 1


def test_few_of_bfloat16_move_at_the_rates_of_language_models() -> None:
    """A step of Adam is about the rate; it moves weights below some 2⁸ times it, of those that are normal with 0.02."""
    for rate, low, high in ((1e-6, 0.0, 0.03), (1e-5, 0.05, 0.25), (1e-2, 0.98, 1.0)):
        model = network(torch.bfloat16)
        assert low < share(model, torch.optim.AdamW(model.parameters(), rate, weight_decay=0)) <= high, rate


def test_an_optimiser_of_other_weights_changes_none() -> None:
    model, other = network(), network()
    assert share(model, torch.optim.AdamW(other.parameters(), 1e-3)) == 0


def test_weights_without_a_gradient_do_not_count() -> None:
    model = network(layers=2)
    model[0].weight.grad = None
    model[1].weight.grad[:24] = 0
    model[1].weight.data[40] = math.nan
    assert share(model, torch.optim.SGD(model.parameters(), 0.1)) == 1
    model.zero_grad()
    assert math.isnan(MovedWeights(model.parameters()).share())


def test_large_models_are_sampled() -> None:
    model = nn.Sequential(*(nn.Linear(200, 200, bias=False) for _ in range(20)))
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    taken = MovedWeights(model.parameters())._before
    assert len(taken) <= PARAMETERS
    assert all(len(values) <= EACH for _, values, _ in taken)
