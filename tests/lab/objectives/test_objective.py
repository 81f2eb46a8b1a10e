"""Every recipe on every case: the loss of its slow twin, the weights of its finite differences, the mask's promise."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from cases import CASES, OBJECTIVES, Case, case
from jaxtyping import TypeCheckError
from torch import Tensor

from grposcope.core.errors import UserError
from grposcope.lab.objectives import Objective, advantages, divergences, ratios, recipes, reductions
from grposcope.lab.objectives.surrogates import Cispo, Clip
from grposcope.lab.rollout_batch import RolloutBatch
from reference import losses

LIVE = CASES[0]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
every_recipe = pytest.mark.parametrize("recipe", recipes.ALL.values(), ids=lambda r: r.name)
close = partial(torch.testing.assert_close, rtol=1e-10, atol=1e-12)

every_objective = pytest.mark.parametrize("recipe", OBJECTIVES, ids=lambda r: r.name)


def loss(recipe: Objective, given: Case, **changed: Tensor | RolloutBatch) -> Tensor:
    arguments = {"logp": given.logp, "logp_old": given.old, "logp_ref": given.ref, "rollouts": given.rollouts}
    return recipe.loss(**{**arguments, "entropy": given.rollouts.entropy, **changed})  # type: ignore[arg-type]


def weights(recipe: Objective, given: Case, **changed: Tensor | RolloutBatch) -> Tensor:
    arguments = {"logp": given.logp, "logp_old": given.old, "logp_ref": given.ref, "rollouts": given.rollouts}
    return recipe.weights(**{**arguments, **changed})  # type: ignore[arg-type]


def lists(given: Case) -> tuple[losses.Matrix, losses.Matrix, losses.Mask, losses.Matrix]:
    return given.logp.tolist(), given.old.tolist(), given.rollouts.mask.tolist(), given.rollouts.rewards.tolist()


def test_the_cases_reach_what_they_are_for() -> None:
    mask, a = LIVE.rollouts.mask, recipes.GRPO.token_advantages(LIVE.rollouts, dtype=torch.float64)
    ratio = ratios.token(LIVE.logp, LIVE.old, mask)
    for surrogate in (Clip(), Clip(high=0.28), Cispo(low=0.8)):
        assert all((side & mask).any() for side in surrogate.held(ratio, a))
    assert (Clip(bound=1.5).held(ratio, a)[1] & (a < 0)).any()
    near = next(c for c in CASES if c.name == "nearly fresh")
    inside = ratios.sequence(near.logp, near.old, near.rollouts.mask)
    assert not torch.stack(Clip(3e-4, 4e-4).held(inside, recipes.GSPO.token_advantages(near.rollouts).double())).any()
    assert not mask.any(-1).all()


# Against the twins


def test_every_recipe_has_a_twin() -> None:
    assert losses.TWINS.keys() == recipes.ALL.keys(), "a recipe has its slow twin in tests/reference/losses.py"


@every_recipe
@every_case
def test_loss_is_that_of_the_twin(case: Case, recipe: Objective) -> None:
    logp, old, mask, rewards = lists(case)
    expected = losses.TWINS[recipe.name](logp, old, mask, rewards, logp)
    assert float(recipe.loss(case.logp, case.old, case.rollouts)) == pytest.approx(expected, rel=1e-10, abs=1e-12)


@every_recipe
@every_case
def test_weights_are_the_finite_differences_of_the_twin(case: Case, recipe: Objective) -> None:
    expected = losses.finite_differences(losses.TWINS[recipe.name], *lists(case))
    given = recipe.weights(case.logp, case.old, case.rollouts)
    torch.testing.assert_close(given, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@every_case
def test_kl_is_that_of_the_twin(case: Case, weighted: bool) -> None:
    recipe = replace(recipes.GRPO, kl=0.3, kl_weighted=weighted)

    def twin(logp: losses.Matrix, old: losses.Matrix, mask: losses.Mask, r: losses.Matrix, _: losses.Matrix) -> float:
        return losses.grpo_with_kl(logp, old, case.ref.tolist(), mask, r, 0.3, weighted)

    logp, old, mask, rewards = lists(case)
    assert float(loss(recipe, case)) == pytest.approx(twin(logp, old, mask, rewards, logp), rel=1e-10)
    expected = torch.tensor(losses.finite_differences(twin, logp, old, mask, rewards), dtype=torch.float64)
    torch.testing.assert_close(weights(recipe, case), expected, rtol=1e-6, atol=1e-8)


@every_case
def test_entropy_bonus_is_the_mean_over_tokens(case: Case) -> None:
    kept = case.rollouts.entropy[case.rollouts.mask].tolist()
    for recipe in (recipes.GRPO, recipes.DR_GRPO):
        difference = float(loss(recipe, case) - loss(replace(recipe, entropy=0.7), case))
        assert difference == pytest.approx(0.7 * losses.mean(kept), rel=1e-10)


# The seam


@every_objective
def test_the_gradient_of_the_loss_is_the_weighted_sum_of_scores(recipe: Objective) -> None:
    """Through a softmax over a vocabulary: autograd of the loss is Σ w ∇log π, whatever the loss is."""
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(*LIVE.logp.shape, 5, generator=random, dtype=torch.float64).requires_grad_()
    tokens = torch.randint(5, (*LIVE.logp.shape, 1), generator=random)
    logp = logits.log_softmax(-1).gather(-1, tokens)[..., 0]
    recipe = replace(recipe, entropy=0.0)
    old = (logp + LIVE.old - LIVE.logp).detach()
    whole = torch.autograd.grad(loss(recipe, LIVE, logp=logp, logp_old=old), logits, retain_graph=True)[0]
    w = weights(recipe, LIVE, logp=logp, logp_old=old)
    assert whole.abs().max() > 1e-3
    close(torch.autograd.grad((w * logp).sum(), logits)[0], whole)


@every_objective
@every_case
def test_pieces_of_a_batch_add_up(case: Case, recipe: Objective) -> None:
    recipe, mask = replace(recipe, entropy=0.0), case.rollouts.mask
    coefficients, given = recipe.reduction(mask), recipe.token_advantages(case.rollouts, dtype=torch.float64)
    total, rows_of = 0.0, []
    for rows in torch.arange(len(mask)).split(3):
        part = (case.logp[rows], case.old[rows], mask[rows], given[rows], coefficients[rows], case.ref[rows])
        total += float(recipe.partial_loss(*part))
        rows_of.append(recipe.partial_weights(*part))
    assert total == pytest.approx(float(loss(recipe, case)), rel=1e-10, abs=1e-12)
    close(torch.cat(rows_of), weights(recipe, case))


@every_objective
def test_credit_given_is_credit_used(recipe: Objective) -> None:
    given = recipe.token_advantages(LIVE.rollouts, dtype=torch.float64)
    recipe = replace(recipe, entropy=0.0)
    close(loss(recipe, LIVE, credit=given), loss(recipe, LIVE))
    close(weights(recipe, LIVE, credit=given), weights(recipe, LIVE))
    assert float((weights(recipe, LIVE, credit=-given) - weights(recipe, LIVE)).abs().max()) > 1e-3


# The mask


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e4])
@every_objective
def test_what_stands_in_masked_places_has_no_say(recipe: Objective, garbage: float) -> None:
    for given in (LIVE, CASES[4]):
        mask = given.rollouts.mask
        spoilt = {
            name: tensor.where(mask, garbage)
            for name, tensor in (
                ("logp", given.logp),
                ("logp_old", given.old),
                ("logp_ref", given.ref),
                ("credit", recipe.token_advantages(given.rollouts, dtype=torch.float64)),
            )
        }
        w = weights(recipe, given, **spoilt)
        assert torch.equal(w, weights(recipe, given))
        assert not w[~mask].any()
        entropy = given.rollouts.entropy.where(mask, garbage)
        assert torch.equal(loss(recipe, given, entropy=entropy, **spoilt), loss(recipe, given))


@every_objective
def test_gradients_through_the_loss_are_clean_in_masked_places(recipe: Objective) -> None:
    """Also when a caller differentiates the loss itself, entropy included."""
    mask = LIVE.rollouts.mask
    leaves = [x.where(mask, math.inf).requires_grad_() for x in (LIVE.logp, LIVE.rollouts.entropy)]
    value = loss(recipe, LIVE, logp=leaves[0], entropy=leaves[1])
    for gradient in torch.autograd.grad(value, leaves, allow_unused=True):
        if gradient is not None:
            assert gradient.isfinite().all()
            assert not gradient[~mask].any()


@every_objective
def test_masking_a_token_equals_deleting_it(recipe: Objective) -> None:
    """Holes closed up and the array cut to its longest row; Dr. GRPO is told the length, as in a run."""
    recipe = recipe.at_length(9)
    for given in (LIVE, CASES[4]):
        mask = given.rollouts.mask
        order = (~mask).long().argsort(dim=-1, stable=True)[:, : int(mask.sum(-1).max())]

        def packed(tensor: Tensor, order: Tensor = order) -> Tensor:
            return tensor.gather(-1, order)

        rollouts = replace(given.rollouts, mask=packed(mask), entropy=packed(given.rollouts.entropy))
        short = Case("packed", rollouts, packed(given.logp), packed(given.old), packed(given.ref))
        close(loss(recipe, short), loss(recipe, given))
        close(weights(recipe, short)[rollouts.mask], weights(recipe, given)[mask])


@every_objective
def test_an_empty_row_contributes_nothing(recipe: Objective) -> None:
    recipe, empty = replace(recipe, entropy=0.0), ~LIVE.rollouts.mask.any(-1)
    assert int(empty.sum()) == 1
    assert not weights(recipe, LIVE)[empty].any()
    elsewhere = LIVE.logp - 2.0 * empty[:, None]
    assert torch.equal(loss(recipe, LIVE, logp=elsewhere), loss(recipe, LIVE))


@every_objective
def test_a_batch_without_tokens_has_loss_zero(recipe: Objective) -> None:
    rollouts = replace(LIVE.rollouts, mask=torch.zeros_like(LIVE.rollouts.mask))
    assert float(loss(recipe, LIVE, rollouts=rollouts)) == 0.0
    assert not weights(recipe, LIVE, rollouts=rollouts).any()


@every_objective
def test_the_order_of_rollouts_does_not_matter(recipe: Objective) -> None:
    """Groups change places, and rollouts change places within their group."""
    prompts, group = LIVE.rollouts.groups
    rows = torch.arange(prompts * group).reshape(prompts, group).flip(0)[:, torch.tensor([2, 0, 3, 1])].reshape(-1)
    moved = replace(
        LIVE.rollouts,
        mask=LIVE.rollouts.mask[rows],
        entropy=LIVE.rollouts.entropy[rows],
        rewards=LIVE.rollouts.rewards.reshape(-1)[rows].reshape(prompts, group),
    )
    other = Case("moved", moved, LIVE.logp[rows], LIVE.old[rows], LIVE.ref[rows])
    close(loss(recipe, other), loss(recipe, LIVE))
    close(weights(recipe, other), weights(recipe, LIVE)[rows])


# Structure of the gradient (theory, section 1)

SUCCESSES = [1, 2, 4]


def scores(given: RolloutBatch, length_normalised: bool) -> Tensor:
    """Random ∇log π per token (B, T, D), summed or averaged over the kept tokens: (B, D)."""
    random = torch.Generator().manual_seed(7)
    tokens = torch.randn(*given.mask.shape, 11, generator=random, dtype=torch.float64)
    total = (tokens * given.mask[..., None]).sum(1)
    return total / given.lengths[:, None].clamp(min=1) if length_normalised else total


def estimate(recipe: Objective, given: Case) -> Tensor:
    """−Σ w ∇log π with the same random scores per token: the ascent direction (D,)."""
    random = torch.Generator().manual_seed(7)
    tokens = torch.randn(*given.logp.shape, 11, generator=random, dtype=torch.float64)
    return -torch.einsum("bt,btd->d", weights(recipe, given, logp_old=given.logp), tokens)


@pytest.mark.parametrize("successes", SUCCESSES)
@pytest.mark.parametrize("centred", [False, True], ids=["standardized", "centered"])
def test_a_groups_gradient_is_a_difference_of_class_means(successes: int, centred: bool) -> None:
    """(1/G) Σ A s = σ_K (s̄₊ − s̄₋), or (K/G)(1 − K/G)(s̄₊ − s̄₋): two directions, whatever G is."""
    group = 5
    rewards = [float(i < successes) for i in range(group)]
    given = case("group", [rewards], ["111", "100", "110", "111", "100"], spread=1.0, seed=8)
    share = successes / group
    if centred:
        recipe = replace(recipes.DR_GRPO, reduction=reductions.sequence_sum)
        factor = share * (1 - share)
    else:
        recipe = replace(recipes.GRPO, advantage=partial(advantages.standardized, ddof=0, eps=0.0))
        factor = math.sqrt(share * (1 - share))
    s, won = scores(given.rollouts, length_normalised=not centred), given.rollouts.rewards[0] == 1
    close(estimate(recipe, given), factor * (s[won].mean(0) - s[~won].mean(0)))


def test_leave_one_out_is_the_u_statistic() -> None:
    """RLOO's gradient is the mean over pairs of ½ (r_i − r_j)(s_i − s_j)."""
    given = CASES[2]
    s, r = scores(given.rollouts, length_normalised=False), given.rollouts.rewards[0]
    pairs = [(i, j) for i in range(5) for j in range(5) if i != j]
    kernel = torch.stack([0.5 * (r[i] - r[j]) * (s[i] - s[j]) for i, j in pairs]).mean(0)
    close(estimate(recipes.RLOO, given), kernel)


