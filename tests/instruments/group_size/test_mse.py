"""MSE: every formula against the error of the estimator itself, over every outcome of a batch."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.instruments.group_size import mse
from grposcope.maths import moments
from grposcope.maths.moments import Moments, Statistics
from reference import ustat_loops, ustat_policies
from reference.ustat_policies import Estimator, SmallPolicy

exact = partial(pytest.approx, abs=1e-10, rel=0)
POLICY = SmallPolicy.random(0, prompts=2, answers=3)
BINARY = SmallPolicy.random(1, prompts=2, answers=3, binary=True)
SHAPES = [(1, 2), (1, 3), (1, 4), (1, 8), (2, 2), (2, 4), (2, 8), (4, 2), (4, 3)]


def known(policy: SmallPolicy) -> Moments:
    """Moments with the policy's exact values in place of estimates; two identical prompts stand for all."""
    truth = policy.moments()
    one, both = truth["zeta1"] + truth["g2"], truth["zeta2"] + truth["g2"]
    fields = {name: truth[name] for name in Statistics.__dataclass_fields__ if name in truth}
    statistics = Statistics(
        **{k: np.array([v]) for k, v in {**fields, "both": both, "one": one, "none": truth["g2"]}.items()}
    )
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 4, 3))
    found = moments.from_gram(scores.reshape(8, 3) @ scores.reshape(8, 3).T, rng.normal(size=(2, 4)))
    return Moments(**{**vars(found), "pooled": statistics, "flag": ""})


def by_prompt(policy: SmallPolicy, values: NDArray) -> Estimator:
    """An estimator with a baseline of its own for each prompt."""

    def baseline(score: NDArray) -> NDArray:
        at = np.argwhere((policy.scores == score).all(-1))[0][0]
        return values[at]

    return ustat_policies.with_baseline(baseline)


@pytest.mark.parametrize(("prompts", "group"), SHAPES)
def test_leave_one_out_equals_the_enumerated_error(prompts: int, group: int) -> None:
    predicted = mse.leave_one_out(known(POLICY), prompts, group).value
    assert predicted == exact(POLICY.mse(ustat_policies.leave_one_out, prompts, group))


@pytest.mark.parametrize(("prompts", "group"), SHAPES)
def test_centered_equals_the_enumerated_error(prompts: int, group: int) -> None:
    assert mse.centered(known(POLICY), prompts, group).value == exact(
        POLICY.mse(ustat_policies.centered, prompts, group)
    )


@pytest.mark.parametrize(("prompts", "group"), [(1, 1), (1, 2), (2, 2), (2, 3), (4, 2)])
def test_constant_baselines_equal_the_enumerated_error(prompts: int, group: int) -> None:
    found, p, r = known(POLICY), POLICY.chances, POLICY.rewards
    lengths = (POLICY.scores**2).sum(-1)
    value = (p * r).sum(-1)
    best = (p * r * lengths).sum(-1) / (p * lengths).sum(-1)
    for formula, baseline in ((mse.oracle, value), (mse.reinforce, 0 * value), (mse.optimal_baseline, best)):
        assert formula(found, prompts, group).value == exact(POLICY.mse(by_prompt(POLICY, baseline), prompts, group))


@pytest.mark.parametrize("policy", [POLICY, BINARY], ids=["graded", "binary"])
@pytest.mark.parametrize(("prompts", "group"), [(1, 2), (1, 3), (1, 8), (2, 2), (2, 4), (4, 2)])
def test_a_shrunk_baseline_equals_the_enumerated_error(policy: SmallPolicy, prompts: int, group: int) -> None:
    for shrink, centre in ((0.4, 0.0), (0.7, 0.3), (1.0, 0.0), (0.0, 0.0), (-0.2, 1.5)):
        listed = policy.mse(ustat_policies.shrunk(shrink, centre), prompts, group)
        assert mse.shrunk(known(policy), prompts, group, shrink, centre).value == exact(listed)


@pytest.mark.parametrize("centre", [0.0, 0.4])
def test_the_best_shrinkage_has_the_least_enumerated_error(centre: float) -> None:
    for policy, group in ((POLICY, 2), (BINARY, 2), (BINARY, 4)):
        best = mse.best_shrink(known(policy), group, centre).value
        at = [policy.mse(ustat_policies.shrunk(best + off, centre), 1, group) for off in (-0.01, 0.0, 0.01)]
        assert at[1] < min(at[0], at[2])
        least = mse.shrunk(known(policy), 1, group, best, centre).value
        ratio = mse.needed(known(policy), group, best, centre).value
        gap = (least - mse.oracle(known(policy), 1, group).value) * group / known(policy).pooled.sigma1[0]
        assert ratio == exact(1 + gap)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arms", "right"),
    [(2, 1), (4, 1), (8, 4), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((8, 1), (8, 7), (16, 1)))],
)
def test_where_leave_one_out_begins_to_pay_under_assumption_a2(arms: int, right: int) -> None:
    """A uniform softmax: Cov(r, ‖s‖²) = 0, and still no baseline has less error below G of about 1/V."""
    scores = (np.eye(arms) - 1 / arms)[None]
    uniform = SmallPolicy(np.full((1, arms), 1 / arms), scores, (np.arange(arms) < right)[None].astype(float))
    assert uniform.moments()["tilt"] == exact(0)
    border = mse.pays_from(known(uniform)).value
    value, norm = right / arms, uniform.moments()["norm"]
    assert border == exact(1 / value + uniform.moments()["g2"] / (value**2 * norm))
    for group in (g for g in (2, 3, 5, 8) if math.comb(arms + g - 1, g) < 20_000 and abs(g - border) > 1e-9):
        loo, bare = (uniform.mse(ustat_policies.shrunk(shrink, 0.0), 1, group) for shrink in (1.0, 0.0))
        assert (loo < bare) is (group > border)


