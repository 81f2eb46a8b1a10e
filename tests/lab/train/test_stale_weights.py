"""Runs whose rollouts earlier weights drew, and corrections: which weights, which coefficients, what is recorded."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import config, rows
from torch import Tensor
from transformers import PreTrainedModel

from grposcope.core.errors import UserError
from grposcope.instruments.offpolicy.read import read as read_offpolicy
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.sampler import Sampling, sample
from grposcope.lab.train import loop, stale_weights
from grposcope.lab.train.stale_weights import Staleness, StaleWeights
from grposcope.lab.train.update import TokenTerms
from grposcope.logs import read
from grposcope.signs import sampler_mismatch as off_policy
from grposcope.signs.quantities import Quantities


@dataclass
class Watched:
    """A run, and of each of its optimiser steps the model before it, the rollouts and their terms."""

    folder: Path
    models: list[PreTrainedModel]
    rollouts: list[RolloutBatch]
    terms: list[TokenTerms]

    def logp(self, version: int, step: int) -> Tensor:
        """log π of the rollouts of a step (from 1) under the weights after `version` steps, (B, T)."""
        return frozen_logprobs(self.models[version], self.rollouts[step - 1], 1.0, 4)


@pytest.fixture
def watched(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Watched]:
    small = config(
        policy, tmp_path, steps=6, eval_problems=0, checkpoint_every=0, lr=3e-2, warmup=0, rollouts_every=1, threads=1
    )
    update = loop.update

    def go(**changes: Any) -> Watched:
        seen = Watched(tmp_path / f"run{len(list(tmp_path.glob('run*')))}", [], [], [])

        def watching(model: PreTrainedModel, optimizer: Any, objective: Any, batch: RolloutBatch, terms: TokenTerms,
                     *rest: Any) -> Any:  # fmt: skip
            seen.models.append(copy.deepcopy(model))
            seen.rollouts.append(batch)
            seen.terms.append(terms)
            return update(model, optimizer, objective, batch, terms, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "update", watching)
            loop.train(replace(small, **{"out": str(seen.folder), **changes}))
        return seen

    return go


def same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("staleness", "interval", "expected"),
    [("2", 1, [0, 0, 0, 1, 2, 3]), ("2", 2, [0, 0, 0, 0, 2, 2]), ("3", 2, [0] * 6), ("9", 1, [0] * 6)],
)
def test_rollouts_are_drawn_by_the_newest_weights_that_are_old_enough(
    watched: Callable[..., Watched], staleness: str, interval: int, expected: list[int]
) -> None:
    run = watched(staleness=staleness, interval=interval)
    for step, version in enumerate(expected, 1):
        rollouts = run.rollouts[step - 1]
        assert rollouts.versions is not None
        assert rollouts.versions.tolist() == [version] * 3
        same(rollouts.logp, run.logp(version, step))
    last = run.logp(5, 6) - run.rollouts[-1].logp
    assert float(last.abs().max()) > 0.05  # the weights do move
    lags = [step - 1 - version for step, version in enumerate(expected, 1)]
    written = rows(run.folder)
    assert [row["staleness/mean"] for row in written] == [row["staleness/max"] for row in written] == lags
    assert {(row["step"], row["version"]) for row in rows(run.folder, "groups")} == {
        (step, version) for step, version in enumerate(expected, 1) if (step - 1) % interval == 0
    }


@pytest.mark.slow
def test_groups_of_mixed_lags_have_weights_of_their_own(watched: Callable[..., Watched]) -> None:
    run = watched(staleness="0-3", prompts=8)
    seen = set()
    for step, rollouts in enumerate(run.rollouts, 1):
        assert rollouts.versions is not None
        for group, version in enumerate(rollouts.versions.tolist()):
            own = slice(4 * group, 4 * group + 4)
            same(rollouts.logp[own], run.logp(version, step)[own])
            seen.add(step - 1 - version)
    assert seen == {0, 1, 2, 3}
    for step, usual in enumerate(watched(prompts=8).rollouts, 1):  # groups and texts are in the order of their problems
        assert torch.equal(run.rollouts[step - 1].prompt_ids, usual.prompt_ids)
        for one in read(run.folder).rollouts[step]:
            assert one.completion == "".join(
                token for token in one.tokens if len(token) == 1
            )  # longer ones are special
    mixed = [row for row in rows(run.folder) if row["staleness/max"] != row["staleness/mean"]]
    assert mixed


@pytest.mark.parametrize("correction", [None, "none", "sequence_cap:1.2", "token_mask:1.1", "full", "one_sided:0.05"])
def test_terms_are_those_of_the_formula(watched: Callable[..., Watched], correction: str | None) -> None:
    run = watched(staleness="2", interval=2, correction=correction)
    for step in range(1, 7):
        rollouts, terms, mask = run.rollouts[step - 1], run.terms[step - 1], run.rollouts[step - 1].mask
        first = (step - 1) // 2 * 2
        trainer = run.logp(first, step)  # of the weights when the batch came
        advantages = recipes.GRPO.advantage(rollouts.rewards).reshape(-1)
        same(terms.old, rollouts.logp if correction is None else trainer)
        for row, advantage in enumerate(advantages.tolist()):
            logs = (trainer - rollouts.logp)[row][mask[row]].double()
            w = math.exp(float(logs.sum()))
            expected = {
                None: torch.ones(len(logs)), "none": torch.ones(len(logs)), "full": torch.full((len(logs),), w),
                "sequence_cap:1.2": torch.full((len(logs),), min(w, 1.2)),
                "token_mask:1.1": logs.exp() * (logs.exp() <= 1.1),
                "one_sided:0.05": ((logs.exp() <= 1.05) if advantage > 0 else (logs.exp() >= 0.95)).float(),
            }[correction]  # fmt: skip
            same(terms.credit[row][mask[row]], (expected * advantage).float())


def test_the_record_has_the_mismatch_and_what_the_correction_keeps(watched: Callable[..., Watched]) -> None:
    run = watched(staleness="2", correction="sequence_cap:1.2")
    for step, row in enumerate(rows(run.folder), 1):
        rollouts = run.rollouts[step - 1]
        each = [part[own].double() for part, own in zip(run.logp(step - 1, step) - rollouts.logp, rollouts.mask,
                                                        strict=True)]  # fmt: skip
        logs, w = torch.cat(each), torch.stack([one.sum().exp() for one in each])
        expected = {
            "mismatch/k1": -logs.mean(), "mismatch/k3": (logs.exp() - 1 - logs).mean(),
            "importance/ratio": logs.exp().mean(), "importance/ess_raw": w.sum() ** 2 / (len(w) * (w**2).sum()),
            "importance/weight": w.clamp(max=1.2).mean(), "importance/masked": torch.tensor(0.0),
        }  # fmt: skip
        for name, value in expected.items():
            assert row[name] == pytest.approx(float(value), rel=1e-3, abs=1e-4), name
    assert row["mismatch/k3"] > 1e-4


@pytest.mark.slow
def test_diagnose_judges_the_mismatch(watched: Callable[..., Watched]) -> None:
    fine, far = watched(steps=12, lr=1e-4, staleness="1"), watched(steps=12, lr=5e-2, staleness="6")
    judged = [off_policy.TEST.check(Quantities(read(one.folder))) for one in (fine, far)]
    assert judged[0].p > 0.5
    assert judged[1].p < 0.05


@pytest.mark.slow
def test_offpolicy_reads_the_record(watched: Callable[..., Watched]) -> None:
    run = watched(staleness="1", rollouts_groups=3)
    found = read_offpolicy(run.folder)
    assert found.versions is not None and found.rewards is not None  # noqa: PT018 - for mypy
    assert len(found.log_ratios) == 6 * 12 == len(found.versions)
    assert len(set(found.prompts.tolist())) == 6 * 3
    whole = sum(float((run.logp(step - 1, step) - run.rollouts[step - 1].logp).sum()) for step in range(1, 7))
    assert sum(float(one.sum()) for one in found.log_ratios) == pytest.approx(whole, rel=1e-3, abs=1e-3)
    with pytest.raises(UserError, match=r"has no rollouts with the log-probabilities of the trainer .* a correction"):
        read_offpolicy(watched().folder)


def test_runs_without_it_have_nothing_of_it(watched: Callable[..., Watched]) -> None:
    plain = watched(interval=2)
    assert not [name for row in rows(plain.folder) for name in row if "/" in name]
    assert not any("version" in row for row in rows(plain.folder, "groups"))
    assert plain.rollouts[0].versions is None
    assert all(one.current is None for some in read(plain.folder).rollouts.values() for one in some)


def test_the_sampler_of_a_correction_tells_what_it_drew_with(policy: Policy) -> None:
    """After top-k the log-probabilities are of three tokens; those before are less by the logarithm of their mass."""
    ids = torch.tensor([[5, 9, 7]])
    with torch.no_grad():
        logits = policy.model(ids).logits[0, -1]
    three = logits.topk(3)
    for processed in (False, True):
        sampling = Sampling(1, top_k=3, processed=processed)
        drawn = sample(
            policy.model, (ids, ids > 0), 64, sampling, policy.eos, policy.pad, torch.Generator().manual_seed(0)
        )
        known = (three.values if processed else logits).log_softmax(-1)
        places = (three.indices == drawn.tokens).nonzero()[:, 1] if processed else drawn.tokens[:, 0]
        same(drawn.logp[:, 0], known[places])


def test_truncation_is_corrected_by_the_mass_kept(watched: Callable[..., Watched]) -> None:
    row = rows(watched(top_k=2, correction="full", steps=1).folder)[0]
    assert row["importance/ratio"] < 0.98
    assert row["mismatch/k1"] > 0.02


def test_what_cannot_be_parsed_or_kept(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Staleness.parse("4") == Staleness(4, 4)
    assert Staleness.parse("0-8") == Staleness(0, 8)
    for text in ("5-2", "-1", "x", "1-", "", "99999", "1.5"):
        with pytest.raises(UserError, match="give a lag in optimiser steps, such as 4"):
            Staleness.parse(text)
    monkeypatch.setattr(stale_weights, "available_memory", lambda _: 1e5)
    with pytest.raises(UserError, match=r"staleness 8 with interval 2 keeps 5 copies of the weights that are trained"):
        StaleWeights(policy, Staleness(0, 8), 2)


def test_lags_are_drawn_evenly() -> None:
    lags = np.bincount(Staleness(2, 4).lags(3000, seed=0, position=5), minlength=6)
    assert lags[[0, 1, 5]].sum() == 0
    assert np.abs(lags[2:5] - 1000).max() < 120
