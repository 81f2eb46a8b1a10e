"""Error of the gradient: unbiased by listing every batch, intervals that cover, choices that are not harmful."""

from __future__ import annotations

import itertools
import math
from functools import cache, partial

import numpy as np
import pytest
from gradient_products import from_estimates
from numpy.typing import NDArray
from scipy.stats import ncx2

from grposcope.core.errors import UserError
from grposcope.instruments.offpolicy import error
from grposcope.instruments.offpolicy.answer import _error_from_gram, _tail
from grposcope.maths import moments
from grposcope.maths.corrections import ALL, FULL, NONE, Correction
from grposcope.maths.importance import Ratios
from reference.offpolicy_policies import World, truth

BY_NAME = {one.name: one for one in ALL}
exact = partial(pytest.approx, rel=1e-9, abs=1e-15)


def test_full_weights_have_no_bias() -> None:
    """E over every group of a prompt is the gradient of the trainer's own policy."""
    world = World(apart=1.0)
    chances, estimates = world.outcomes(2, world.corrected(FULL))
    assert chances @ estimates == pytest.approx(world.gradient, abs=1e-12)


@pytest.mark.parametrize("name", ["none", "token_cap:2", "prefix_ratio", "sequence_cap:2"])
def test_bias_and_variance_are_unbiased_by_listing_every_batch(name: str) -> None:
    """Mean over all batches of three prompts with two rollouts each, of completions of up to two tokens."""
    world = World(prompts=2, letters=2, longest=2, apart=1.2, seed=5)
    correction = BY_NAME[name]
    chances, full = world.outcomes(2, world.corrected(FULL))
    own = world.outcomes(2, world.corrected(correction))[1]
    _, first, which = np.unique(np.hstack([own, full]).round(12), axis=0, return_index=True, return_inverse=True)
    chances, own, full = np.bincount(which.reshape(-1), chances), own[first], full[first]
    bias2 = variance = total = 0.0
    for batch in itertools.product(range(len(chances)), repeat=3):
        chance = float(np.prod(chances[list(batch)]))
        found = error.measure(from_estimates(own[list(batch)], full[list(batch)]), 0.0)
        bias2, variance, total = (
            bias2 + chance * found.bias2.value, variance + chance * found.variance.value, total + chance
        )  # fmt: skip
    due = truth(world, correction, 2, 3)
    assert total == pytest.approx(1)
    assert due.bias2 > 1e-6
    assert (bias2, variance) == (exact(due.bias2), exact(due.variance))


@pytest.mark.parametrize("name", ["none", "token_ratio", "sequence_mask:3", "full"])
def test_need_is_that_of_the_enumerated_policy(name: str) -> None:
    """Of 800 prompts; need by its definition from exact moments of a batch of the same size."""
    world, group = World(prompts=4, apart=0.4), 5
    rng = np.random.default_rng(3)
    found, _ = batch(world, rng, 800, group, (name,))
    due = truth(world, BY_NAME[name], group, 800)
    assert abs(found[name].need.value - due.need) < 4 * found[name].need.se
    assert found[name].need.se < 0.5 * due.need


def test_sequence_corrections_need_only_the_gram_matrix() -> None:
    world = World(prompts=3, apart=0.6)
    rng = np.random.default_rng(0)
    at, drawn = world.draw(rng, 6, 4)
    whole = np.array([[one.sum(0) for one in scores] for scores in world.token_scores])
    scores = whole[at[:, None], drawn].reshape(24, -1)
    advantages = error.leave_one_out(world.rewards[at[:, None], drawn])
    for name in ("none", "sequence_cap:2", "sequence_rejection:0.5,2"):
        own, full = (picked(world, one, at, drawn, advantages) for one in (BY_NAME[name], FULL))
        due = from_estimates(own, full)
        ratios = Ratios.of(logs(world, at, drawn))
        first, weights = (one.coefficients(ratios)[ratios.starts] for one in (BY_NAME[name], FULL))
        found = _error_from_gram(scores @ scores.T, first, weights, advantages)
        assert found.own == exact(due.own)
        assert found.cross == exact(due.cross)
        assert found.full == exact(due.full)


