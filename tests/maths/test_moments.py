"""Moments: equal to loops over quadruples, unbiased by enumeration of every probe, honest where they cannot know."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from grposcope.core.errors import UserError
from grposcope.instruments.gradient.probe import _centered_second_moment, _covariance, _squared_gradient
from grposcope.maths import moments
from reference import ustat_loops
from reference.ustat_policies import SmallPolicy

exact = partial(pytest.approx, rel=1e-10, abs=1e-12)
NAMES = ("g2", "zeta1", "zeta2", "sigma1", "delta", "prompt_variance", "mean2")


def probe(seed: int, prompts: int, group: int, dimensions: int = 6, binary: bool = False) -> tuple[NDArray, NDArray]:
    """Scores (P, G, D) whose rewards (P, G) depend on them."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(prompts, group, dimensions)) + rng.normal(size=dimensions)
    rewards = scores[..., 0] + scores[..., 1] ** 2 + rng.normal(size=(prompts, group))
    return scores, (rewards > 1).astype(float) if binary else rewards


def gram_of(scores: NDArray) -> NDArray:
    flat = scores.reshape(-1, scores.shape[-1])
    return flat @ flat.T


def test_equal_to_loops_over_pairs_triples_and_quadruples() -> None:
    scores, rewards = probe(0, 3, 6)
    found = moments.from_gram(gram_of(scores), rewards).per_prompt
    for p in range(3):
        assert found.both[p] == exact(ustat_loops.both(scores[p], rewards[p]))
        assert found.one[p] == exact(ustat_loops.one(scores[p], rewards[p]))
        assert found.none[p] == exact(ustat_loops.none(scores[p], rewards[p]))
        gram = scores[p] @ scores[p].T
        assert (found.both[p], found.one[p], found.none[p]) == exact(ustat_loops.from_gram(gram, rewards[p]))


def test_pooled_moments_are_averages_and_cross_prompt_pairs() -> None:
    scores, rewards = probe(1, 5, 5)
    found = moments.from_gram(gram_of(scores), rewards)
    gradients = [
        np.mean([ustat_loops.kernel(s, r, i, j) for i in range(5) for j in range(5) if i != j], axis=0)
        for s, r in zip(scores, rewards, strict=True)
    ]
    mean2 = np.mean([a @ b for i, a in enumerate(gradients) for j, b in enumerate(gradients) if i != j])
    assert found.mean2.value == exact(mean2)
    assert found.g2.value == exact(found.per_prompt.none.mean())
    assert found.prompt_variance.value == exact(found.g2.value - mean2)
    assert found.sigma1.value == exact(4 * found.zeta1.value)
    assert found.delta.value == exact(2 * (found.zeta2.value - 2 * found.zeta1.value))


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("group", "answers"), [(4, 3), (5, 2), (6, 2)])
def test_unbiased_by_enumeration_of_every_probe(group: int, answers: int, binary: bool) -> None:
    """The expectation over all probes of two prompts is the definition's value: no sampling."""
    policy = SmallPolicy.random(3, 2, answers, binary=binary)
    truth = policy.moments()
    total = dict.fromkeys(truth, 0.0)
    for (chance_a, x, a), (chance_b, y, b) in itertools.product(policy.groups(group), repeat=2):
        if (x, a) > (y, b):
            continue  # the other order of the same two prompts, counted twice instead
        chance = chance_a * chance_b * (1 if (x, a) == (y, b) else 2)
        scores = np.stack([policy.scores[x, list(a)], policy.scores[y, list(b)]])
        rewards = np.stack([policy.rewards[x, list(a)], policy.rewards[y, list(b)]])
        found = moments.from_gram(gram_of(scores), rewards, replicates=0)
        for name in total:
            value = getattr(found, name).value if name in NAMES else float(getattr(found.pooled, name)[0])
            total[name] += chance * value
    for name, value in truth.items():
        if name != "tilt2":  # a ratio: jackknifed, not unbiased
            assert total[name] == pytest.approx(value, abs=1e-10), name


def test_the_jackknife_removes_the_leading_bias_of_the_best_baseline() -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(1, 3, 3))
    policy = SmallPolicy(np.full((1, 3), 1 / 3), features - features.mean(1, keepdims=True), rng.normal(size=(1, 3)))
    truth = policy.moments()["tilt2"]
    off, plain = [], []
    for group in (8, 16):
        total = naive = 0.0
        for chance, x, chosen in policy.groups(group):
            scores, rewards = policy.scores[x, list(chosen)][None], policy.rewards[x, list(chosen)][None]
            found = moments.from_gram(gram_of(scores), rewards, replicates=0).pooled
            total += chance * float(found.tilt2[0])
            naive += chance * float(found.tilt[0] ** 2 / found.norm[0])
        off.append(abs(total - truth))
        plain.append(abs(naive - truth))
    assert off[1] < plain[1] / 3
    assert math.log2(off[0] / off[1]) > 1.8  # the order of what is left: 2, of the plug-in: 1
    assert 0.8 < math.log2(plain[0] / plain[1]) < 1.6


