"""Corrections on the arrays of a batch: against loops over tokens, and the gradient by listing every completion."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from cases import CASES, OBJECTIVES, Case
from torch import Tensor

from grposcope.lab.objectives import Objective, corrections, recipes
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.maths.corrections import ALL, FULL, NONE, Correction, named
from reference.offpolicy_policies import World

close = partial(torch.testing.assert_close, rtol=1e-10, atol=1e-12)
NEAR = next(replace(one, name="nearly equal", ref=one.logp) for one in CASES if one.name == "nearly fresh")
APART = [*CASES, NEAR]
every_case = pytest.mark.parametrize("case", APART, ids=lambda c: c.name)
every_correction = pytest.mark.parametrize("correction", ALL, ids=lambda c: c.name)


def by_hand(name: str, logs: list[float], t: int, advantage: float, sampler: float) -> float:
    """c_t of token t from the log ratios of its rollout, with the bounds that trainers have by default.

    sampler: log μ of the token.
    """
    rho, w = math.exp(logs[t]), math.exp(sum(logs))
    mean, moved = w ** (1 / len(logs)), math.exp(sampler) * (rho - 1)
    up, down = advantage > 0, advantage < 0
    return {
        "none": 1.0,
        "token_ratio": rho,
        "token_cap": min(rho, 2),
        "token_mask": rho if rho <= 3 else 0.0,
        "icepop": rho if 0.5 <= rho <= 5 else 0.0,
        "one_sided": float(rho <= 1.2 if advantage > 0 else rho >= 0.8),
        "prefix_ratio": math.exp(sum(logs[: t + 1])),
        "sequence_cap": min(w, 2),
        "sequence_mask": w if w <= 3 else 0.0,
        "sequence_rejection": float(0.5 <= w <= 2),
        "geometric_band": float(0.999 <= mean <= 1.001),
        "ppo_clip": 0.0 if (up and rho > 1.2) or (down and (rho < 0.8 or rho > 3)) else rho,
        "probability_band": 0.0 if (up and moved > 0.2) or (down and moved < -0.2) else rho,
        "gspo": 0.0 if (up and mean > 1.0004) or (down and mean < 1 - 3e-4) else mean,
        "full": w,
    }[name]


@every_correction
@every_case
def test_coefficients_are_those_of_a_loop_over_tokens(case: Case, correction: Correction) -> None:
    """The trainer's policy before the update is the case's reference here, its sampler the old policy."""
    mask, advantages = case.rollouts.mask, recipes.RLOO.advantage(case.rollouts.rewards).reshape(-1)
    found = corrections.coefficients(correction, case.ref, case.old, mask, advantages)
    for row, advantage in enumerate(advantages.tolist()):
        places = mask[row].nonzero()[:, 0].tolist()
        logs = [float(case.ref[row, place] - case.old[row, place]) for place in places]
        for t, place in enumerate(places):
            sampler = float(case.old[row, place])
            expected = by_hand(correction.name.partition(":")[0], logs, t, advantage, sampler)
            assert float(found[row, place]) == pytest.approx(expected, rel=1e-10)
    assert not found[~mask].any()


def test_the_cases_reach_both_sides_of_every_bound() -> None:
    for correction in ALL:
        values = set()
        for case in APART:
            advantages = recipes.RLOO.advantage(case.rollouts.rewards).reshape(-1)
            given = correction, case.ref, case.old, case.rollouts.mask, advantages
            values |= {round(value, 9) for value in corrections.coefficients(*given)[case.rollouts.mask].tolist()}
        assert len(values) > 1 or correction is NONE, correction.name


@pytest.mark.parametrize("recipe", OBJECTIVES, ids=lambda r: r.name)
def test_coefficients_on_the_credit_multiply_the_term_and_nothing_else(recipe: Objective) -> None:
    """∂L/∂log π is c times the surrogate's part, token by token, plus a part without credit that c does not touch."""
    case = CASES[0]
    c = corrections.coefficients(named("token_mask:1.5"), case.ref, case.old, case.rollouts.mask)
    assert (c[case.rollouts.mask] == 0).any()
    credit = recipe.token_advantages(case.rollouts, torch.float64)
    given = case.logp, case.old, case.rollouts

    def weights(of: Tensor) -> Tensor:
        return recipe.weights(*given, credit=of, logp_ref=case.ref)

    rest = weights(torch.zeros_like(credit))
    assert bool(rest.any()) == bool(recipe.kl or recipe.proximal)
    close(weights(c * credit), c * (weights(credit) - rest) + rest)


def listed(world: World, prompt: int, group: int) -> tuple[RolloutBatch, Tensor, Tensor, list[int], np.ndarray]:
    """Every group of completions of a prompt as one batch, log π and log μ (B, T), completions, chances of groups."""
    drawn = list(itertools.product(range(len(world.completions)), repeat=group))
    which = [one for some in drawn for one in some]
    width = max(len(world.completions[one]) for one in which)
    mask = torch.tensor([[t < len(world.completions[one]) for t in range(width)] for one in which])
    logs = [world._logs(logits, prompt) for logits in world._logits]
    pi, mu = (torch.tensor([[*one[i], *[0.0] * (width - len(one[i]))] for i in which]) for one in logs)
    empty = torch.zeros(mask.shape, dtype=torch.long)
    rewards = torch.tensor(world.rewards[prompt, drawn]).reshape(-1, group)
    plain = RolloutBatch(empty, empty.bool(), empty, mask, mu, mu, empty[:, 0].bool(), rewards)
    return plain, pi, mu, which, np.prod(world.sampled[prompt, drawn], axis=-1)


def mean_gradient(world: World, correction: Correction, group: int = 2) -> np.ndarray:
    """E Σ −(∂L/∂log π) ∇log π (D,) of `rloo`, over every group that the sampler may draw."""
    total = np.zeros_like(world.gradient)
    for x in range(world.prompts):
        rollouts, pi, mu, which, chances = listed(world, x, group)
        advantages = recipes.RLOO.advantage(rollouts.rewards).reshape(-1)
        c = corrections.coefficients(correction, pi, mu, rollouts.mask, advantages)
        credit = c * recipes.RLOO.token_advantages(rollouts, torch.float64)
        weights = recipes.RLOO.weights(pi, pi, rollouts, credit=credit).numpy() * len(chances)
        for row, one in enumerate(which):
            scores = world.token_scores[x][one]
            total -= chances[row // group] * weights[row, : len(scores)] @ scores / world.prompts
    return total


@pytest.mark.parametrize("seed", [0, 1])
def test_full_weights_give_the_on_policy_gradient_whoever_drew(seed: int) -> None:
    world = World(seed=seed, longest=2, apart=0.8)
    truth = world.gradient
    on_policy = replace(world, apart=0.0)
    np.testing.assert_allclose(mean_gradient(on_policy, NONE), truth, atol=1e-10)
    np.testing.assert_allclose(mean_gradient(world, FULL), truth, atol=1e-10)
    for biased in (NONE, named("token_ratio"), named("sequence_cap:1.5")):
        assert np.abs(mean_gradient(world, biased) - truth).max() > 0.01 * np.abs(truth).max(), biased.name


def test_a_batch_without_tokens_has_coefficients() -> None:
    none = torch.zeros(2, 3)
    assert not corrections.coefficients(FULL, none, none, none.bool()).any()
