"""Allocation in a run: ragged batches, their weights, the record, resuming bit for bit, and what cannot work."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import config, rows, start, stopped_at, timeless, weights

from grposcope.allocation import ALLOCATORS as KNOWN
from grposcope.allocation import LOOKED_AT, Allocator, picks
from grposcope.allocation.forecast import Forecaster
from grposcope.allocation.picks import Offer, Picks, Values
from grposcope.errors import UserError
from grposcope.objectives import advantages, recipes
from grposcope.objectives.objective import row_weights
from grposcope.policies import Policy
from grposcope.records import Rollouts
from grposcope.report.sections import allocation as page
from grposcope.runs import read
from grposcope.training import allocate as allocation
from grposcope.training import rollouts
from grposcope.training.config import check
from grposcope.training.loop import resume, train
from grposcope.training.rollouts import arranged, drawn_problems
from grposcope.training.setup import prepare

ALLOCATORS = (
    "uniform:forecast=yes", "resample", "filter:dead=0.5", "two-stage", "two-stage:pooled=yes", "optimal",
    "optimal:weights=none,sizes=one", "optimal:sizes=given,pool=7",
)  # fmt: skip


def made(sizes: list[int], width: int = 3, seed: int = 0) -> tuple[Rollouts, torch.Tensor]:
    """Ragged rollouts with random scores (rows, 2) behind them, padded rows included."""
    rng = torch.Generator().manual_seed(seed)
    n = sum(sizes)
    lengths = torch.randint(1, width + 1, (n,), generator=rng)
    mask = torch.arange(width) < lengths[:, None]
    single = Rollouts(
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
    return arranged(single.rows(shuffled), owners[shuffled], -1), single.rewards


def test_groups_of_different_sizes_are_padded_and_keep_their_rollouts() -> None:
    sizes = [2, 5, 3]
    batch, rewards = made(sizes)
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
def test_advantages_of_a_padded_group_are_those_of_the_group_alone(name: str) -> None:
    batch, _ = made([2, 5, 3, 4])
    found = advantages.ALL[name].function(batch.rewards)
    for p, size in enumerate([2, 5, 3, 4]):
        alone = batch.rewards[p : p + 1, :size]
        if name != "batch_standardized":  # whose scale is the batch's
            assert torch.equal(found[p, :size], advantages.ALL[name].function(alone)[0])
        assert (found[p, size:] == 0).all()


@pytest.mark.parametrize("recipe", ["rloo", "dr_grpo", "grpo"])
def test_the_loss_is_the_mean_over_groups_of_their_weight_times_their_own_loss(recipe: str) -> None:
    """Weights 1/q and 1/G_x: group x alone, as a batch of its own, has the loss L_x, and the batch Σ w_x L_x / P."""
    sizes, given = [2, 5, 3, 4], torch.tensor([0.5, 2.0, 1.0, 0.1]).double()
    batch, _ = made(sizes)
    batch = replace(batch, weights=given)
    objective = recipes.ALL[recipe].at_length(3)
    total = objective.loss(batch.logp, batch.logp, batch)
    alone = []
    for p in range(len(sizes)):
        one = replace(batch.take(torch.tensor([p])), weights=None)
        alone.append(float(objective.loss(one.logp, one.logp, one)))
    assert float(total) == pytest.approx(float((given * torch.tensor(alone)).mean()), abs=1e-7)
    assert row_weights(batch).sum() == pytest.approx(float(given.mean()) * sum(sizes))


def test_weights_of_1_and_equal_groups_change_nothing() -> None:
    batch, _ = made([4, 4, 4])
    for recipe in recipes.ALL.values():
        plain = replace(batch, weights=None)
        objective = recipe.at_length(3)
        assert torch.equal(objective.coefficients(batch), objective.coefficients(plain))


@pytest.mark.parametrize("allocate", ALLOCATORS)
def test_a_run_with_each_allocator_is_recorded_and_resumed_bit_for_bit(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allocate: str
) -> None:
    given = {"allocate": allocate, "recipe": "rloo", "steps": 4, "checkpoint_every": 2, "eval_every": 0,
             "rollouts_every": 1, "eval_problems": 2, "prompts": 4, "group": 4}  # fmt: skip
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole, cut = config(policy, tmp_path / "a", **given), config(policy, tmp_path / "b", **given)
    start(whole)
    stopped_at(monkeypatch, cut, 4)
    resume(tmp_path / "b" / "run")
    for name in ("steps", "groups", "evals"):
        assert timeless(rows(cut.out, name)) == timeless(rows(whole.out, name))
    assert weights(cut.out) == weights(whole.out)
    run = read(tmp_path / "a" / "run")
    assert len(run.groups)
    assert run.rollouts[1]
    if allocate != "uniform:forecast=yes":
        assert np.isfinite(run.table["allocation/effective_prompts"]).all()
    if allocate.startswith(("optimal", "filter")):
        assert ((run.table["allocation/live_promised"] >= 0) & (run.table["allocation/live_promised"] <= 1)).all()
    if allocate.startswith("optimal"):
        assert all({"forecast", "base", "difficulty", "weight"} <= set(row) for row in rows(whole.out, "groups"))


@pytest.mark.parametrize("allocate", ALLOCATORS)
def test_every_token_that_was_drawn_is_charged(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allocate: str
) -> None:
    """Those of screenings that are thrown away, and of dead groups that were replaced, too."""
    tokens, counted = [], rollouts.draw

    def counting(*given: Any, **more: Any) -> rollouts.Drawn:
        drawn = counted(*given, **more)
        tokens.append(int(drawn.rollouts.mask.sum()))
        return drawn

    for module in (rollouts, allocation):
        monkeypatch.setattr(module, "draw", counting)
    asked = config(policy, tmp_path, allocate=allocate, steps=3, eval_problems=0, prompts=4, group=4, recipe="rloo")
    train(asked)
    recorded = rows(asked.out)
    assert sum(row["tokens_generated"] for row in recorded) == sum(tokens)
    assert all(row.get("allocation/tokens", row["tokens_generated"]) == row["tokens_generated"] for row in recorded)


def test_forecasting_leaves_a_uniform_run_as_it_was(policy: Policy, tmp_path: Path) -> None:
    outs = []
    for name, allocate in (("a", "uniform"), ("b", "uniform:forecast=yes")):
        (tmp_path / name).mkdir()
        asked = config(policy, tmp_path / name, allocate=allocate, steps=3, eval_problems=0)
        train(asked)
        outs.append(asked.out)
    assert weights(outs[0]) == weights(outs[1])


def last_ones(offer: Offer, values: Values) -> Picks:
    which = np.arange(len(offer.random))[-offer.prompts :]
    return picks.groups_of_one_size(offer.rates, which, offer.group, len(offer.random))


TOY = Allocator("the last ones of those offered", "favours nobody", picks=last_ones)


def test_a_new_allocator_is_one_entry(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy, entered in ALLOCATORS, draws the batches of a run, moves on in the data, and is on the page."""
    monkeypatch.setitem(KNOWN, "toy", TOY)
    asked = config(policy, tmp_path, allocate="toy", steps=2, prompts=2, eval_problems=0)
    train(asked)
    run, problems = read(asked.out), prepare(replace(asked, out=None)).train_set
    offered = drawn_problems(problems, asked.seed, 0, LOOKED_AT * 2), drawn_problems(problems, asked.seed, 32, 32)
    assert [run.groups.problems[i] for i in run.groups.problem] == [one.id for part in offered for one in part[-2:]]
    assert np.isfinite(run.table["allocation/live_promised"]).all()
    section = page.section([run])
    assert section is not None
    assert section.text[0].startswith("Allocated by toy: favours nobody.")