# What is missing or does not fit


def test_a_kl_term_needs_the_reference() -> None:
    with pytest.raises(UserError, match="logp_ref"):
        replace(recipes.GRPO, kl=0.1).loss(LIVE.logp, LIVE.old, LIVE.rollouts)


def test_an_entropy_bonus_needs_the_entropies() -> None:
    with pytest.raises(UserError, match="entropies"):
        replace(recipes.GRPO, entropy=0.1).loss(LIVE.logp, LIVE.old, LIVE.rollouts)


def test_only_dr_grpo_is_told_the_length() -> None:
    assert recipes.GRPO.at_length(64) is recipes.GRPO
    told = recipes.DR_GRPO.at_length(64)
    assert told.at_length(8) is told
    ratio = recipes.DR_GRPO.loss(LIVE.logp, LIVE.old, LIVE.rollouts) / told.loss(LIVE.logp, LIVE.old, LIVE.rollouts)
    assert float(ratio) == pytest.approx(64 / 6, rel=1e-12)


def test_the_dtype_of_the_log_probabilities_is_kept() -> None:
    for dtype in (torch.float32, torch.float64):
        logp, old = LIVE.logp.to(dtype), LIVE.old.to(dtype)
        assert recipes.GRPO.loss(logp, old, LIVE.rollouts).dtype == dtype
        assert recipes.GRPO.weights(logp, old, LIVE.rollouts).dtype == dtype


def test_weights_do_not_touch_the_callers_graph() -> None:
    leaf = LIVE.logp.clone().requires_grad_()
    with torch.no_grad():
        given = recipes.GRPO.weights(leaf, LIVE.old, LIVE.rollouts)
    assert not given.requires_grad
    assert leaf.grad is None


def test_shapes_are_checked_under_pytest() -> None:
    with pytest.raises(TypeCheckError):
        recipes.GRPO.loss(LIVE.logp, LIVE.old[:, :-1], LIVE.rollouts)


def test_divergences_can_be_exchanged() -> None:
    values = {
        k.__name__: float(loss(replace(recipes.GRPO, kl=1.0, divergence=k), LIVE))
        for k in (divergences.k1, divergences.k2, divergences.k3)
    }
    assert len(set(values.values())) == 3