def test_shifting_rewards_or_scores_of_a_prompt_changes_no_moment() -> None:
    scores, rewards = probe(2, 4, 6)
    before = moments.from_gram(gram_of(scores), rewards)
    rng = np.random.default_rng(0)
    after = moments.from_gram(gram_of(scores + rng.normal(size=(4, 1, 6))), rewards + rng.normal(size=(4, 1)))
    for name in NAMES:
        assert getattr(after, name).value == pytest.approx(getattr(before, name).value, rel=1e-9)


def test_moments_scale_with_rewards_and_scores() -> None:
    scores, rewards = probe(2, 4, 6)
    before = moments.from_gram(gram_of(scores), rewards)
    after = moments.from_gram(9 * gram_of(scores), 2 * rewards)
    for name in NAMES:
        assert getattr(after, name).value == exact(36 * getattr(before, name).value)
        assert getattr(after, name).se == exact(36 * getattr(before, name).se)


def test_order_of_prompts_and_rollouts_does_not_matter() -> None:
    scores, rewards = probe(4, 5, 6)
    rng = np.random.default_rng(0)
    prompts, rollouts = rng.permutation(5), rng.permutation(6)
    before = moments.from_gram(gram_of(scores), rewards)
    after = moments.from_gram(gram_of(scores[prompts][:, rollouts]), rewards[prompts][:, rollouts])
    for name in NAMES:
        assert getattr(after, name).value == exact(getattr(before, name).value)
        assert getattr(after, name).se == exact(getattr(before, name).se)


def test_unequal_groups_equal_the_groups_alone() -> None:
    """NaN rewards delete rollouts: each prompt's statistics are those of its smaller group."""
    scores, rewards = probe(6, 3, 8, binary=True)
    kept = [8, 5, 6]
    ragged = np.where(np.arange(8) < np.array(kept)[:, None], rewards, np.nan)
    gram = gram_of(np.where(np.isnan(ragged)[..., None], 0.0, scores))
    gram[np.isnan(ragged).reshape(-1)] = np.nan  # what stands there is not read
    found = moments.from_gram(gram, ragged)
    for p, n in enumerate(kept):
        alone = moments.from_gram(gram_of(scores[p : p + 1, :n]), rewards[p : p + 1, :n]).per_prompt
        for name in ("both", "one", "none", "norm", "raw", "tilt", "tilt2", "score2", "reward_variance"):
            assert getattr(found.per_prompt, name)[p] == exact(getattr(alone, name)[0]), name
    assert found.classes is not None
    assert found.classes.sizes.tolist() == kept


def test_prompts_with_too_few_rollouts_are_left_out_and_counted() -> None:
    scores, rewards = probe(6, 3, 6)
    ragged = rewards.copy()
    ragged[1, 3:] = np.nan
    gram = gram_of(np.where(np.isnan(ragged)[..., None], 0.0, scores))
    found, without = moments.from_gram(gram, ragged), moments.from_gram(gram_of(scores[[0, 2]]), rewards[[0, 2]])
    for name in NAMES:
        assert getattr(found, name).value == exact(getattr(without, name).value)
    assert "1 of 3 prompts left out" in found.sigma1.flag
    assert found.prompts == 2


def test_prompts_apart_give_all_but_what_lies_across() -> None:
    scores, rewards = probe(7, 4, 5)
    blocks = np.einsum("pid,pjd->pij", scores, scores)
    found, full = moments.from_gram(blocks, rewards), moments.from_gram(gram_of(scores), rewards)
    for name in ("g2", "zeta1", "zeta2", "sigma1", "delta"):
        assert getattr(found, name).value == exact(getattr(full, name).value)
        assert getattr(found, name).se == exact(getattr(full, name).se)
    assert math.isnan(found.prompt_variance.value)
    assert "across prompts" in found.prompt_variance.flag


@pytest.mark.parametrize(("group", "known"), [(2, {"both"}), (3, {"both", "one"}), (4, {"both", "one", "none"})])
def test_small_groups_keep_what_they_can_know(group: int, known: set[str]) -> None:
    scores, rewards = probe(8, 6, group)
    found = moments.from_gram(gram_of(scores), rewards)
    for name in ("both", "one", "none"):
        assert math.isnan(getattr(found.pooled, name)[0]) == (name not in known)
    assert math.isfinite(found.mean2.value)
    assert ("needs 4 rollouts" in found.g2.flag) == (group < 4)
    assert math.isnan(found.sigma1.value) == (group < 4)


