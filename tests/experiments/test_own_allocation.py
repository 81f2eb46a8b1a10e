"""A run whose batches an experiment's own allocation draws: ragged groups, their weights, the record, resuming."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from closeness import within_ulps
from places import ROOT
from small_runs import config, rows, timeless, weights

from grposcope.core.errors import UserError
from grposcope.lab.objectives import advantages, recipes
from grposcope.lab.objectives.objective import row_weights
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling import rollouts
from grposcope.lab.train.allocate import RolloutAllocation
from grposcope.lab.train.loop import resume, train
from grposcope.lab.train.setup import prepare
from grposcope.logs import read


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`experiments/allocators/drawing.py`."""
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    return importlib.import_module("allocators.drawing")


WAYS: dict[str, Callable[[ModuleType], Any]] = {
    "uniform": lambda drawing: drawing.Forecasting,
    "filter": lambda drawing: drawing.Filtering,
    "two stages": lambda drawing: drawing.two_stages(),
    "pooled": lambda drawing: drawing.two_stages(pooled=True),
    "optimal": lambda drawing: drawing.optimal(),
    "unweighted": lambda drawing: drawing.optimal(weighted=False, sizes="one"),
    "given": lambda drawing: drawing.optimal(sizes="given", pool=7),
}


def made(drawing: ModuleType, sizes: list[int], width: int = 3, seed: int = 0) -> tuple[RolloutBatch, torch.Tensor]:
    """Ragged rollouts with random scores (rows, 2) behind them, padded rows included."""
    rng = torch.Generator().manual_seed(seed)
    n = sum(sizes)
    lengths = torch.randint(1, width + 1, (n,), generator=rng)
    mask = torch.arange(width) < lengths[:, None]
    single = RolloutBatch(
        prompt_ids=torch.zeros(n, 2, dtype=torch.long),
        prompt_mask=torch.ones(n, 2, dtype=torch.bool),
        tokens=torch.arange(n)[:, None] * mask,
        mask=mask,
        logp=-torch.rand(n, width, generator=rng) * mask,
        entropy=torch.zeros(n, width),
        truncated=torch.zeros(n, dtype=torch.bool),
        rewards=torch.randint(0, 2, (n, 1), generator=rng).double(),
    )
    owners = torch.cat([torch.full((size,), p) for p, size in enumerate(sizes)])
    shuffled = torch.randperm(n, generator=rng)
    return drawing.arranged(single.rows(shuffled), owners[shuffled], -1), single.rewards


def test_groups_of_different_sizes_are_padded_and_keep_their_rollouts(drawing: ModuleType) -> None:
    sizes = [2, 5, 3]
    batch, rewards = made(drawing, sizes)
    assert batch.groups == (3, 5)
    assert (~batch.rewards.isnan()).sum(-1).tolist() == sizes
    assert not batch.mask[batch.rewards.isnan().reshape(-1)].any()
    start = 0
    for p, size in enumerate(sizes):
        own = batch.tokens.reshape(3, 5, -1)[p, :size, 0].tolist()
        assert sorted(own) == list(range(start, start + size))
        assert batch.rewards[p, :size].tolist() == [float(rewards[i]) for i in own]
        start += size


@pytest.mark.parametrize("name", [name for name, known in advantages.ALL.items() if known.needs_group])
def test_advantages_of_a_padded_group_are_those_of_the_group_alone(drawing: ModuleType, name: str) -> None:
    batch, _ = made(drawing, [2, 5, 3, 4])
    found = advantages.ALL[name].function(batch.rewards)
    for p, size in enumerate([2, 5, 3, 4]):
        alone = batch.rewards[p : p + 1, :size]
        if name not in ("batch_standardized", "shrunk"):  # whose scale, or baseline, is the batch's
            exact = name != "exponential"  # vectorized exponentials differ with the place in the array
            assert within_ulps(found[p, :size], advantages.ALL[name].function(alone)[0], ulps=0 if exact else 4)
        assert (found[p, size:] == 0).all()


@pytest.mark.parametrize("recipe", ["rloo", "dr_grpo", "grpo"])
def test_the_loss_is_the_mean_over_groups_of_weight_times_own_loss(drawing: ModuleType, recipe: str) -> None:
    """Weights 1/q and 1/G_x: group x alone, as a batch of its own, has the loss L_x, and the batch Σ w_x L_x / P."""
    sizes, given = [2, 5, 3, 4], torch.tensor([0.5, 2.0, 1.0, 0.1]).double()
    batch, _ = made(drawing, sizes)
    batch = replace(batch, weights=given)
    objective = recipes.ALL[recipe].at_length(3)
    total = objective.loss(batch.logp, batch.logp, batch)
    alone = []
    for p in range(len(sizes)):
        one = replace(batch.take(torch.tensor([p])), weights=None)
        alone.append(float(objective.loss(one.logp, one.logp, one)))
    assert float(total) == pytest.approx(float((given * torch.tensor(alone)).mean()), abs=1e-7)
    assert row_weights(batch).sum() == pytest.approx(float(given.mean()) * sum(sizes))