def test_no_constant_baseline_beats_the_best() -> None:
    found = known(POLICY)
    best = mse.optimal_baseline(found, 2, 4).value
    for formula in (mse.oracle, mse.reinforce):
        assert formula(found, 2, 4).value >= best


def test_the_budget_adds_up() -> None:
    found = known(POLICY)
    split = mse.budget(found, 3, 5)
    assert split.prompts.value + split.oracle.value + split.residual.value == exact(split.total.value)
    assert split.prompts.value + split.oracle.value == exact(mse.oracle(found, 3, 5).value)
    ratio = mse.efficiency(found, 5).value
    assert ratio == exact(1 + found.pooled.delta[0] / (4 * found.pooled.sigma1[0]))


@pytest.mark.parametrize(("group", "ddof", "eps"), [(2, 1, 1e-4), (3, 0, 0.0), (4, 1, 1e-4), (5, 1, 0.3)])
def test_standardized_second_moment_is_the_average_over_all_subsets(group: int, ddof: int, eps: float) -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(6, 6, 4)) + rng.normal(size=4)
    rewards = np.where(np.arange(6) < np.arange(1, 7)[:, None] - 1, 0.5, -1.0)  # 0 to 5 of 6 succeed
    found = moments.from_gram(scores.reshape(36, 4) @ scores.reshape(36, 4).T, rewards)
    assert found.classes is not None
    for p in range(6):
        expected = ustat_loops.subsets_second_moment(scores[p], rewards[p], group, ddof, eps)
        assert found.classes.second(group, ddof, eps)[p] == exact(expected)


@pytest.mark.slow
def test_standardized_is_unbiased_by_enumeration_of_every_probe() -> None:
    """The expected estimate over all probes of 2 × 4 is the enumerated error, dead groups included."""
    shapes = [(1, 2), (2, 3), (2, 4), (4, 2)]
    total = dict.fromkeys(shapes, 0.0)
    own = 0.0
    for (chance_a, x, a), (chance_b, y, b) in itertools.product(BINARY.groups(4), repeat=2):
        rewards = np.stack([BINARY.rewards[x, list(a)], BINARY.rewards[y, list(b)]])
        if len(np.unique(rewards)) < 2 or (x, a) > (y, b):
            continue  # one reward only: no gradient. The other order of two prompts: counted twice instead
        chance = chance_a * chance_b * (1 if (x, a) == (y, b) else 2)
        scores = np.concatenate([BINARY.scores[x, list(a)], BINARY.scores[y, list(b)]])
        found = moments.from_gram(scores @ scores.T, rewards, replicates=0)
        own += chance * mse.standardized(found, 3, 3, target="own").value
        for shape in shapes:
            total[shape] += chance * mse.standardized(found, *shape).value
    for shape in shapes:
        assert total[shape] == exact(BINARY.mse(ustat_policies.standardized, *shape))
    chance, gradient = BINARY.outcomes(ustat_policies.standardized, 3)
    assert own == exact(float(chance @ ((gradient - chance @ gradient) ** 2).sum(-1)) / 3)


def test_standardized_says_what_it_cannot_know() -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(3, 4, 5))
    gram = scores.reshape(12, 5) @ scores.reshape(12, 5).T
    binary = (rng.random((3, 4)) < 0.5).astype(float)
    assert "two values" in mse.standardized(moments.from_gram(gram, rng.normal(size=(3, 4))), 1, 4).flag
    beyond = mse.standardized(moments.from_gram(gram, binary), 1, 5)
    assert math.isnan(beyond.value)
    assert "has 4 rollouts" in beyond.flag
    blocks = np.einsum("pid,pjd->pij", scores, scores)
    assert "across prompts" in mse.standardized(moments.from_gram(blocks, binary), 1, 4).flag


def test_small_probes_still_know_the_error_at_their_own_size() -> None:
    scores = np.random.default_rng(6).normal(size=(6, 3, 5))
    rewards = np.random.default_rng(7).normal(size=(6, 3))
    found = moments.from_gram(scores.reshape(18, 5) @ scores.reshape(18, 5).T, rewards)
    assert math.isfinite(mse.leave_one_out(found, 6, 2).value)
    three = np.mean([np.sum(ustat_policies.leave_one_out(s, r) ** 2) for s, r in zip(scores, rewards, strict=True)])
    assert mse.leave_one_out(found, 6, 3).value == exact((three - found.mean2.value) / 6)
    unknown = mse.leave_one_out(found, 6, 4)
    assert math.isnan(unknown.value)
    assert "needs 4 rollouts" in unknown.flag


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: mse.leave_one_out(m, 0, 4), "0 prompts"),
        (lambda m: mse.leave_one_out(m, 1, 1), "nothing to compare with"),
        (lambda m: mse.oracle(m, 1, 0), "group cannot have 0"),
    ],
)
def test_bad_numbers_are_refused(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=message):
        call(known(POLICY))
