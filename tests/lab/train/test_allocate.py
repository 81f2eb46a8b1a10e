"""Allocation in a run: the record, resuming bit for bit, and what cannot work."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import config, rows, start, stopped_at, timeless, weights

from grposcope.core.errors import UserError
from grposcope.instruments.group_size.dead_groups_answer import _allocation_section
from grposcope.lab.allocation import ALLOCATORS as KNOWN
from grposcope.lab.allocation import LOOKED_AT, Allocator, picks
from grposcope.lab.allocation.forecast import Forecaster
from grposcope.lab.allocation.picks import AllocationPlan, CandidateProblems, Values
from grposcope.lab.policies import Policy
from grposcope.lab.sampling import rollouts
from grposcope.lab.sampling.rollouts import drawn_problems
from grposcope.lab.train import allocate as allocation
from grposcope.lab.train.config import check
from grposcope.lab.train.loop import resume, train
from grposcope.lab.train.setup import prepare
from grposcope.logs import read

ALLOCATORS = ("resample", "filter:dead=0.5")


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
    assert np.isfinite(run.table["allocation/effective_prompts"]).all()
    if allocate.startswith("filter"):
        assert ((run.table["allocation/live_promised"] >= 0) & (run.table["allocation/live_promised"] <= 1)).all()


@pytest.mark.parametrize("allocate", ALLOCATORS)
def test_every_token_that_was_drawn_is_charged(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allocate: str
) -> None:
    """Those of dead groups that were replaced, too."""
    tokens, counted = [], rollouts.draw

    def counting(*given: Any, **more: Any) -> rollouts._Drawn:
        drawn = counted(*given, **more)
        tokens.append(int(drawn.rollouts.mask.sum()))
        return drawn

    monkeypatch.setattr(rollouts, "draw", counting)
    asked = config(policy, tmp_path, allocate=allocate, steps=3, eval_problems=0, prompts=4, group=4, recipe="rloo")
    train(asked)
    recorded = rows(asked.out)
    assert sum(row["tokens_generated"] for row in recorded) == sum(tokens)
    assert all(row.get("allocation/tokens", row["tokens_generated"]) == row["tokens_generated"] for row in recorded)


def test_resampling_that_waits_begins_where_most_groups_are_dead(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it is the run with uniform draws, and killed and resumed it is the same run."""
    monkeypatch.setattr(allocation, "_WAITS", 2)
    given = {"recipe": "rloo", "steps": 4, "checkpoint_every": 1, "eval_problems": 0, "prompts": 2, "group": 2}
    asked, waits = {}, "resample:above=0.9"
    for name, allocate in {"uniform": "uniform", "never": "resample:above=1", "waits": waits, "cut": waits}.items():
        (tmp_path / name).mkdir()
        asked[name] = config(policy, tmp_path / name, "equal", allocate=allocate, **given)
    for name in ("uniform", "never", "waits"):
        start(asked[name])
    assert timeless(rows(asked["never"].out, "groups")) == timeless(rows(asked["uniform"].out, "groups"))
    once, begun = ([row["tokens_generated"] for row in rows(asked[name].out)] for name in ("uniform", "waits"))
    assert [all_tokens > plain for plain, all_tokens in zip(once, begun, strict=True)] == [False, False, True, True]
    stopped_at(monkeypatch, asked["cut"], 4)
    resume(tmp_path / "cut" / "run")
    for table in ("steps", "groups"):
        assert timeless(rows(asked["cut"].out, table)) == timeless(rows(asked["waits"].out, table))


def last_ones(candidates: CandidateProblems, values: Values) -> AllocationPlan:
    which = np.arange(len(candidates.random))[-candidates.prompts :]
    return picks._picked(candidates, which, len(candidates.random))


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
    section = _allocation_section([run])
    assert section is not None
    assert section.sentence.startswith("Allocated by toy: favours nobody.")


def test_an_allocator_that_picks_fewer_problems_than_a_batch_has_is_at_fault(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fewer(candidates: CandidateProblems, values: Values) -> AllocationPlan:
        return picks._picked(candidates, np.arange(candidates.prompts - 1), candidates.prompts)

    monkeypatch.setitem(KNOWN, "toy", replace(TOY, picks=fewer))
    with pytest.raises(ValueError, match="toy picks 1 problems, and a batch has 2"):
        train(config(policy, tmp_path, allocate="toy", steps=1, prompts=2, eval_problems=0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"allocate": "filter", "group": 1, "recipe": "reinforce"}, "allocate filter needs groups of 2 or more"),
        ({"allocate": "filter", "recipe": "dapo"}, "replaces dead groups itself"),
        ({"allocate": "filter", "minibatches": 2, "interval": 2, "prompts": 4}, "use 1 minibatch"),
        ({"allocate": "optimal"}, "retired; use one of uniform"),
    ],
)
def test_settings_that_do_not_go_together(policy: Policy, tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(config(policy, tmp_path, **changes))


def test_a_history_of_other_problems_is_refused_and_one_of_these_is_learned(policy: Policy, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    first = config(policy, tmp_path / "a", steps=2, eval_problems=0)
    train(first)
    again = config(policy, tmp_path / "b", allocate=f"filter:history={first.out}", steps=1, eval_problems=0)
    train(again)
    assert math.isfinite(rows(again.out)[0]["allocation/live_promised"])
    other = config(policy, tmp_path / "c", allocate=f"filter:history={first.out}", steps=1, eval_problems=0)
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
    with pytest.raises(UserError, match=r"allocate: history=.* has rewards outside 0 … 1"):
        allocation._learn_from(Path(str(first.out)), known)


@pytest.mark.parametrize("allocate", ["optimal", "two-stage:pooled=yes", "uniform:forecast=yes"])
def test_a_run_of_an_earlier_version_that_drew_otherwise_is_not_resumed(
    policy: Policy, tmp_path: Path, allocate: str
) -> None:
    asked = config(policy, tmp_path, steps=1, schedule="constant", checkpoint_every=1, eval_problems=0)
    train(asked)
    file = tmp_path / "run" / "config.json"
    file.write_text(re.sub(r'"allocate": ?"uniform"', f'"allocate": "{allocate}"', file.read_text()))
    with pytest.raises(
        UserError, match=r"cannot be resumed by this version \(allocate .*: start a new run from the model of its last"
    ):
        resume(tmp_path / "run", {"steps": 2})
