"""Optimal draws in TRL: the sampler's order, its weights, what is learned, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("trl")
pytest.importorskip("datasets")

from engines import tiny_trl
from grposcope.allocation import ALLOCATORS, Allocator, picks
from grposcope.allocation.picks import Offer, Picks, Values
from grposcope.engines.trl import GRPOscopeTrainer
from grposcope.engines.trl import trainer as module
from grposcope.engines.trl.draws import PromptDraws, allocator
from grposcope.errors import UserError

ROWS = [{"prompt": "x" * (1 + i % 3), "difficulty": i % 4} for i in range(12)]


def drawn(text: str = "optimal:floor=0.5") -> PromptDraws:
    asked = allocator(text)
    assert asked is not None
    return PromptDraws(asked, ROWS, prompts=4, group=3, repeats=2, seed=0)


def test_a_batch_is_its_prompts_each_a_group_as_often_as_it_is_used() -> None:
    sampler = drawn()
    rows = list(sampler)
    assert len(rows) == len(sampler) == 12 * 3 * 2
    batch = np.array(rows[:24]).reshape(2, 4, 3)
    assert (batch[0] == batch[1]).all()
    assert (batch == batch[:, :, :1]).all()
    assert batch[0, :, 0].tolist() == sampler.drawn[0][0].tolist()


def test_weights_undo_the_draw_over_many_batches() -> None:
    """The weighted count of every prompt is that of a uniform draw, whatever was learned."""
    sampler = drawn()
    rng = np.random.default_rng(0)
    rates = np.array([0.02, 0.5, 0.9] * 4)
    total = np.zeros(12)
    for i in range(3000):
        which = sampler._draw()
        if i < 40:
            rewards = (rng.random((4, 3)) < rates[which][:, None]).astype(float)
            weights, metrics = sampler.learn(ROWS[which[0]]["prompt"], rewards)
            assert 0 <= metrics["allocation/live_promised"] <= 1
            continue
        which, weights, _ = sampler.drawn.popleft()
        np.add.at(total, which, weights)
    assert total / total.mean() == pytest.approx(np.ones(12), abs=0.08)
    chances = np.bincount(np.concatenate([sampler._draw() for _ in range(1000)]), minlength=12)
    assert chances[rates == 0.5].mean() > 1.1 * chances[rates == 0.02].mean()


def run(folder: Path, **given: Any) -> Any:
    made = tiny_trl.trainer(folder, [], kind=GRPOscopeTrainer, ours=given, per_device_train_batch_size=16,
                            num_generations=4, max_completion_length=6)  # fmt: skip
    made.train()
    return made


def test_a_run_learns_from_every_batch(tmp_path: Path) -> None:
    made = run(tmp_path, allocate="optimal")
    assert made._scope_draws.forecaster.batches == 4
    assert all(np.isfinite(row["grad_norm"]) for row in made.state.log_history if "grad_norm" in row)


def test_weights_reach_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_learned", lambda *_: torch.zeros(4))
    norms = [row["grad_norm"] for row in run(tmp_path, allocate="optimal").state.log_history if "grad_norm" in row]
    assert norms == [0] * 4


def test_the_filter_skips_prompts_that_are_never_solved() -> None:
    """Of four prompts in twelve none is ever solved: skipped, a third of the draws is left to the others."""
    sampler = drawn("filter:dead=0.9,explore=0.01")
    rates = np.array([0.0, 0.5, 0.5] * 4)
    rng, counts = np.random.default_rng(0), np.zeros(12)
    for i in range(400):
        which = sampler._draw()
        rewards = (rng.random((4, 3)) < rates[which][:, None]).astype(float)
        weights, _ = sampler.learn(ROWS[which[0]]["prompt"], rewards)
        assert (weights == 1).all()
        assert len(set(which.tolist())) == 4
        counts += np.bincount(which, minlength=12) * (i >= 100)
    assert counts[rates == 0].sum() < 0.1 * counts.sum()


def test_a_new_allocator_with_groups_of_the_given_size_draws_for_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    def cautious(offer: Offer, values: Values) -> Picks:
        which = np.argsort(-offer.random, kind="stable")[: offer.prompts]
        return picks.groups_of_one_size(offer.rates, which, offer.group, len(offer.random))

    monkeypatch.setitem(ALLOCATORS, "toy", Allocator("", "", picks=cautious))
    with pytest.raises(UserError, match="the group size here, filter or optimal, or"):
        allocator("toy")
    monkeypatch.setitem(ALLOCATORS, "toy", Allocator("", "", picks=cautious, given_size={}))
    rows = np.array(list(drawn("toy"))).reshape(3, 2, 4, 3)
    assert (rows == rows[:, :1, :, :1]).all()
    assert len({tuple(batch) for batch in rows[:, 0, :, 0].tolist()}) == 3
    monkeypatch.setitem(ALLOCATORS, "toy", Allocator("", "", picks=picks.least_error, given_size={},
                                                     settings=ALLOCATORS["optimal"].settings))  # fmt: skip
    with pytest.raises(ValueError, match="it can have no `given_size`"):
        drawn("toy")._draw()


@pytest.mark.parametrize("text", ["two-stage", "resample", "uniform:forecast=yes", "optimal:sizes=own",
                                  "optimal:history=runs/x", "filter:history=runs/x"])  # fmt: skip
def test_what_batches_of_one_group_size_cannot_do_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="TRL"):
        allocator(text)


def test_resuming_and_other_batches_are_refused(tmp_path: Path) -> None:
    made = tiny_trl.trainer(tmp_path, [], kind=GRPOscopeTrainer, ours={"allocate": "optimal"},
                            per_device_train_batch_size=16, num_generations=4)  # fmt: skip
    with pytest.raises(UserError, match="keep no history"):
        made.train(resume_from_checkpoint=True)
    with pytest.raises(UserError, match="not those that allocate drew"):
        drawn().learn("x", np.zeros((4, 3)))
