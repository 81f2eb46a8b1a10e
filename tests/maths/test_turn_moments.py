"""The turn Gram matrix against the enumeration of a toy, and its intervals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from test_turn_rules import rollouts

from grposcope.core.errors import UserError
from grposcope.instruments.gradient.turns import _of_group, _savings_of_turns
from grposcope.maths import turn_rules

ROLLOUTS = rollouts()
CHANCES = np.array([p for p, *_ in ROLLOUTS])
SCORES = np.array([s for *_, s in ROLLOUTS])
"""(R, H, D): of every rollout of the toy."""

WHOLE = np.array([np.full(3, np.nansum(r)) for _, r, _ in ROLLOUTS])
TO_GO = np.array([turn_rules.returns(r[None])[0] for _, r, _ in ROLLOUTS])
CREDITS = {"whole": WHOLE, "to-go": TO_GO, "turn": np.array([np.nan_to_num(r) for _, r, _ in ROLLOUTS])}


def truth(credit: np.ndarray) -> tuple[float, float, float]:
    """‖g‖², Σ₁ and Δ of a credit by their definitions."""
    mean = CHANCES @ credit
    oracle = np.einsum("rh,rhd->rd", credit - mean, SCORES)
    g = CHANCES @ oracle
    sigma1 = float(CHANCES @ (oracle**2).sum(1) - g @ g)
    spread = CHANCES @ (credit - mean) ** 2
    fisher = CHANCES @ (SCORES**2).sum(2)
    m = np.einsum("r,rh,rkd->hkd", CHANCES, credit, SCORES)
    delta = float((spread * fisher).sum() + np.einsum("hkd,khd->", m, m))
    return float(g @ g), sigma1, delta


def estimator(members: tuple[int, ...], credit: np.ndarray) -> np.ndarray:
    """The leave-one-out gradient of a group."""
    w, s = credit[list(members)], SCORES[list(members)]
    n = len(members)
    return np.asarray(np.einsum("ih,ihd->d", (w - w.mean(0)) / (n - 1), s))


@pytest.mark.parametrize("name", CREDITS)
@pytest.mark.parametrize("group", [2, 3])
def test_the_error_of_the_estimator_is_that_of_the_moments(name: str, group: int) -> None:
    """MSE = Σ₁/G + Δ/(G(G − 1)) over all groups, with Δ as the sum over turns."""
    g2, sigma1, delta = truth(CREDITS[name])
    groups = list(itertools.product(range(len(ROLLOUTS)), repeat=group))
    chances = [math.prod(CHANCES[i] for i in members) for members in groups]
    drawn = np.array([estimator(members, CREDITS[name]) for members in groups])
    mean = np.array(chances) @ drawn
    assert mean @ mean == pytest.approx(g2, abs=1e-9)
    error = float(np.array(chances) @ ((drawn - mean) ** 2).sum(1))
    assert error == pytest.approx(sigma1 / group + delta / (group * (group - 1)), abs=1e-9)


@pytest.mark.parametrize("name", CREDITS)
def test_moments_of_groups_of_four_are_unbiased(name: str) -> None:
    """The mean over all 4,096 groups of four."""
    total = np.zeros((3, 3))
    for members in itertools.product(range(len(ROLLOUTS)), repeat=4):
        s = SCORES[list(members)]
        gram = np.einsum("ihd,jkd->ihjk", s, s)
        total += math.prod(CHANCES[i] for i in members) * _of_group(gram, CREDITS[name][list(members)])
    both, one, none = total.sum(1)
    g2, sigma1, delta = truth(CREDITS[name])
    assert none == pytest.approx(g2, abs=1e-9)
    assert 4 * (one - none) == pytest.approx(sigma1, abs=1e-9)
    assert 2 * (both - 2 * one + none) == pytest.approx(delta, abs=1e-9)


def test_moments_are_means_over_pairs_of_pairs() -> None:
    """By brute force over all pairs that share two, one and no rollouts, in a group of six."""
    rng = np.random.default_rng(0)
    n, turns = 6, 3
    s, w = rng.normal(size=(n, turns, 5)), rng.normal(size=(n, turns))
    s[2, 2], s[4, 1:] = 0.0, 0.0
    sums, counts = np.zeros(3), np.zeros(3)
    pairs = list(itertools.combinations(range(n), 2))

    def kernel(pair: tuple[int, int]) -> np.ndarray:
        i, j = pair
        return np.asarray(0.5 * ((w[i] - w[j])[:, None] * (s[i] - s[j])).sum(0))

    for one, other in itertools.product(pairs, repeat=2):
        shared = len({*one} & {*other})
        sums[2 - shared] += kernel(one) @ kernel(other)
        counts[2 - shared] += 1
    found = _of_group(np.einsum("ihd,jkd->ihjk", s, s), w)
    np.testing.assert_allclose(found.sum(1), sums / counts, rtol=1e-9)


def test_one_turn_is_a_rollout() -> None:
    """With one turn the moments are those of `moments`."""
    from grposcope.maths import moments

    rng = np.random.default_rng(1)
    s, r = rng.normal(size=(6, 4)), rng.normal(size=6)
    gram = s @ s.T
    plain = moments.from_gram(gram, r[None]).per_prompt
    found = _of_group(gram[:, None, :, None], r[:, None])
    np.testing.assert_allclose(found[:, 0], [plain.both[0], plain.one[0], plain.none[0]], rtol=1e-9)


def groups(rng: np.random.Generator, count: int, size: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Groups drawn from the toy: Grams (P, n, H, n, H) and credits (P, n, H)."""
    drawn = rng.choice(len(ROLLOUTS), (count, size), p=CHANCES)
    s = SCORES[drawn]
    return np.einsum("pihd,pjkd->pihjk", s, s), {name: CREDITS[name][drawn] for name in ("whole", "to-go")}


def wanted(group: int) -> float:
    """The noise of to-go over that of a reward for the whole rollout."""
    noise = [sigma1 / group + delta / (group * (group - 1)) for _, sigma1, delta in map(truth, (TO_GO, WHOLE))]
    return noise[0] / noise[1]


def test_savings_have_their_parts() -> None:
    grams, credits = groups(np.random.default_rng(3), 40, 8)
    found = _savings_of_turns(grams, credits)
    assert found.group == 8
    assert found.ratio["whole"].value == 1.0
    assert sum(share.value for share in found.share) == pytest.approx(1, abs=1e-9)
    low, high = found.interval["to-go"]
    assert low < wanted(8) < high
    assert abs(found.ratio["to-go"].value - wanted(8)) < 4 * found.ratio["to-go"].se


def test_groups_of_three_do_not_show_it() -> None:
    grams, credits = groups(np.random.default_rng(3), 4, 3)
    with pytest.raises(UserError, match="groups of 3 rollouts do not show the noise of a credit; take 4 or more"):
        _savings_of_turns(grams, credits)


@pytest.mark.slow
def test_intervals_cover() -> None:
    """At 64 groups of 8, nine in ten intervals of 95 % or more hold the true ratio."""
    rng, inside, tries = np.random.default_rng(5), 0, 300
    for number in range(tries):
        low, high = _savings_of_turns(*groups(rng, 64, 8), replicates=400, seed=number).interval["to-go"]
        inside += low <= wanted(8) <= high
    assert inside >= 0.9 * tries
