"""Ways of combining rewards: against loops from their definitions, and their invariances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from grposcope.core.errors import UserError
from grposcope.maths.aggregation import METHODS, SCALES, Aggregation, Components, Method, Scale, combine

EVERY: list[tuple[Method, Scale]] = [(METHODS[0], scale) for scale in SCALES] + [(m, "group") for m in METHODS[1:]]
WEIGHTS = np.array([1.0, 0.5, -0.25])


def drawn(seed: int = 0) -> Components:
    """Two batches of groups of 3 to 6, with a dead component, rewards that are absent, and a rollout without any."""
    rng = np.random.default_rng(seed)
    sizes = [4, 6, 3, 5, 4]
    rewards = np.round(rng.random((sum(sizes), 3)), 2)
    rewards[:4, 1] = 0.1  # three equal numbers whose mean rounds to another
    rewards[5, 0] = rewards[12, 2] = np.nan
    rewards[14] = np.nan
    owner = np.repeat(np.arange(5), sizes)
    return Components(("a", "b", "c"), rewards, owner, np.array([0, 0, 0, 1, 1]), rng.integers(1, 9, sum(sizes)) * 1.0)


def by_hand(given: Components, weights: Sequence[float], how: Aggregation) -> list[float]:
    """The definitions in plain loops."""
    rows, out = given.rewards.tolist(), [0.0] * len(given.rewards)
    assert given.lengths is not None

    def spread(values: list[float], times: list[float] | None = None) -> tuple[float, float]:
        times = times or [1.0] * len(values)
        mean = sum(t * v for t, v in zip(times, values, strict=True)) / sum(times)
        return mean, (sum(t * (v - mean) ** 2 for t, v in zip(times, values, strict=True)) / (sum(times) - 1)) ** 0.5

    for batch in (0, 1):
        groups = [[i for i, g in enumerate(given.group) if g == m] for m in range(5) if given.batch[m] == batch]
        groups = [[i for i in group if not all(np.isnan(rows[i]))] for group in groups]
        inside = [i for group in groups for i in group]
        total = {i: sum(w * r for w, r in zip(weights, rows[i], strict=True) if r == r) for i in inside}
        if how.method == "sum_then_normalize":
            for group in groups:
                mean, deviation = spread([total[i] for i in group])
                if how.scale == "batch":
                    deviation = spread([total[i] for i in inside])[1]
                for i in group:
                    out[i] = (total[i] - mean) / (1 if how.scale == "none" else deviation + how.eps)
            continue
        for group in groups:
            for i in group:
                total[i] = 0.0
            for j, w in enumerate(weights):
                judged = [i for i in group if rows[i][j] == rows[i][j]]
                if len({rows[i][j] for i in judged}) > 1:
                    mean, deviation = spread([rows[i][j] for i in judged])
                    for i in judged:
                        total[i] += w * (rows[i][j] - mean) / (deviation + how.eps)
        if how.method == "standardized_components":
            mean, divisor = 0.0, 1.0
        elif how.method == "normalize_then_sum":
            mean, divisor = spread([total[i] for i in inside])
            divisor += how.eps
        else:
            mean, divisor = spread([total[i] for i in inside], [given.lengths[i] for i in inside])
            divisor = (divisor**2 + 1e-8) ** 0.5
        for i in inside:
            out[i] = (total[i] - mean) / divisor
    return out


@pytest.mark.parametrize(("method", "scale"), EVERY)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_the_definition(method: Method, scale: Scale, seed: int) -> None:
    given, how = drawn(seed), Aggregation(method, scale)
    found = combine(given, WEIGHTS, how)
    np.testing.assert_allclose(found.advantages, by_hand(given, WEIGHTS.tolist(), how), atol=1e-12)
    assert found.advantages[14] == 0
    assert found.coefficients.shape == found.deviations.shape == (5, 3)
    centred = found.contributions.sum(1) - found.shift
    np.testing.assert_allclose(centred, found.advantages, atol=1e-12)
    assert (found.contributions[:4, 1] == 0).all()


def test_the_effective_weight_of_a_standardized_sum_is_its_share_of_the_deviation() -> None:
    """A = Σ_j (λ_j σ_j/σ_S) Z_j, exactly, with ε = 0."""
    rewards = np.random.default_rng(0).random((7, 8, 3))
    found = combine(Components.of_groups("abc", rewards), WEIGHTS, Aggregation(eps=0.0))
    total = rewards @ WEIGHTS
    expected = WEIGHTS * rewards.std(1, ddof=1) / total.std(1, ddof=1)[:, None]
    np.testing.assert_allclose(found.effective, expected, rtol=1e-12)
    z = (rewards - rewards.mean(1, keepdims=True)) / rewards.std(1, ddof=1, keepdims=True)
    np.testing.assert_allclose(found.advantages.reshape(7, 8), (z * expected[:, None]).sum(-1), atol=1e-12)


@pytest.mark.parametrize("method", METHODS[1:])
def test_standardizing_first_forgets_the_scale_of_a_reward(method: Method) -> None:
    rewards = np.random.default_rng(0).random((7, 8, 3))
    lengths = np.random.default_rng(1).integers(1, 9, 56) * 1.0
    how = Aggregation(method, eps=0.0)
    plain = combine(Components.of_groups("abc", rewards, lengths), WEIGHTS, how).advantages
    scaled = combine(Components.of_groups("abc", rewards * [100, 0.01, 1] + 3, lengths), WEIGHTS, how).advantages
    np.testing.assert_allclose(plain, scaled, atol=1e-9)


def test_whitening_over_completions_keeps_the_zero_sum_and_over_tokens_does_not() -> None:
    rewards = np.random.default_rng(0).random((7, 8, 2))
    lengths = 1.0 + 50 * rewards[..., 0].reshape(-1) ** 3
    given = Components.of_groups("ab", rewards, lengths)
    sums = {m: combine(given, [1, 1], Aggregation(m)).advantages.reshape(7, 8).sum(1) for m in METHODS}
    assert max(abs(sums[m]).max() for m in METHODS if m != "gdpo_tokens") < 1e-12
    assert sums["gdpo_tokens"].max() < -1  # long ones are the good ones, and their mean is subtracted from all
    advantages = combine(given, [1, 1], Aggregation("gdpo_tokens")).advantages
    assert float(advantages @ lengths) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("weights", "said"),
    [([0, 0, 0], "all weights of the rewards are 0"), ([1, 1], "2 weights for 3 rewards"),
     ([1, np.nan, 0], "must be finite")],
)  # fmt: skip
def test_weights_that_cannot_be(weights: list[float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        combine(drawn(), weights, Aggregation())


def test_tokens_need_lengths() -> None:
    rewards = np.random.default_rng(0).random((2, 4, 2))
    with pytest.raises(UserError, match="lengths"):
        combine(Components.of_groups("ab", rewards), [1, 1], Aggregation("gdpo_tokens"))


def test_weights_that_sum_to_0_are_weights() -> None:
    rewards = np.random.default_rng(0).random((3, 4, 2))
    found = combine(Components.of_groups("ab", rewards), [1, -1], Aggregation(eps=0))
    np.testing.assert_allclose(found.advantages.reshape(3, 4).std(1, ddof=1), 1)