def test_variance_is_the_formula_of_the_u_statistic() -> None:
    """V_c = (V_p + Σ₁/G + Δ/(G(G−1)))/P of `maths.moments` on the Gram of the corrected vectors."""
    rng = np.random.default_rng(4)
    prompts, group = 7, 5
    vectors, rewards = rng.normal(size=(prompts, group, 6)), rng.normal(size=(prompts, group))
    flat = vectors.reshape(prompts * group, -1)
    due = moments.from_gram(flat @ flat.T, rewards)
    estimates = np.einsum("pg,pgd->pd", error.leave_one_out(rewards) / group, vectors)
    found = error.measure(from_estimates(estimates, estimates), 0.0)
    whole = due.prompt_variance.value + due.sigma1.value / group + due.delta.value / (group * (group - 1))
    assert found.variance.value == exact(whole / prompts)


def test_listing_pairs_is_listing_groups() -> None:
    """The reference for groups of any size agrees with that which lists every group of three."""
    world = World(prompts=2, apart=0.6, longest=2)
    vectors = world.corrected(BY_NAME["token_cap:2"])
    chances, estimates = world.outcomes(3, vectors)
    mean, square = world.second_moment(3, vectors)
    assert mean == exact(chances @ estimates)
    assert square == exact(chances @ (estimates**2).sum(-1))


@cache
def _vectors(world: World, name: str) -> NDArray:
    return world.corrected(BY_NAME[name])


def picked(world: World, one: Correction, at: NDArray, drawn: NDArray, advantages: NDArray) -> NDArray:
    """Estimates of prompts (P, D) under a correction."""
    vectors = _vectors(world, one.name)[at[:, None], drawn]
    return np.einsum("pg,pgd->pd", advantages / drawn.shape[1], vectors)


def logs(world: World, at: NDArray, drawn: NDArray) -> list[NDArray]:
    return [world.log_ratios[x][y] for x, row in zip(at, drawn, strict=True) for y in row]


def batch(
    world: World, rng: np.random.Generator, prompts: int, group: int, names: tuple[str, ...]
) -> tuple[dict[str, error.GradientError], float]:
    """Errors under the named corrections of one drawn batch, and its k̂."""
    at, drawn = world.draw(rng, prompts, group)
    advantages = error.leave_one_out(world.rewards[at[:, None], drawn])
    ratios = Ratios.of(logs(world, at, drawn))
    norms = np.array([[np.linalg.norm(one.sum(0)) for one in scores] for scores in world.token_scores])
    k = _tail(np.exp(ratios.sequence), advantages, norms[at[:, None], drawn].reshape(-1))
    full = picked(world, FULL, at, drawn, advantages)
    found = {}
    for name in names:
        own = picked(world, BY_NAME[name], at, drawn, advantages)
        beyond = BY_NAME[name].beyond(ratios)
        mean_weight = float(np.exp(ratios.sequence).mean())
        found[name] = error.measure(from_estimates(own, full), k, beyond, mean_weight)
    return found, k


@pytest.mark.slow
@pytest.mark.parametrize(("longest", "apart"), [(3, 0.4), (1, 2.0)])
def test_intervals_of_bias_cover(longest: int, apart: float) -> None:
    """90 % intervals over 200 batches of 64 × 8 cover at least 0.80, also where a few have the weight."""
    world = World(prompts=6, apart=apart, longest=longest)
    names = ("none", "token_cap:2", "sequence_cap:2")
    due = {name: exact_bias2(world, BY_NAME[name]) for name in names}
    rng = np.random.default_rng(0)
    covered: dict[str, list[bool]] = {name: [] for name in names}
    for _ in range(200):
        found, _ = batch(world, rng, 64, 8, names)
        for name in names:
            low, high = found[name].interval
            if not math.isnan(low):
                covered[name].append(low <= due[name] <= high)
    for name in names:
        assert len(covered[name]) > 100
        assert np.mean(covered[name]) >= 0.80, name
    assert np.mean([one for name in names for one in covered[name]]) <= 0.99, "intervals that always cover say nothing"


def test_degrees_of_freedom_are_those_of_the_covariance() -> None:
    """(Σλ)²/Σλ² of normal estimates whose covariance has the eigenvalues λ, from many batches of eight prompts."""
    rng = np.random.default_rng(12)
    spread = np.array([4.0, 2, 1, 1, 0.5, 0.5])
    due = spread.sum() ** 2 / (spread**2).sum()
    draws = [rng.normal(size=(8, 6)) * np.sqrt(spread) + 1 for _ in range(1000)]
    products = np.stack([one @ one.T for one in draws])
    assert error._freedom(products) == pytest.approx(due, rel=0.05)


