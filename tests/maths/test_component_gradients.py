"""What components move of the gradient: against brute force, and pooled over probes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from grposcope.maths import component_gradients
from grposcope.maths.aggregation import Aggregation, Components, combine


def test_gradient_shares_are_those_of_the_mean_gradient() -> None:
    """With scores that all prompts share, the products of different prompts are those of the true gradients."""
    rng = np.random.default_rng(0)
    prompts, group, dimensions = 300, 6, 5
    axes = rng.normal(size=(2, dimensions))
    rewards = rng.integers(0, 2, (prompts, group, 2)) * 1.0
    scores = rewards @ axes + 0.5 * rng.normal(size=(prompts, group, dimensions))
    done = combine(Components.of_groups("ab", rewards), [1, 0.5], Aggregation("standardized_components"))
    parts = done.contributions.reshape(prompts, group, 2)
    gram = np.einsum("pid,qjd->piqj", scores, scores)
    shares, cosines = component_gradients.gradient_shares(gram, parts)
    own = np.einsum("pik,pid->pkd", parts, scores) / group
    whole = own.sum(1)
    off = ~np.eye(prompts, dtype=bool)
    norm = (whole @ whole.T)[off].mean()
    for k in range(2):
        assert shares[k].value == pytest.approx((own[:, k] @ whole.T)[off].mean() / norm)
    assert shares[0].value + shares[1].value == pytest.approx(1)
    inside = axes[0] @ axes[1] / np.linalg.norm(axes[0]) / np.linalg.norm(axes[1])
    low, high = cosines[0, 1].interval()
    assert low - 0.05 < inside < high + 0.05


def products(rng: np.random.Generator, prompts: int, signal: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Gradients (P, K, D) of two components by prompt, and their products."""
    own = rng.normal(size=(prompts, 2, 4)) + signal * np.array([[1, 0, 0, 1], [0.5, 1, 0, 0]])
    return own, np.einsum("pjd,qkd->jkpq", own, own)


def test_probes_are_pooled_as_sums_and_each_prompt_is_left_out() -> None:
    """Against loops over pairs of different prompts of one probe, and the jackknife written out."""
    rng = np.random.default_rng(1)
    made = [products(rng, prompts) for prompts in (5, 3, 4)]

    def brute(gradients: list[np.ndarray]) -> tuple[float, float]:
        total = np.zeros((2, 2))
        for own in gradients:
            count = len(own)
            pairs = [own[p] @ own[q].T for p in range(count) for q in range(count) if p != q]
            total += np.mean(pairs, 0)
        return total[0].sum() / total.sum(), total[0, 1] / np.sqrt(total[0, 0] * total[1, 1])

    whole = brute([own for own, _ in made])
    left = np.array([
        brute([np.delete(own, p, 0) if k == t else own for k, (own, _) in enumerate(made)])
        for t, (first, _) in enumerate(made) for p in range(len(first))
    ])  # fmt: skip
    shares, cosines = component_gradients.shares_of_products([one for _, one in made])
    se = np.sqrt(11 / 12 * ((left - left.mean(0)) ** 2).sum(0))
    assert (shares[0].value, cosines[0, 1].value) == pytest.approx(whole)
    assert (shares[0].se, cosines[0, 1].se) == pytest.approx(tuple(se))
    assert shares[0].n == 12


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_parts_of_a_sum_are_found_from_the_advantages_alone(scale: Any) -> None:
    """Whatever a group's factor is, the parts are those of the combination, and add up to the advantages."""
    rewards = np.random.default_rng(0).random((6, 5, 3)) * [1, 0.3, 2]
    given = Components.of_groups("abc", rewards)
    made = combine(given, [1, 2, 0.5], Aggregation(scale=scale))
    found = component_gradients.parts(given, [1, 2, 0.5], made.advantages * 1.25)
    assert found is not None
    assert found == pytest.approx(1.25 * made.contributions)


def test_parts_are_refused_where_the_advantages_are_others() -> None:
    rewards = np.random.default_rng(0).random((6, 5, 2))
    given = Components.of_groups("ab", rewards)
    how = Aggregation("standardized_components")
    made = combine(given, [1, 1], how).advantages
    assert component_gradients.parts(given, [1, 1], made) is None
    assert component_gradients.parts(given, [1, 1], made, Aggregation()) is None
    found = component_gradients.parts(given, [1, 1], made, how)
    assert found is not None
    assert found.sum(1) == pytest.approx(made)


def test_a_group_in_which_components_cancel_has_no_parts() -> None:
    rewards = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]])
    given = Components.of_groups("ab", rewards)
    found = component_gradients.parts(given, [1, 1], np.array([0.0, 0.0, 1.0, -1.0]))
    assert found is not None
    assert found.tolist() == [[0, 0], [0, 0], [1, 0], [-1, 0]]


def test_a_probe_of_two_prompts_takes_no_interval_from_the_others() -> None:
    rng = np.random.default_rng(3)
    made = [products(rng, prompts, 4.0)[1] for prompts in (8, 2, 8)]
    shares, cosines = component_gradients.shares_of_products(made)
    rest = component_gradients.shares_of_products([made[0], made[2]])
    assert 0 < shares[0].se < 3 * rest[0][0].se
    assert np.isfinite(cosines[0, 1].se)
    assert np.isnan(component_gradients.shares_of_products([made[1]])[0][0].se)
