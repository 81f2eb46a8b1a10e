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


@pytest.mark.parametrize("text", ["two-stage", "filter", "optimal:sizes=own", "optimal:history=runs/x"])
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