@pytest.mark.parametrize("batches", [1, 5])
def test_interval_of_bias_is_that_of_a_noncentral_chi_square(batches: int) -> None:
    """Of normal estimates with a variance of 1 in each of 8 directions: what was seen is a percentile of each end."""
    rng = np.random.default_rng(13)
    prompts, directions = 400, 8
    draws = [rng.normal(size=(prompts, directions)) + 0.04 for _ in range(batches)]
    whole = np.zeros((batches * prompts, batches * prompts))
    for j, one in enumerate(draws):
        whole[j * prompts : (j + 1) * prompts, j * prompts : (j + 1) * prompts] = one @ one.T
    seen = prompts * sum(float(one.mean(0) @ one.mean(0)) for one in draws)
    found = error._bias_interval(whole, batches=batches)
    for end, level in zip(found, (0.95, 0.05), strict=True):
        if end:
            assert ncx2.cdf(seen, batches * directions, prompts * batches * end) == pytest.approx(level, abs=0.02)
    assert 0 < found[1] < 0.1


def test_pooled_batches_say_what_their_mean_says() -> None:
    """bias², V_c and what need is made of are means over batches; the choice has all prompts."""
    rng = np.random.default_rng(14)
    batches = []
    for _ in range(3):
        full = rng.normal(size=(20, 6)) + 1
        batches.append(from_estimates(full + 0.3 * rng.normal(size=full.shape) + 0.1, full))
    whole = error.measure(error.pooled(batches), 0.1)
    each = [error.measure(one, 0.1) for one in batches]
    assert whole.bias2.value == pytest.approx(np.mean([one.bias2.value for one in each]))
    assert whole.variance.value == pytest.approx(np.mean([one.variance.value for one in each]))
    assert whole.bias2.se < np.mean([one.bias2.se for one in each])
    assert len(whole.costs) == 60
    assert min(one.need.value for one in each) < whole.need.value < max(one.need.value for one in each)
    with pytest.raises(UserError, match="different sizes"):
        error.pooled([*batches, from_estimates(full[:5], full[:5])])


def test_pooled_intervals_of_bias_cover() -> None:
    """90 % intervals of four pooled batches of 16 × 8, over 150 of them, as those of one batch do."""
    world, names = World(prompts=6, apart=0.3), ("none", "sequence_cap:2")
    rng = np.random.default_rng(15)
    due = {name: exact_bias2(world, BY_NAME[name]) for name in names}
    covered = []
    for _ in range(150):
        parts = [_products(world, rng, 16, 8, names) for _ in range(4)]
        for name in names:
            low, high = error.measure(error.pooled([one[name] for one in parts]), 0.2).interval
            covered.append(low <= due[name] <= high)
    assert 0.80 <= np.mean(covered) <= 0.99


def _products(
    world: World, rng: np.random.Generator, prompts: int, group: int, names: tuple[str, ...]
) -> dict[str, error.GradientProducts]:
    at, drawn = world.draw(rng, prompts, group)
    advantages = error.leave_one_out(world.rewards[at[:, None], drawn])
    full = picked(world, FULL, at, drawn, advantages)
    return {name: from_estimates(picked(world, BY_NAME[name], at, drawn, advantages), full) for name in names}


def exact_bias2(world: World, correction: Correction) -> float:
    """‖b‖², which does not depend on the group: leave-one-out estimates have the mean of their kernel."""
    return truth(world, correction, 2, 1).bias2


def test_a_bias_is_told_and_none_is_not() -> None:
    rng = np.random.default_rng(5)
    full = rng.normal(size=(64, 20))
    noise = 0.5 * rng.normal(size=(64, 20))
    shift = np.full(20, 0.2)
    assert error.measure(from_estimates(full + noise + shift, full), 0.2).told
    assert not error.measure(from_estimates(full + noise, full), 0.2).told


