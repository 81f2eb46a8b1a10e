"""Draws by success rates in TRL: the sampler's order, what is learned, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")
pytest.importorskip("datasets")

from engines import tiny_trl
from grposcope.core.errors import UserError
from grposcope.core.files import write_json
from grposcope.engines.trl import GRPOscopeTrainer
from grposcope.engines.trl.draws import CHECKPOINT, PromptDraws, allocator
from grposcope.lab.allocation import ALLOCATORS, Allocator, picks
from grposcope.lab.allocation.picks import AllocationPlan, CandidateProblems, Values

pytestmark = pytest.mark.slow

ROWS = [{"prompt": "x" * (1 + i % 3), "difficulty": i % 4} for i in range(12)]


def drawn(text: str = "filter:dead=0.5") -> PromptDraws:
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


def run(folder: Path, **given: Any) -> Any:
    trainer = tiny_trl.trainer(folder, [], kind=GRPOscopeTrainer, ours=given, per_device_train_batch_size=16,
                            num_generations=4, max_completion_length=6)  # fmt: skip
    trainer.train()
    return trainer


def test_a_run_learns_from_every_batch(tmp_path: Path) -> None:
    done = run(tmp_path, allocate="filter")
    assert done._scope_draws.forecaster.batches == 4
    assert all(np.isfinite(row["grad_norm"]) for row in done.state.log_history if "grad_norm" in row)


def test_the_filter_skips_prompts_that_are_never_solved() -> None:
    """Of four prompts in twelve none is ever solved: skipped, a third of the draws is left to the others."""
    sampler = drawn("filter:dead=0.9,explore=0.01")
    rates = np.array([0.0, 0.5, 0.5] * 4)
    rng, counts = np.random.default_rng(0), np.zeros(12)
    for i in range(400):
        which = sampler._draw()[0]
        rewards = (rng.random((4, 3)) < rates[which][:, None]).astype(float)
        metrics = sampler.learn(ROWS[which[0]]["prompt"], rewards)
        assert 0 <= metrics["allocation/live_promised"] <= 1
        assert len(set(which.tolist())) == 4
        counts += np.bincount(which, minlength=12) * (i >= 100)
    assert counts[rates == 0].sum() < 0.1 * counts.sum()


def test_a_new_allocator_draws_for_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    def cautious(candidates: CandidateProblems, values: Values) -> AllocationPlan:
        which = np.argsort(-candidates.random, kind="stable")[: candidates.prompts]
        return picks._picked(candidates, which, len(candidates.random))

    monkeypatch.setitem(ALLOCATORS, "toy", Allocator("", "", picks=cautious))
    rows = np.array(list(drawn("toy"))).reshape(3, 2, 4, 3)
    assert (rows == rows[:, :1, :, :1]).all()
    assert len({tuple(batch) for batch in rows[:, 0, :, 0].tolist()}) == 3
    with pytest.raises(UserError, match="use filter or toy here"):
        allocator("resample")


@pytest.mark.parametrize("text", ["resample", "filter:history=runs/x"])
def test_what_trl_cannot_do_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="TRL"):
        allocator(text)


def made(folder: Path, **options: Any) -> Any:
    """Two of the four prompts a batch, so that a pass has two batches; a checkpoint behind every step."""
    shape = {"per_device_train_batch_size": 8, "num_generations": 4, "save_strategy": "steps", "save_steps": 1}
    given = {"max_steps": 5, **shape, **options}
    return tiny_trl.trainer(folder, [], kind=GRPOscopeTrainer, ours={"allocate": "filter"}, **given)


@pytest.mark.parametrize("step", [2, 3])  # at the end of a pass, and within one
def test_a_resumed_run_is_the_run_that_never_ended(tmp_path: Path, step: int) -> None:
    """Draws, rewards, gradients and the forecast are the same, bit for bit."""
    whole, again = made(tmp_path), made(tmp_path)
    whole.train()
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    for name in ("reward", "grad_norm", "allocation/live_promised"):
        values = [[row[name] for row in one.state.log_history if name in row] for one in (whole, again)]
        assert len(values[0]) == 5
        assert values[0] == values[1]
    assert whole._scope_draws.forecaster.state() == again._scope_draws.forecaster.state()
    assert again._scope_draws.forecaster.batches == 5


def test_within_the_use_of_a_batch_its_prompts_are_answered_again(tmp_path: Path) -> None:
    """Each batch is used in 2 × 2 parts of 4 rollouts, over two steps; behind steps 1 and 3 one is in use."""
    options = {"per_device_train_batch_size": 4, "num_iterations": 2, "gradient_accumulation_steps": 2}
    whole = made(tmp_path, **options)
    whole.train()
    for step, skip in ((1, False), (3, False), (3, True)):
        again = made(tmp_path / "again", ignore_data_skip=skip, **options)
        again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert again.state.global_step == 5
        assert again._scope_draws.forecaster.batches >= whole._scope_draws.forecaster.batches


def test_a_checkpoint_that_a_kill_has_cut_short_is_passed_over(tmp_path: Path) -> None:
    made(tmp_path, max_steps=2).train()
    (tmp_path / "checkpoint-2" / "trainer_state.json").unlink()
    again = made(tmp_path)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 5


def test_what_cannot_be_resumed_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no whole checkpoint to resume from"):
        made(tmp_path / "nothing").train(resume_from_checkpoint=True)
    made(tmp_path, max_steps=1).train()
    with pytest.raises(
        UserError, match="2 prompts × 4 rollouts, each used 1 time, and this run has batches of 4 prompts × 2"
    ):
        made(tmp_path, num_generations=2).train(resume_from_checkpoint=True)
    (tmp_path / "checkpoint-1" / CHECKPOINT).unlink()
    with pytest.raises(UserError, match="the history of success rates"):
        made(tmp_path).train(resume_from_checkpoint=True)


def test_a_checkpoint_of_an_earlier_version_is_gone_on_from(tmp_path: Path) -> None:
    """It kept weights of the prompts, and of two further forecasts, beside what is needed."""
    sampler = drawn()
    list(sampler)
    state = sampler.state(1, 1)
    state["format"], state["left"] = 1, [[which, [1.0] * 4, live] for which, live in state["left"]]
    state["forecast"]["weights"] |= {"base": [[0.0], [[0.25]]]}
    write_json(tmp_path / CHECKPOINT, state)
    again = drawn()
    again.restore(tmp_path, skipping=True)
    assert [places.tolist() for places, _ in again.drawn] == [places.tolist() for places, _ in sampler.drawn]


def test_a_history_of_other_prompts_is_refused(tmp_path: Path) -> None:
    sampler, asked = drawn(), allocator("filter")
    assert asked is not None
    write_json(tmp_path / CHECKPOINT, sampler.state(1, 1))
    rows = [{**row, "prompt": row["prompt"] + "y"} for row in ROWS]
    with pytest.raises(UserError, match="other problems"):
        PromptDraws(asked, rows, prompts=4, group=3, repeats=2, seed=0).restore(tmp_path, skipping=True)


def test_batches_that_were_not_drawn_are_refused() -> None:
    with pytest.raises(UserError, match="not those that allocate drew"):
        drawn().learn("x", np.zeros((4, 3)))