def test_weights_of_1_and_equal_groups_change_nothing(drawing: ModuleType) -> None:
    batch, _ = made(drawing, [4, 4, 4])
    for recipe in recipes.ALL.values():
        plain = replace(batch, weights=None)
        objective = recipe.at_length(3)
        assert torch.equal(objective.coefficients(batch), objective.coefficients(plain))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_run_of_each_way_is_recorded_and_extended_bit_for_bit(
    drawing: ModuleType, policy: Policy, tmp_path: Path, way: str
) -> None:
    draws = WAYS[way](drawing)
    settings = {"recipe": "rloo", "schedule": "constant", "checkpoint_every": 2, "eval_problems": 0,
                "rollouts_every": 1, "prompts": 4, "group": 4}  # fmt: skip
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = config(policy, tmp_path / "a", steps=4, **settings)
    train(whole, draws)
    cut = config(policy, tmp_path / "b", steps=2, **settings)
    train(cut, draws)
    resume(tmp_path / "b" / "run", {"steps": 4}, draws)
    for name in ("steps", "groups"):
        assert timeless(rows(cut.out, name)) == timeless(rows(whole.out, name))
    assert weights(cut.out) == weights(whole.out)
    run = read(str(whole.out))
    assert run.rollouts[1]
    assert np.isfinite(run.table["allocation/effective_prompts"]).all()
    if way in ("two stages", "pooled"):
        return
    assert ((run.table["allocation/live_promised"] >= 0) & (run.table["allocation/live_promised"] <= 1)).all()
    assert all({"forecast", "base", "difficulty", "weight"} <= set(row) for row in rows(whole.out, "groups"))


@pytest.mark.parametrize("way", ["optimal", "pooled"])
def test_it_is_not_resumed_without_the_allocation_it_was_given(
    drawing: ModuleType, policy: Policy, tmp_path: Path, way: str
) -> None:
    asked = config(policy, tmp_path, steps=1, schedule="constant", checkpoint_every=1, eval_problems=0, recipe="rloo")
    train(asked, WAYS[way](drawing))
    with pytest.raises(UserError, match="given from Python; resume the run from Python"):
        resume(tmp_path / "run", {"steps": 2})


@pytest.mark.parametrize("way", WAYS)
def test_every_token_that_was_drawn_is_charged(
    drawing: ModuleType, policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Those of screenings that are thrown away, too."""
    tokens, counted = [], rollouts.draw

    def counting(*given: Any, **more: Any) -> rollouts._Drawn:
        drawn = counted(*given, **more)
        tokens.append(int(drawn.rollouts.mask.sum()))
        return drawn

    for module in (rollouts, drawing):
        monkeypatch.setattr(module, "draw", counting)
    asked = config(policy, tmp_path, steps=3, eval_problems=0, prompts=4, group=4, recipe="rloo")
    train(asked, WAYS[way](drawing))
    recorded = rows(asked.out)
    assert sum(row["tokens_generated"] for row in recorded) == sum(tokens)
    assert all(row["allocation/tokens"] == row["tokens_generated"] for row in recorded)


def test_forecasting_leaves_a_uniform_run_as_it_was(drawing: ModuleType, policy: Policy, tmp_path: Path) -> None:
    outs = []
    for name, draws in (("a", RolloutAllocation), ("b", drawing.Forecasting)):
        (tmp_path / name).mkdir()
        asked = config(policy, tmp_path / name, steps=3, eval_problems=0)
        train(asked, draws)
        outs.append(asked.out)
    assert weights(outs[0]) == weights(outs[1])


@pytest.mark.parametrize("way", ["uniform", "filter", "optimal"])
def test_what_the_record_says_was_forecast_knows_nothing_of_the_batch(
    drawing: ModuleType, policy: Policy, tmp_path: Path, way: str
) -> None:
    ready, draws = prepare(config(policy, tmp_path, eval_problems=0)), WAYS[way](drawing)
    under_way = draws(ready, None)
    position = 0
    for _ in range(3):
        before = draws(ready, under_way.state()).forecaster
        made = under_way.draw(position)
        which = np.array([under_way.places[problem.id] for problem in made.batch.problems])
        for kind, means in before.means(which).items():
            assert [note[kind] for note in made.notes] == means.tolist()
        assert under_way.state() != before.state()
        position = made.batch.position