def test_heavy_tails_and_unseen_bounds_are_refused() -> None:
    rng = np.random.default_rng(6)
    products = from_estimates(rng.normal(size=(20, 5)) + 1, rng.normal(size=(20, 5)) + 1)
    heavy, heavier = error.measure(products, 0.6), error.measure(products, 0.8)
    assert math.isfinite(heavy.bias2.value)
    assert "0.60" in heavy.bias2.flag
    assert math.isnan(heavier.bias2.value)
    assert math.isnan(heavier.need.value)
    assert math.isnan(error.measure(products, math.nan).variance.value)
    unseen = error.measure(products, 0.1, beyond=False)
    assert math.isnan(unseen.bias2.value)
    assert "beyond the bound" in unseen.bias2.flag
    assert math.isfinite(unseen.variance.value)


@pytest.mark.parametrize(("mean_weight", "given"), [(0.89, False), (0.91, True), (1.09, True), (1.11, False)])
def test_no_interval_where_the_mean_weight_is_not_1(mean_weight: float, given: bool) -> None:
    rng = np.random.default_rng(6)
    products = from_estimates(rng.normal(size=(20, 5)) + 1, rng.normal(size=(20, 5)))
    found = error.measure(products, 0.1, mean_weight=mean_weight)
    assert math.isfinite(found.interval[1]) == found.told == given
    assert math.isfinite(found.bias2.value)


def test_dropping_everything_is_never_chosen() -> None:
    """Coefficients near 0 have the least squared error where there is noise alone; their need is that of full."""
    rng = np.random.default_rng(7)
    full = rng.normal(size=(64, 10)) + 0.5
    errors = {
        "none": error.measure(from_estimates(full, full), 0.1),
        "tiny": error.measure(from_estimates(1e-3 * full, full), 0.1),
        "nothing": error.measure(from_estimates(0 * full, full), 0.1),
    }
    assert errors["tiny"].need.value == pytest.approx(errors["none"].need.value)
    assert math.isnan(errors["nothing"].need.value)
    assert error.choose(errors, 0.1).name in ("none", "tiny")


def test_the_better_correction_is_chosen_and_doubt_is_said() -> None:
    rng = np.random.default_rng(8)
    full = rng.normal(size=(200, 10)) + 0.5
    noisy = full + 3 * rng.normal(size=full.shape)
    errors = {
        "none": error.measure(from_estimates(noisy, full), 0.1),
        "good": error.measure(from_estimates(full, full), 0.1),
    }
    found = error.choose(errors, 0.1)
    assert found.name == "good"
    assert found.interval[1] < 1
    turned = error.choose({"none": errors["good"], "bad": errors["none"]}, 0.1)
    assert turned.name == "none"
    assert "k̂" in error.choose(errors, 0.6).reason
    assert "k̂" in error.choose(errors, math.nan).reason
    few = {name: error.measure(from_estimates(full[:5], full[:5]), 0.1) for name in errors}
    assert "5 prompts" in error.choose(few, 0.1).reason
    lost = error.measure(from_estimates(-full, full), 0.1)
    assert "differ from 0" in error.choose({"none": lost}, 0.1).reason


@pytest.mark.slow
def test_choices_are_seldom_worse_than_none() -> None:
    """Of 60 batches of 64 × 8, none chosen needs over 1.1 × the rollouts of no correction in more than 5 %."""
    world, names = World(prompts=6, apart=0.4), tuple(one.name for one in ALL if not one.of_advantage)
    due = {name: truth(world, BY_NAME[name], 8, 64).need for name in names}
    rng = np.random.default_rng(9)
    worse = answers = 0
    for _ in range(60):
        found, k = batch(world, rng, 64, 8, names)
        choice = error.choose(found, k)
        answers += bool(choice.name)
        worse += bool(choice.name) and due[choice.name] > error.WORTH * due[NONE.name]
    assert answers >= 15
    assert worse <= 3


def test_none_is_not_recommended_where_another_may_be_much_better() -> None:
    """Few prompts, and a correction that looks worse by chance alone: nothing is said."""
    rng = np.random.default_rng(11)
    full = rng.normal(size=(12, 10)) + 0.5
    noisy = full + 2 * rng.normal(size=full.shape)
    errors = {
        "none": error.measure(from_estimates(noisy, full), 0.1),
        "other": error.measure(from_estimates(full + 2 * rng.normal(size=full.shape), full), 0.1),
    }
    assert not error.choose(errors, 0.1).name
    assert "less than their errors" in error.choose(errors, 0.1).reason