def test_one_prompt_knows_nothing_of_others() -> None:
    scores, rewards = probe(9, 1, 6)
    found = moments.from_gram(gram_of(scores), rewards)
    assert math.isnan(found.prompt_variance.value)
    assert "one prompt" in found.prompt_variance.flag
    assert math.isfinite(found.sigma1.value)
    assert math.isnan(found.sigma1.se)


def test_dead_groups_count_as_zeros() -> None:
    scores, rewards = probe(10, 4, 6)
    rewards[2] = 0.7
    assert rewards[2].mean() != 0.7  # so that centring by itself would leave something
    found = moments.from_gram(gram_of(scores), rewards).per_prompt
    assert [found.both[2], found.one[2], found.none[2]] == [0.0, 0.0, 0.0]
    rewards[:] = 0.7
    dead = moments.from_gram(gram_of(scores), rewards)
    assert dead.sigma1.value == 0
    assert "all rewards equal" in dead.sigma1.flag


def test_a_negative_variance_is_shown_and_flagged() -> None:
    rng = np.random.default_rng(11)
    seen = []
    for _ in range(20):  # scores that have nothing to do with rewards: g = 0, so its square is estimated around 0
        scores, rewards = rng.normal(size=(8, 4, 50)), rng.normal(size=(8, 4))
        found = moments.from_gram(gram_of(scores), rewards).g2
        assert ("negative" in found.flag) == (found.value < 0)
        seen.append(found.value)
    assert min(seen) < 0 < max(seen)


def test_layers_add_up_to_the_whole() -> None:
    scores, rewards = probe(12, 5, 6)
    layers = np.stack([gram_of(scores[..., :2]), gram_of(scores[..., 2:])])
    parts = moments.per_layer(layers, ["first", "second"], rewards)
    whole = moments.from_gram(gram_of(scores), rewards)
    for name in NAMES:
        total = sum(getattr(parts[layer], name).value for layer in ("first", "second"))
        assert total == exact(getattr(whole, name).value)


@pytest.mark.slow
def test_standard_errors_and_intervals_agree_with_repeated_probes() -> None:
    """Jackknife and bootstrap against the spread over 200 independent probes of the same policy."""
    policy = SmallPolicy.random(13, prompts=6, answers=4, dimensions=3)
    truth, rng = policy.moments(), np.random.default_rng(14)
    values, errors, covered = [], [], 0
    for seed in range(200):
        prompts = rng.integers(6, size=40)
        answers = np.stack([rng.choice(4, 6, p=policy.chances[x]) for x in prompts])
        scores, rewards = policy.scores[prompts[:, None], answers], policy.rewards[prompts[:, None], answers]
        found = moments.from_gram(gram_of(scores), rewards, replicates=200, seed=seed)
        values.append(found.sigma1.value)
        errors.append(found.sigma1.se)
        low, high = found.interval(lambda s: s.sigma1)
        covered += low <= truth["sigma1"] <= high
    assert np.mean(values) == pytest.approx(truth["sigma1"], abs=4 * np.std(values) / 14)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)
    assert 0.89 < covered / 200 < 0.99


# Bad input


def test_a_gram_that_is_not_symmetric_says_how_far() -> None:
    scores, rewards = probe(0, 2, 4)
    gram = gram_of(scores)
    gram[0, 1] += 0.01 * np.diagonal(gram).max()
    with pytest.raises(UserError, match=r"not symmetric.* 0\.01 of"):
        moments.from_gram(gram, rewards)


def test_a_gram_that_no_scores_have_says_its_least_eigenvalue() -> None:
    scores, rewards = probe(0, 2, 4)
    gram = gram_of(scores)
    gram -= 0.1 * np.trace(gram) * np.eye(8)
    least = np.linalg.eigvalsh(gram)[0]
    with pytest.raises(UserError, match=f"least eigenvalue is {least:.3g}"):
        moments.from_gram(gram, rewards)