def test_an_allocator_of_groups_of_several_sizes_must_say_so(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def growing(offer: Offer, values: Values) -> Picks:
        return replace(last_ones(offer, values), sizes=np.arange(2, 2 + offer.prompts))

    asked = config(policy, tmp_path, allocate="toy", recipe="rloo", steps=1, prompts=2, eval_problems=0)
    monkeypatch.setitem(KNOWN, "toy", replace(TOY, picks=growing))
    with pytest.raises(ValueError, match="its entry must say `ragged`"):
        train(asked)
    monkeypatch.setitem(KNOWN, "toy", replace(TOY, picks=growing, ragged=lambda values: True))
    train(replace(asked, out=str(tmp_path / "again")))
    assert read(tmp_path / "again").groups.sizes.tolist() == [2, 3]
    with pytest.raises(UserError, match="groups of one size, and allocate toy makes them differ; use credit outcome"):
        check(replace(asked, credit="prefix"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"allocate": "optimal", "group": 1, "recipe": "reinforce"}, "under two per prompt drawn"),
        ({"allocate": "two-stage:first=5", "prompts": 2, "group": 4}, "does not pay a screening"),
        ({"allocate": "optimal", "recipe": "dapo"}, "replaces dead groups itself"),
        ({"allocate": "optimal", "credit": "prefix"}, "groups of one size.*sizes=one"),
        ({"allocate": "two-stage", "probe_every": 3}, "groups of one size"),
        ({"allocate": "filter", "minibatches": 2, "interval": 2, "prompts": 4}, "use 1 minibatch"),
        ({"allocate": "optimal:floor=0"}, "above 0"),
    ],
)
def test_settings_that_do_not_go_together(policy: Policy, tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(config(policy, tmp_path, **changes))


@pytest.mark.parametrize("allocate", ["uniform:forecast=yes", "optimal", "filter:dead=0.5"])
def test_what_the_record_says_was_forecast_knows_nothing_of_the_batch(
    policy: Policy, tmp_path: Path, allocate: str
) -> None:
    ready = prepare(config(policy, tmp_path, allocate=allocate, eval_problems=0))
    under_way = allocation.RolloutAllocation(ready)
    position = 0
    for _ in range(3):
        before = allocation.RolloutAllocation(ready, under_way.state()).forecaster
        assert before is not None
        made = under_way.draw(position)
        which = np.array([under_way.places[problem.id] for problem in made.batch.problems])
        for kind, means in before.means(which).items():
            assert [note[kind] for note in made.notes] == means.tolist()
        assert under_way.state() != before.state()
        position = made.batch.position


def test_a_history_of_other_problems_is_refused_and_one_of_these_is_learned(policy: Policy, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    first = config(policy, tmp_path / "a", steps=2, eval_problems=0)
    train(first)
    again = config(policy, tmp_path / "b", allocate=f"optimal:history={first.out}", steps=1, eval_problems=0)
    train(again)
    assert math.isfinite(rows(again.out)[0]["allocation/live_promised"])
    other = config(policy, tmp_path / "c", allocate=f"optimal:history={first.out}", steps=1, eval_problems=0)
    (tmp_path / "c" / "prompts.jsonl").write_text('{"id": "x", "prompt": "else:"}\n{"id": "y", "prompt": "more:"}\n')
    with pytest.raises(UserError, match="history is of other problems"):
        train(other)


def test_a_history_that_tells_no_success_rates_is_refused(policy: Policy, tmp_path: Path) -> None:
    known = Forecaster(["x"], [1.0], [3.0])
    with pytest.raises(UserError, match=r"allocate: history=.*nowhere cannot be read: there is no"):
        allocation._learn_from(tmp_path / "nowhere", known)
    first = config(policy, tmp_path, steps=1, eval_problems=0)
    train(first)
    groups = Path(str(first.out)) / "groups.jsonl"
    groups.write_text(re.sub(r'"rewards": ?\[[01.]+', '"rewards": [-1.0', groups.read_text()))
    with pytest.raises(UserError, match=r"allocate: history=.* has rewards outside of 0 … 1"):
        allocation._learn_from(Path(str(first.out)), known)
