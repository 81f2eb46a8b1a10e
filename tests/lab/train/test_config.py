"""Settings: their checks, the objective they make, the learning-rate schedule."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from grposcope.core.errors import UserError
from grposcope.lab.objectives import divergences, recipes
from grposcope.lab.objectives.surrogates import Cispo, Clip
from grposcope.lab.train import optimizer
from grposcope.lab.train.config import TrainConfig, check


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"prompts": 10**8, "group": 10**8}, "more rollouts than the 100,000 that a batch may hold; lower one of them"),
        ({"eval_samples": 10**8}, "eval_samples is 100000000; it must be at most 100,000"),
        ({"threads": 10**8}, "threads is 100000000; it must be at most 4,096"),
        ({"max_tokens": 0}, "max_tokens is 0; it must be at least 1"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"momentum": 1.0}, "momentum"),
        ({"lr": -1e-3}, "lr is -0.001"),
        ({"recipe": "grop"}, "unknown recipe 'grop'"),
        ({"interval": 3, "minibatches": 2}, "not a multiple"),
        ({"prompts": 5, "interval": 2, "minibatches": 2}, "cannot be split"),
        ({"group": 1}, "use a group of 2 or more"),
        ({"group": 1, "recipe": "rloo"}, "use a group of 2 or more"),
        ({"group": 1, "credit": "steps", "recipe": "reinforce"}, "credit steps needs groups of 2 or more"),
        ({"credit": "tree", "group": 6}, "credit tree: the tree is wider than the group: .* has 8 leaves"),
        ({"credit": "tree:widths=2x2", "group": 6}, "4 leaves, and the group of 6 is not a multiple"),
        ({"credit": "tree", "probe_every": 5}, "leave out probe_every"),
        ({"correction": "half"}, "unknown correction 'half'; use one of none, token_ratio, token_cap"),
        ({"correction": "icepop:5,0.5"}, "bounds that cannot be; write it like icepop:0.5,5"),
        ({"correction": "one_sided", "credit": "steps"}, "correction one_sided:0.2 needs a credit that spreads"),
        ({"staleness": "8-2"}, "staleness is '8-2'; give a lag in optimiser steps"),
        ({"staleness": "0-2", "credit": "tree"}, "staleness 0-2 has rollouts of earlier weights.*use staleness 0"),
        ({"staleness": "2", "credit": "continuations"}, "staleness 2 has rollouts of earlier weights.*use staleness 0"),
        (
            {"advantage": "standardized", "credit": "steps"},
            "needs a credit that spreads .*; leave out advantage standardized",
        ),
    ],
)
def test_settings_that_cannot_work(change: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check(replace(TrainConfig(), **change))


@pytest.mark.parametrize("recipe", ["reinforce", "ppo"])
def test_recipes_without_a_group_baseline_take_single_rollouts(recipe: str) -> None:
    check(TrainConfig(recipe=recipe, group=1))


def test_recipe_as_published_by_default() -> None:
    for name, recipe in recipes.ALL.items():
        assert TrainConfig(recipe=name).objective(100).describe() == recipe.at_length(100).describe()


def test_overrides() -> None:
    made = TrainConfig(recipe="dapo", kl=0.1, entropy=0.02, clip_high=0.5, divergence="k2").objective(64)
    assert (made.kl, made.entropy, made.divergence) == (0.1, 0.02, divergences.k2)
    assert made.surrogate == Clip(low=0.2, high=0.5)
    assert TrainConfig(recipe="cispo", clip_low=0.5).objective(64).surrogate == Cispo(low=0.5)
    reduction = TrainConfig(recipe="dr_grpo").objective(64).reduction
    assert isinstance(reduction, partial)
    assert reduction.keywords == {"length": 64}
    with pytest.raises(UserError, match="does not clip"):
        TrainConfig(recipe="rloo", clip_low=0.1).objective(64)


def test_schedules() -> None:
    def rates(**change: object) -> list[float]:
        config = replace(TrainConfig(steps=10, warmup=0, schedule="constant"), **change)  # type: ignore[arg-type]
        return [optimizer.learning_rate(step, 2.0, config.schedule, config.warmup, config.steps) for step in range(10)]

    assert rates() == [2.0] * 10
    assert rates(warmup=3)[:4] == pytest.approx([0.5, 1.0, 1.5, 2.0])
    linear, cosine = rates(schedule="linear"), rates(schedule="cosine")
    assert linear == pytest.approx([2 * (1 - step / 10) for step in range(10)])
    assert cosine[0] == 2.0
    assert cosine[5] == pytest.approx(1.0)
    assert sorted(cosine, reverse=True) == cosine
    assert rates(schedule="cosine", warmup=2)[2] == 2.0


def test_sgd_is_heavy_ball() -> None:
    """x_{n+1} − x_n = β (x_n − x_{n−1}) − η κ x_n, the map of the dynamics."""
    x = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    sgd = optimizer.build([x], 0.1, TrainConfig(optimizer="sgd", momentum=0.7, beta2=0.0))
    path = [1.0, 1.0]
    for _ in range(5):
        sgd.zero_grad()
        (0.5 * 3.0 * x.square()).sum().backward()
        sgd.step()
        path.append(path[-1] + 0.7 * (path[-1] - path[-2]) - 0.1 * 3.0 * path[-1])
        assert x.item() == pytest.approx(path[-1], abs=1e-12)