@pytest.mark.parametrize("flat", [True, False])
def test_rounding_of_single_precision_passes(flat: bool) -> None:
    scores, rewards = probe(0, 16, 8, dimensions=20)  # rank 20 of 128: many eigenvalues are rounding
    single = scores.astype(np.float32)
    gram = gram_of(single) if flat else np.einsum("pid,pjd->pij", single, single)
    assert math.isfinite(moments.from_gram(gram, rewards).sigma1.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda k, r: (k, np.where(r == r[1, 2], np.nan, r)), "prompt 1, rollout 2 is NaN but its score"),
        (lambda k, r: (k, np.where(r == r[1, 2], np.inf, r)), "prompt 1, rollout 2 is infinite"),
        (lambda k, r: (np.where(k == k[3, 3], np.nan, k), r), "not finite in row 3"),
        (lambda k, r: (k[:-1, :-1], r), "has shape"),
        (lambda k, r: (k, r[0]), "rewards have shape"),
        (lambda k, r: (k * 0, r * np.nan), "no prompt has two rollouts"),
    ],
)
def test_bad_arrays_are_refused(change, message: str) -> None:  # type: ignore[no-untyped-def]
    scores, rewards = probe(0, 2, 4)
    with pytest.raises(UserError, match=message):
        moments.from_gram(*change(gram_of(scores), rewards))


ARMS = np.array([1.0, 0.0, 0.4])
CHANCES = np.exp([0.3, -0.8, 1.1]) / np.exp([0.3, -0.8, 1.1]).sum()
SCORES = np.eye(3) - CHANCES  # ∇ log softmax, a row per arm of a bandit


def draws(size: int) -> list[tuple[float, NDArray, NDArray]]:
    """Every outcome of `size` pulls of the bandit: probability, rewards, Gram matrix."""
    outcomes = []
    for arms in itertools.product(range(3), repeat=size):
        s = SCORES[list(arms)]
        outcomes.append((float(np.prod(CHANCES[list(arms)])), ARMS[list(arms)], s @ s.T))
    return outcomes


@pytest.mark.parametrize("size", [3, 4])
def test_estimates_for_scores_of_mean_zero_are_unbiased(size: int) -> None:
    norms, value, gradient = (SCORES**2).sum(1), CHANCES @ ARMS, (CHANCES * ARMS) @ SCORES
    outcomes = draws(size)
    second = sum(p * _centered_second_moment(r, np.diag(k)) for p, r, k in outcomes)
    square = sum(p * _squared_gradient(r, k) for p, r, k in outcomes)
    gap = sum(p * _covariance(r, np.diag(k)) for p, r, k in outcomes)
    assert second == pytest.approx(CHANCES @ ((ARMS - value) ** 2 * norms))
    assert square == pytest.approx(gradient @ gradient)
    assert gap == pytest.approx(CHANCES @ (ARMS * norms) - value * (CHANCES @ norms))


def test_the_covariance_of_one_prompt_is_that_of_all_prompts_at_once() -> None:
    scores, rewards = probe(11, 4, 6)
    found = moments.from_gram(gram_of(scores), rewards).per_prompt
    for p in range(4):
        assert _covariance(rewards[p], (scores[p] ** 2).sum(-1)) == exact(found.tilt[p])


def test_with_and_without_the_assumption_of_mean_zero_the_same_is_estimated() -> None:
    """‖g‖² and Σ₁ over every outcome of four pulls: `none` and 4 ζ₁ assume nothing of E s."""
    with_it = without_it = np.zeros(2)
    for p, rewards, gram in draws(4):
        found = moments._per_prompt(gram[None], rewards[None], np.ones((1, 4), bool))
        square = _squared_gradient(rewards, gram)
        sigma1 = _centered_second_moment(rewards, np.diag(gram)) - square
        with_it = with_it + p * np.array([square, sigma1])
        without_it = without_it + p * np.array([found.none[0], found.sigma1[0]])
    assert with_it == exact(without_it)


def test_probes_pooled_are_their_prompts_with_pairs_of_one_probe_only() -> None:
    """Moments within prompts are means over all prompts; ‖E g‖² is the mean over the pairs of each probe."""
    parts = [
        (gram_of(scores), rewards) for scores, rewards in (probe(1, 3, 5, binary=True), probe(2, 4, 5, binary=True))
    ]
    single, together = [moments.from_gram(*part) for part in parts], moments.from_grams(parts)
    prompts = np.array([3, 4])
    for name in ("g2", "sigma1", "delta"):
        assert getattr(together, name).value == exact(
            np.average([getattr(m, name).value for m in single], weights=prompts)
        )
    pairs = prompts * (prompts - 1)
    assert together.mean2.value == exact(np.average([m.mean2.value for m in single], weights=pairs))
    assert together.prompt_variance.value == exact(together.g2.value - together.mean2.value)
    assert together.classes is not None
    assert together.classes.directions is not None
    assert np.isnan(together.classes.directions[:3, 3:]).all()
    assert moments.from_grams(parts[:1]).mean2 == moments.from_gram(*parts[0]).mean2
    with pytest.raises(UserError, match="groups of different sizes"):
        moments.from_grams([parts[0], (gram_of(probe(3, 2, 4)[0]), probe(3, 2, 4)[1])])
