"""Runs whose credit needs more than independent rollouts: what is drawn, charged, recorded, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import config, rows, stopped_at, timeless, weights
from torch import Tensor

from grposcope import logs as runs
from grposcope.core.errors import UserError
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.generation import tokens_with
from grposcope.lab.sampling.rollouts import Batch
from grposcope.lab.train import loop, setup
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import resume, train
from grposcope.lab.train.update import TokenTerms

SHORT: dict[str, Any] = {
    "reward": None,
    "task": "arithmetic:size=20",
    "steps": 2,
    "group": 8,
    "eval_problems": 0,
    "rollouts_every": 1,
    "rollouts_groups": 3,
    "max_tokens": 12,
}


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Batch, Tensor]]:
    """The batches of the runs to come, with their credit."""
    seen: list[tuple[Batch, Tensor]] = []
    terms: Callable[..., TokenTerms] = loop._Session.terms

    def note(self: Any, batch: Batch) -> TokenTerms:
        made = terms(self, batch)
        seen.append((batch, made.credit))
        return made

    monkeypatch.setattr(loop._Session, "terms", note)
    return seen


def of(policy: Policy, folder: Path, credit: str, **changes: Any) -> TrainConfig:
    return replace(config(policy, folder), **{**SHORT, "credit": credit, **changes})


def test_continuations_are_drawn_charged_and_used(policy: Policy, tmp_path: Path, watched: list) -> None:
    train(of(policy, tmp_path, "continuations:k=3,at=entropy,share=0.4"))
    for (batch, credit), row in zip(watched, rows(tmp_path / "run"), strict=True):
        continuations = batch.continuations
        assert continuations is not None
        assert continuations.rewards.shape[1] == 3
        own = int(batch.rollouts.mask.sum())
        assert batch.tokens == own + continuations.tokens > own
        assert row["tokens"] == own
        assert row["tokens_generated"] == batch.tokens
        values = batch.rollouts.token_annotations["prefix_values"]
        assert values is not None
        ends = ~values.isnan()
        assert ends.any()
        change = (credit[:, 1:] != credit[:, :-1]) & batch.rollouts.mask[:, 1:]
        assert not (change & ~ends[:, :-1]).any()  # credit changes behind boundaries only


def test_the_tokens_of_an_oracle_are_not_charged(policy: Policy, tmp_path: Path, watched: list) -> None:
    train(of(policy, tmp_path, "oracle:k=2,at=entropy", steps=1))
    batch = watched[0][0]
    assert batch.continuations.tokens > 0
    assert rows(tmp_path / "run")[0]["tokens_generated"] == int(batch.rollouts.mask.sum())


@pytest.mark.parametrize("credit", ["tree:every=3", "tree:widths=4,at=step", "placebo:of=tree:widths=2x4,every=2"])
def test_trees_are_drawn_and_their_tokens_counted_once(
    credit: str, policy: Policy, tmp_path: Path, watched: list
) -> None:
    train(of(policy, tmp_path, credit))
    for (batch, given), row in zip(watched, rows(tmp_path / "run"), strict=True):
        parent, shared = batch.origins
        assert row["tokens"] == int(batch.rollouts.mask.sum())
        assert row["tokens_generated"] == row["tokens"] - int(shared.sum())
        if "x" in credit:
            assert (parent >= 0).any()
        assert not given[~batch.rollouts.mask].any()


@pytest.mark.slow
@pytest.mark.parametrize("credit", ["continuations:at=entropy", "tree:widths=2x2,every=2"])
def test_a_run_that_was_cut_goes_on_as_if_nothing_had_happened(
    credit: str, policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"steps": 4, "checkpoint_every": 2, "schedule": "constant"}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole, cut = of(policy, tmp_path / "a", credit, **more), of(policy, tmp_path / "b", credit, **more)
    train(whole)
    stopped_at(monkeypatch, cut, 4)
    resume(Path(cut.out or ""))
    assert timeless(rows(cut.out)) == timeless(rows(whole.out))
    assert weights(cut.out) == weights(whole.out)


def test_the_record_says_who_branched_from_whom(policy: Policy, tmp_path: Path) -> None:
    train(of(policy, tmp_path, "tree:every=2", steps=1))
    recorded = runs.read(tmp_path / "run").rollouts[1]
    assert len(recorded) == 24
    groups = [recorded[i : i + 8] for i in range(0, 24, 8)]
    assert any(one.parent is not None for one in recorded)
    for group in groups:
        for one in group:
            if one.parent is not None:
                assert one.shared >= 1
                assert one.tokens[: one.shared] == group[one.parent].tokens[: one.shared]


def test_the_record_has_the_continuations(policy: Policy, tmp_path: Path, watched: list) -> None:
    train(of(policy, tmp_path, "continuations:k=3,at=entropy,share=0.4", steps=1))
    recorded = runs.read(tmp_path / "run").rollouts[1]
    drawn = watched[0][0].continuations
    assert sum(len(one.continuations) for one in recorded) == 3 * len(drawn.row)
    for one in recorded:
        for other in one.continuations:
            assert 0 < other.shared < len(one.tokens)
            assert other.length >= 1
            assert 0 <= other.reward <= 1


def test_a_run_without_them_records_none(policy: Policy, tmp_path: Path) -> None:
    train(of(policy, tmp_path, "outcome", steps=1))
    for one in runs.read(tmp_path / "run").rollouts[1]:
        assert (one.parent, one.shared, one.continuations) == (None, 0, ())


@pytest.mark.parametrize(
    ("credit", "words"),
    [
        ("continuations", "needs a task that labels steps, such as arithmetic"),
        ("tree:widths=2x4,at=step", "needs a task with a text that closes steps"),
    ],
)
def test_a_task_that_cannot_feed_it_is_refused(credit: str, words: str, policy: Policy, tmp_path: Path) -> None:
    task = f"jsonl:{tmp_path / 'prompts.jsonl'}"
    given = of(policy, tmp_path, credit, task=task, reward=f"{tmp_path / 'rewards.py'}:letters")
    with pytest.raises(UserError, match=words):
        setup.prepare(given)


def test_tokens_with_a_text(policy: Policy) -> None:
    marks = tokens_with(policy, "=")
    assert marks.shape == (policy.model.config.vocab_size,)
    found = [policy.tokenizer.decode([token]) for token in marks.nonzero()[:, 0].tolist()]
    assert found == ["="]
    assert torch.equal(tokens_with(policy, "\n").sum(), torch.tensor(1))
