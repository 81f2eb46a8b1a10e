"""The rank of a group's rows A_i ψ_i, against singular values of single rollouts' gradients, and in closed form."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from geometry_models import FAMILIES, batch, build, one_by_one

from grposcope.core.files import dumps
from grposcope.instruments.gradient import findings, group_rank, probe, recording
from grposcope.lab.objectives import recipes


@pytest.mark.parametrize("family", FAMILIES)
def test_ranks_are_those_of_a_backward_pass_per_rollout(family: str) -> None:
    """Rows A_i times the layer's gradient of each rollout by autograd, and LAPACK's singular values of the matrix."""
    model, rollouts = build(family), batch(prompts=2, group=4)
    measured = probe.probe(model, rollouts, recipes.GRPO, check=False)
    ranks, gradients = measured.group_ranks(), one_by_one(model, rollouts)
    advantages = (rollouts.rewards - rollouts.rewards.mean(1, keepdim=True)).numpy()
    worst = 0.0
    for row, layer in enumerate(measured.matrices):
        flat = torch.stack([of_rollout[layer.name].flatten() for of_rollout in gradients]).numpy()
        for group, of_group in enumerate(advantages):
            values = np.linalg.svd(of_group[:, None] * flat[4 * group : 4 * group + 4], compute_uv=False)
            for got, kept in ((ranks.rank, values), (ranks.rank_of_two, values[:2])):
                worst = max(worst, abs(got[row, group] - kept.sum() ** 2 / (kept**2).sum()))
            for got, kept in ((ranks.top, values), (ranks.top_of_two, values[:2])):
                worst = max(worst, abs(got[row, group] - kept[0] ** 2 / (kept**2).sum()))
        rows = np.abs(advantages) * np.sqrt((flat.reshape(2, 4, -1) ** 2).sum(-1))
        np.testing.assert_allclose(ranks.lengths[row], rows.sum(1) ** 2 / (rows**2).sum(1), rtol=1e-9)
        assert (ranks.rank[row] <= ranks.lengths[row] + 1e-9).all()
    assert worst < 1e-6
    assert len(measured.matrices) > 4


@pytest.mark.parametrize(("group", "right"), [(2, 1), (4, 1), (4, 2), (8, 1), (8, 2), (8, 4), (16, 5)])
def test_the_null_is_that_of_orthogonal_rows(group: int, right: int) -> None:
    rewards = np.array([[1.0] * right + [0.0] * (group - right)])
    ranks = group_rank.measure(rewards, [3.7 * np.eye(group)])
    closed = 4 * right * (group - right) / group
    assert ranks.null[0] == pytest.approx(closed, abs=1e-9)
    assert ranks.rank[0, 0] == pytest.approx(closed, abs=1e-9)
    if group == 2:
        assert closed == 2
    f = ranks.top_of_two[0, 0]
    assert ranks.rank_of_two[0, 0] == pytest.approx(1 + 2 * math.sqrt(f * (1 - f)), abs=1e-9)
    assert ranks.deviation[0] == pytest.approx(math.sqrt(right * (group - right)) / group, abs=1e-12)


def test_isotropic_scores_come_near_the_null_and_cut_at_two_never_exceeds_two() -> None:
    random = np.random.default_rng(0)
    rewards = np.array([[1.0, 1.0] + [0.0] * 6])
    scores = random.normal(size=(8, 20_000))
    ranks = group_rank.measure(rewards, [scores @ scores.T])
    assert ranks.rank[0, 0] == pytest.approx(6, rel=0.02)
    assert 1.9 < ranks.rank_of_two[0, 0] <= 2
    shared = scores + 3 * random.normal(size=20_000)
    assert group_rank.measure(rewards, [shared @ shared.T]).rank[0, 0] < 3


def test_copies_of_a_completion_add_no_direction() -> None:
    random = np.random.default_rng(1)
    scores = random.normal(size=(4, 50)).astype(np.float32)
    scores[2] = scores[1]
    rewards = np.array([[1.0, 0.0, 0.0, 0.0]])
    ranks = group_rank.measure(rewards, [(scores @ scores.T).astype(float)])
    exact = np.linalg.svd(np.array([0.75, -0.25, -0.25, -0.25])[:, None] * scores.astype(float), compute_uv=False)[:3]
    assert ranks.rank[0, 0] == pytest.approx(exact.sum() ** 2 / (exact**2).sum(), rel=1e-5)


def test_dead_groups_are_left_out_and_nothing_is_said_without_a_live_one() -> None:
    rewards = np.array([[1.0, 0.0], [1.0, 1.0]])
    ranks = group_rank.measure(rewards, [np.eye(4)])
    assert ranks.rank.shape == (1, 1)
    none = group_rank.measure(np.ones((2, 2)), [np.eye(4)]).summary()
    assert math.isnan(none.rank.value)
    assert none.rank.flag == "no group has unequal rewards"


def test_a_probe_says_it_and_keeps_it() -> None:
    model, rollouts = build("llama"), batch(prompts=3, group=4)
    measured = probe.probe(model, rollouts, recipes.RLOO, check=False)
    record = recording.record(measured, "m", "t", 0)
    ranks = measured.group_ranks()
    assert record.group_rank == ranks.summary()
    assert record.group_rank.rank.value == pytest.approx(np.median(ranks.rank, 0).mean())
    assert record.layers[1].group_rank["rank"] == pytest.approx(ranks.rank[1].mean())
    assert '"group_rank"' in dumps(record.summary())
    said = findings._group_rank(record).sentence
    assert f"would give {record.group_rank.null.value:.3g}" in said
    assert "2 by algebra" in findings._group_rank(replace(record, group=2)).sentence
