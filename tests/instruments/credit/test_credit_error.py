"""Errors of gradients under different credit, against a world in which all rollouts and groups are listed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from grposcope.core.errors import UserError
from grposcope.instruments.credit import error as credit_error
from grposcope.instruments.credit.answer import _prompts_to_tell
from grposcope.instruments.credit.error import GradientSource, Ranged, SourceError, _Products
from grposcope.instruments.credit.sources import _plain
from grposcope.maths import resampling
from reference.credit_world import World

GROUP, EACH, REFERENCE = 3, 4, 30
BASE = ("outcome", "first", "second", "third", "fourth", "late", "twice", "reference")


def base_vectors(world: World, prompts: int, rng: np.random.Generator) -> NDArray:
    """One draw of every base vector, (V, P, D)."""
    kinds, rows = world.drawn(prompts, GROUP, rng)
    halves = [world.sampled(kinds, EACH, rng) for _ in range(2)]
    given = [
        world.outcome(halves[0], rows),
        *(world.steps(values, rows) for values in halves),
        *(world.continued(values, rows) for values in halves),
        world.late(halves[0], rows),
        world.twice(halves[0], rows),
    ]
    few = np.stack([rng.choice(len(world.rollouts.reward), REFERENCE, p=world.chances[x]) for x in kinds])
    vectors = [world.of_groups(kinds, rows, credit) for credit in given]
    return np.stack([*vectors, world.of_groups(kinds, few, world.outcome(halves[0], few))])


def sources(prompts: int) -> tuple[GradientSource, ...]:
    one, count = np.ones(prompts), len(BASE)
    unit = np.eye(count)
    return (
        _plain("outcome", unit[0], one, True),
        credit_error.crossed("exact", (1, 2), count, one),
        *(credit_error.continued(f"K = {k}", (3, 4), count, EACH, k, one * (1 + k)) for k in (1, 4, 16)),
        _plain("late", unit[5], one, False),
        _plain("twice", unit[6], one, False),
    )


def measured(world: World, prompts: int, rng: np.random.Generator, replicates: int = 40) -> tuple[SourceError, ...]:
    vectors = base_vectors(world, prompts, rng)
    gram = np.einsum("apd,bqd->apbq", vectors, vectors)
    return credit_error.measure(gram, sources(prompts), BASE.index("reference"), replicates).sources


def truth(world: World, prompts: int) -> dict[str, tuple[float, float, float]]:
    """Name -> (error, scale, bias ÷ the root error of outcome credit) by enumeration."""
    found: dict[str, tuple[float, float, float]] = {}
    credits = {"outcome": world.outcome, "exact": world.steps, "late": world.late, "twice": world.twice}
    for name, credit in credits.items():
        means, second = world.exact(credit, GROUP)
        mean = means.mean(0)
        scale = float((means * world.gradients).sum() / (world.gradients**2).sum())
        bias = float(((mean / scale - world.gradient) ** 2).sum())
        error = (second - float(mean @ mean)) / (scale**2 * prompts) + bias
        found[name] = error, scale, math.sqrt(bias / found["outcome"][0]) if found else 0.0
    means, second = world.exact(world.continued, GROUP)
    mean = means.mean(0)
    for k in (1, 4, 16):
        error = second + world.noise(world.continued, GROUP) / k - float(mean @ mean)
        found[f"K = {k}"] = error / prompts, 1.0, 0.0
    return found


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def test_the_world_is_consistent(world: World) -> None:
    """Probabilities sum to 1, scores to 0 on average, and outcome credit with exact values is unbiased."""
    assert world.chances.sum(-1) == pytest.approx(1)
    assert np.einsum("xn,xntd->xd", world.chances, world.scores) == pytest.approx(0)
    for credit in (world.outcome, world.steps, world.continued):
        assert world.exact(credit, GROUP)[0] == pytest.approx(world.gradients)


def test_a_group_of_outcome_credit_has_the_error_of_the_u_statistic(world: World) -> None:
    """Σ₁/G + Δ/(G(G−1)) + V_p, theory of the leave-one-out gradient."""
    s = world.scores.sum(2)
    r, chance = world.rollouts.reward, world.chances
    value = chance @ r
    fisher = np.einsum("xn,xnd,xnd->x", chance, s, s)
    own = (world.gradients**2).sum(-1)
    sigma1 = np.einsum("xn,xn,xnd,xnd->x", chance, (r - value[:, None]) ** 2, s, s) - own
    delta = value * (1 - value) * fisher + own
    between = own.mean() - float(world.gradient @ world.gradient)
    expected = between + (sigma1 / GROUP + delta / (GROUP * (GROUP - 1))).mean()
    assert truth(world, 1)["outcome"][0] == pytest.approx(expected)


def test_estimates_meet_the_listed_errors(world: World) -> None:
    """With 6,000 prompts every error, scale and bias is within a few per cent of the one by enumeration."""
    vectors = base_vectors(world, 6000, np.random.default_rng(1))
    total, same = vectors.sum(1), np.einsum("apd,bpd->ab", vectors, vectors)
    within, n = same / 6000, 6000
    across = (total @ total.T - same) / (n * (n - 1))
    products = _Products(within[None], across[None], np.ones((1, n)))
    target = np.eye(len(BASE))[-1]
    expected = truth(world, 40)
    for source in sources(n):
        errors, scales, biases, _ = credit_error._of_source(source, sources(n)[0], target, products, 40)
        error, scale, bias = expected[source.name]
        assert errors[0] == pytest.approx(error, rel=0.05), source.name
        assert scales[0] == pytest.approx(scale, rel=0.05), source.name
        assert math.sqrt(max(biases[0] / expected["outcome"][0], 0)) == pytest.approx(bias, abs=0.06), source.name


@pytest.mark.slow
def test_the_share_of_the_error_that_prompts_make(world: World) -> None:
    """tr Var g(x) over the error of one group of outcome credit, averaged over draws of 200 prompts."""
    rng, found = np.random.default_rng(8), []
    for _ in range(30):
        vectors = base_vectors(world, 200, rng)
        gram = np.einsum("apd,bqd->apbq", vectors, vectors)
        found.append(credit_error.measure(gram, sources(200)[:1], len(BASE) - 1, 20).floor.value)
    own = (world.gradients**2).sum(-1).mean() - float(world.gradient @ world.gradient)
    assert np.mean(found) == pytest.approx(own / truth(world, 1)["outcome"][0], abs=4 * np.std(found) / 30**0.5)
    assert np.std(found) / 30**0.5 < 0.02


@pytest.mark.slow
def test_noise_of_the_values_is_not_in_the_error_of_exact_credit(world: World) -> None:
    """Unbiased over draws of 12 prompts with four continuations in each half, which the plain square is not."""
    rng = np.random.default_rng(2)
    expected = truth(world, 1)["exact"][0]
    draws = []
    for _ in range(400):
        vectors = base_vectors(world, 12, rng)
        gram = np.einsum("apd,bqd->apbq", vectors, vectors)
        products = _Products.of(gram, resampling.point(12))
        plain = _plain("", np.eye(len(BASE))[1], np.ones(12), True)
        draws.append([products.variance(one)[0] for one in (sources(12)[1], plain)])
    mean, error = np.mean(draws, 0), np.std(draws, 0) / 20
    assert abs(mean[0] - expected) < 3 * error[0]
    assert mean[1] > expected + 10 * error[1]


def test_all_continuations_have_the_error_of_the_mean_of_both_halves(world: World) -> None:
    """With K as many as were drawn, the price is that of the plain gradient, to rounding."""
    vectors = base_vectors(world, 12, np.random.default_rng(7))
    products = _Products.of(np.einsum("apd,bqd->apbq", vectors, vectors), resampling.bootstrap(12, 5, 0))
    count, one = len(BASE), np.ones(12)
    mean = (np.eye(count)[3] + np.eye(count)[4]) / 2
    drawn = credit_error.continued("", (3, 4), count, EACH, 2 * EACH, one)
    assert products.variance(drawn) == pytest.approx(products.variance(_plain("", mean, one, True)))


def test_pair_products_of_resamples_are_those_of_loops() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(3, 5, 4))
    gram = np.einsum("apd,bqd->apbq", vectors, vectors)
    weights = resampling.bootstrap(5, 7, 0)
    found = _Products.of(gram, weights)
    for k, w in enumerate(weights):
        for a in range(3):
            for b in range(3):
                assert found.across[k, a, b] == pytest.approx(resampling.pair_mean(gram[a, :, b], w[None])[0])
                assert found.within[k, a, b] == pytest.approx(resampling.mean(np.diag(gram[a, :, b]), w[None])[0])


def test_intervals_and_sentence_inputs(world: World) -> None:
    found = {one.name: one for one in measured(world, 60, np.random.default_rng(4), 400)}
    assert found["outcome"].mse.value == found["outcome"].saving.value == 1
    assert found["outcome"].mse.low == found["outcome"].mse.high == 1
    exact = found["exact"].mse
    assert exact.low < exact.value < exact.high < 1
    assert found["K = 4"].tokens.value == pytest.approx(5)
    assert found["K = 4"].saving.value == pytest.approx(1 / (5 * found["K = 4"].mse.value))
    twice = found["twice"]
    assert (twice.scale.low, twice.scale.value, twice.scale.high) == pytest.approx((2.5, 2.5, 2.5))
    assert (twice.mse.value, twice.bias.value) == pytest.approx((1, 0), abs=1e-6)
    assert [one.name for one in credit_error.pays([found["exact"], found["K = 16"]])] == ["exact"]
    assert _prompts_to_tell(1.0, 0.1, 40) == math.inf
    assert _prompts_to_tell(2.0, 0.1, 40) < _prompts_to_tell(1.1, 0.1, 40)


def test_a_source_whose_gradient_is_noise_has_no_error(world: World) -> None:
    """Its scale is not known; nothing is said rather than a huge number."""
    rng = np.random.default_rng(5)
    vectors = base_vectors(world, 30, rng)
    vectors[5] = rng.normal(size=vectors[5].shape)
    gram = np.einsum("apd,bqd->apbq", vectors, vectors)
    noise = credit_error.measure(gram, sources(30), len(BASE) - 1, 200).sources[5]
    assert math.isnan(noise.mse.value)
    assert "does not differ from 0" in noise.mse.flag


def test_bad_input() -> None:
    with pytest.raises(UserError, match="too few"):
        credit_error.measure(np.ones((1, 2, 1, 2)), (), 0)
    with pytest.raises(UserError, match="use 1 or more"):
        credit_error.continued("", (0, 1), 2, 4, 0, np.ones(3))


@pytest.mark.slow
@pytest.mark.parametrize("prompts", [20, 40])
def test_intervals_cover(world: World, prompts: int) -> None:
    """Of 300 draws, intervals of the error of exact and of purchased credit hold the true one in at least 90 %."""
    rng = np.random.default_rng(6)
    expected = truth(world, prompts)
    inside, known = dict.fromkeys(expected, 0), dict.fromkeys(expected, 0)
    for _ in range(300):
        for one in measured(world, prompts, rng, 400):
            known[one.name] += math.isfinite(one.mse.value)
            inside[one.name] += one.mse.low <= expected[one.name][0] / expected["outcome"][0] <= one.mse.high
    assert all(inside[name] >= 0.9 * known[name] > 260 for name in ("exact", "K = 1", "K = 4", "K = 16", "late")), (
        inside
    )


def test_equal_prompts_count_in_full_and_one_large_one_counts_alone() -> None:
    """(Σ q)²/Σ q² of the squared gradients; nothing where all gradients are 0."""
    source = _plain("", np.ones(1), np.ones(4), True)
    for sizes, expected in (((1, 1, 1, 1), 4), ((5, 0, 0, 0), 1), ((1, 1, 0, 0), 2), ((0, 0, 0, 0), 0)):
        vectors = np.diag(np.array(sizes, float))[None]
        assert credit_error._effective(np.einsum("apd,bqd->apbq", vectors, vectors), source) == pytest.approx(expected)


def heavy_draw(large: int, prompts: int = 20) -> tuple[NDArray, NDArray]:
    """Two base vectors (2, P, D), one prompt of the one numbered `large` far larger than the others; tokens (2, P)."""
    rng = np.random.default_rng(9)
    size = np.exp(rng.normal(size=(2, prompts, 1)) * 0.3)
    size[large, 3] *= 3
    return size * rng.normal(size=(2, prompts, 3)) + 0.5, rng.uniform(1, 5, size=(2, prompts))


def saving_of(vectors: NDArray, tokens: NDArray) -> tuple[float, float, float]:
    """Tokens, error and saving of the second of two unbiased sources beside the first, by loops over prompts."""
    count = vectors.shape[1]
    error = []
    for own in vectors:
        pairs = [own[p] @ own[q] for p in range(count) for q in range(count) if p != q]
        error.append(np.mean([v @ v for v in own]) - np.mean(pairs))
    paid = tokens[1].sum() / tokens[0].sum()
    return paid, error[1] / error[0], 1 / (paid * error[1] / error[0])


@pytest.mark.parametrize("large", [0, 1])
def test_intervals_are_those_of_their_definition(large: int) -> None:
    """Student's t of the logarithm, with the jackknife's error and the smaller number of equal prompts, less one.

    Which source has the large prompt does not matter; tokens, which are no gradients, have all prompts.
    """
    vectors, tokens = heavy_draw(large)
    count = vectors.shape[1]
    given = [_plain(str(i), np.eye(2)[i], tokens[i], True) for i in range(2)]
    found = credit_error.measure(np.einsum("apd,bqd->apbq", vectors, vectors), given, 0, 50)
    values = saving_of(vectors, tokens)
    left = np.array([saving_of(np.delete(vectors, i, 1), np.delete(tokens, i, 1)) for i in range(count)])
    logs = np.log(left)
    errors = np.sqrt((count - 1) / count * ((logs - logs.mean(0)) ** 2).sum(0))
    squares = (vectors**2).sum(-1)
    equal = squares.sum(-1) ** 2 / (squares**2).sum(-1)
    assert equal.argmin() == large
    assert 2 < equal.min() < 0.8 * equal.max()
    one = found.sources[1]
    for ranged, value, error, freedom in zip(
        (one.tokens, one.mse, one.saving), values, errors, (count - 1, equal.min() - 1, equal.min() - 1), strict=True
    ):
        reach = np.exp(stats.t.ppf(0.975, freedom) * error)
        assert (ranged.value, ranged.low, ranged.high) == pytest.approx((value, value / reach, value * reach))
    assert one.log_error == pytest.approx(errors[2])
    assert one.effective == pytest.approx(equal.min())
    assert found.effective == pytest.approx(equal[0])


def test_where_a_prompt_decides_the_sign_the_relative_error_is_taken() -> None:
    """A value that is not positive without one of the prompts has no logarithm."""
    left = np.array([2.0, 2.5, 3.0, -0.5])
    found, error = credit_error._of_logs(np.array([2.0, 9.0, 9.0, *left]), 4, 3.5)
    assert error == pytest.approx(math.sqrt(3 / 4 * ((left - left.mean()) ** 2).sum()) / 2)
    reach = math.exp(stats.t.ppf(0.975, 2.5) * error)
    assert (found.value, found.low, found.high) == pytest.approx((2, 2 / reach, 2 * reach))


def test_squares_below_0_count_as_none() -> None:
    """The product of two halves may be negative for a prompt: 3, −1 and 3 count as 3 and 3."""
    halves = np.array([[[1.0], [1.0], [1.0]], [[3.0], [-1.0], [3.0]]])
    gram = np.einsum("apd,bqd->apbq", halves, halves)
    assert credit_error._effective(gram, credit_error.crossed("", (0, 1), 2, np.ones(3))) == pytest.approx(2)


def test_a_source_pays_by_students_t_and_bonferroni() -> None:
    """One-sided at 0.05 over the number of sources that are known, with the degrees of freedom of each."""

    def source(name: str, saving: float, effective: float = 11.0, error: float = 0.1) -> SourceError:
        one = Ranged(1.0, 1.0, 1.0)
        return SourceError(name, one, one, Ranged(saving), one, one, True, error, effective)

    bound = stats.t.ppf(1 - 0.05 / 3, 10) * 0.1
    few = stats.t.ppf(1 - 0.05 / 3, 3) * 0.1
    given = [source("above", math.exp(bound + 1e-6)), source("below", math.exp(bound - 1e-6))]
    assert [one.name for one in credit_error.pays([*given, source("few", math.exp(few - 1e-6), 4.0)])] == ["above"]
    known = [source("unknown", math.nan), source("fixed", 3.0, error=0.0), source("few", math.exp(few + 1e-6), 4.0)]
    assert [one.name for one in credit_error.pays([*given, *known])] == ["above", "few"]


def test_prompts_that_tell_a_saving_from_1() -> None:
    """A normal estimate whose error falls as 1/√P is two-sidedly significant at 5 % four times in five."""
    needed = _prompts_to_tell(1.3, 0.2, 40)
    distance = math.log(1.3) / (0.2 * math.sqrt(40 / needed))
    assert stats.norm.cdf(distance - stats.norm.ppf(0.975)) == pytest.approx(0.8, abs=0.002)
    assert _prompts_to_tell(1 / 1.3, 0.2, 40) == pytest.approx(needed)


class Heavy:
    """Gradients whose size differs between prompts by the exponential of `spread` times a normal deviate.

    Exact credit keeps the mean and a part of the noise; how large the other part is differs between prompts as well.
    """

    entries = 6

    def __init__(self, spread: float):
        self.spread = spread
        size, mean, part = math.exp(2 * spread**2), 0.3**2, 0.7**2 * self.entries
        square = 0.3**2 * math.exp(spread**2)
        outcome = size * (mean + part + 0.25 * math.exp(0.5) * self.entries) - square
        self.truth = (size * (mean + part) - square) / outcome

    def measured(self, prompts: int, rng: np.random.Generator) -> SourceError:
        """Exact credit beside outcome credit, from a sample of prompts."""
        noise = rng.normal(size=(5, prompts, self.entries))
        size, own = np.exp(rng.normal(size=(2, prompts, 1)) * [[[self.spread]], [[0.5]]])
        exact = 0.3 * np.eye(self.entries)[0] + 0.7 * noise[0]
        vectors = size * np.stack([
            exact + 0.5 * own * noise[1], exact + 0.4 * noise[2], exact + 0.4 * noise[3],
            0.3 * np.eye(self.entries)[0] + 0.2 * noise[4],
        ])  # fmt: skip
        given = (
            _plain("outcome", np.eye(4)[0], np.ones(prompts), True),
            credit_error.crossed("exact", (1, 2), 4, np.ones(prompts)),
        )
        return credit_error.measure(np.einsum("apd,bqd->apbq", vectors, vectors), given, 3, 50).sources[1]


def test_the_heavy_world_is_what_it_says() -> None:
    """Its error ratio, averaged over draws of prompts as large as memory allows."""
    heavy, rng = Heavy(0.3), np.random.default_rng(0)
    found = [heavy.measured(300, rng).mse.value for _ in range(10)]
    assert np.mean(found) == pytest.approx(heavy.truth, abs=4 * np.std(found) / 9**0.5)
    assert np.std(found) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.8, 1.2])
@pytest.mark.parametrize("prompts", [40, 80])
def test_intervals_cover_where_a_few_prompts_make_the_error(spread: float, prompts: int) -> None:
    """In at least 88 % of 400 samples of which 3 to 12 prompts count; with P − 1 degrees of freedom in 80 to 87 %."""
    heavy, rng = Heavy(spread), np.random.default_rng(1)
    found = [heavy.measured(prompts, rng) for _ in range(400)]
    assert np.median([one.effective for one in found]) < prompts / 3
    known = [one.mse for one in found if math.isfinite(one.mse.value)]
    assert len(known) > 360
    assert np.mean([one.low <= heavy.truth <= one.high for one in known]) >= 0.88
