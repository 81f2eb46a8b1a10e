"""What each component of a reward moves of the gradient: its part of the advantages, shares and cosines.

The gradient of an update is Σ_i k_i A_i s_i, with scores s_i and the coefficients k_i of the loss. Where the advantage
is A_i = Σ_j a_ij, with a part a_ij of each component (and of each constraint), it is the sum of g_j = Σ_i k_i a_ij s_i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from grposcope.core.estimate import Estimate
from grposcope.maths import resampling
from grposcope.maths.aggregation import Aggregation, Components, Floats, checked_weights, combine, sums

NEAR = 1e-3
"""Difference of an advantage from what its parts add up to, against the largest one, up to which it is made of them."""


def parts(
    components: Components, weights: Sequence[float] | Floats, advantages: Floats, how: Aggregation | None = None
) -> Floats | None:
    """What each component has of the advantages (N,), (N, K); None where they are not made of these components.

    how: how the components were combined; None where their weighted sum S has an advantage c_g (S − S̄_g) with a factor
    of each group, whichever, as GRPO, Dr. GRPO, RLOO and MaxRL have, each up to what all rollouts of a batch share.
    In groups whose sum is constant the parts are 0.
    """
    if how is not None:
        made = combine(components, weights, how)
        return made.contributions if _near(made.advantages, advantages) else None
    scale, groups = checked_weights(weights, components.names), len(components.batch)
    filled = np.nan_to_num(components.rewards, nan=0.0) * scale
    count = np.maximum(np.bincount(components.group, minlength=groups), 1)
    less = filled - (sums(filled, components.group, groups) / count[:, None])[components.group]
    total = less.sum(1)
    squares = sums(total**2, components.group, groups)
    live = squares > 1e-12 * sums((less**2).sum(1), components.group, groups)
    factor = np.divide(sums(total * advantages, components.group, groups), squares, out=np.zeros(groups), where=live)
    scaled: Floats = less * factor[components.group][:, None]
    return scaled if _near(scaled.sum(1), advantages) else None


def _near(made: Floats, advantages: Floats) -> bool:
    size = float(np.abs(advantages).max(initial=0.0))
    return bool(np.abs(made - advantages).max(initial=0.0) <= NEAR * size)


def gradient_shares(gram: Floats, contributions: Floats) -> tuple[list[Estimate], dict[tuple[int, int], Estimate]]:
    """Share of the gradient's squared norm by component, and cosines between their gradients.

    gram (P, G, P, G): inner products of the scores; contributions (P, G, K) to the advantages.
    """
    return shares_of_products([gradient_products(gram, contributions)])


def gradient_products(gram: Floats, contributions: Floats) -> Floats:
    """⟨g_pj, g_qk⟩ (K, K, P, P) of the gradients g_pj = (1/G) Σ_i a_ij s_i of component j on the rollouts of prompt p.

    gram (P, G, P, G): inner products of the scores; contributions (P, G, K) to the advantages.
    """
    weights = contributions / gram.shape[1]
    products: Floats = np.einsum("pij,piqk,qkl->jlpq", weights, gram, weights, optimize=True)
    return products


def shares_of_products(probes: Sequence[Floats]) -> tuple[list[Estimate], dict[tuple[int, int], Estimate]]:
    """Shares and cosines of components from the products (K, K, P, P) of one or several probes.

    With g_j the mean over prompts of the gradients of component j, share j is ⟨g_j, g⟩/‖g‖², and a cosine is
    ⟨g_j, g_k⟩/(‖g_j‖ ‖g_k‖). Products are means over pairs of different prompts of one probe, so that the noise of a
    prompt's own rollouts has no part in them, and are summed over the probes: of gradients that change from probe to
    probe, each counts by its size. The jackknife leaves out each prompt of each probe, of a probe of two prompts all
    of it, twice, which errs on the wide side. NaN where the noise leaves no
    positive norm.
    """
    parts = len(probes[0])

    def pairs(of: Sequence[Floats]) -> tuple[float, Floats]:
        each = [float(resampling.pair_mean(products, resampling.point(len(products)))[0]) for products in of]
        whole = float(sum(each))
        without = [
            whole - value + _without_each(products, len(of) > 1) for value, products in zip(each, of, strict=True)
        ]
        return whole, np.concatenate(without)

    norm = pairs([probe.sum((0, 1)) for probe in probes])
    own = [pairs([probe[j, j] for probe in probes]) for j in range(parts)]
    shares = [_quotient(pairs([probe[j].sum(0) for probe in probes]), norm) for j in range(parts)]
    cosines = {}
    for j, k in combinations(range(parts), 2):
        both = [(probe[j, k] + probe[k, j]) / 2 for probe in probes]
        roots = _root(own[j][0], own[k][0]), _roots(own[j][1], own[k][1])
        cosines[j, k] = _quotient(pairs(both), roots)
    return shares, cosines


def _without_each(products: Floats, others: bool) -> Floats:
    """Pair means (P,) without each prompt; 0 for a probe of two, which without one is left out, if there are others."""
    without_each = resampling.pair_means_left_out(products)
    return np.zeros(len(without_each)) if others and len(without_each) == 2 else without_each


def _root(first: float, second: float) -> float:
    return math.sqrt(first * second) if min(first, second) > 0 else math.nan


def _roots(first: Floats, second: Floats) -> Floats:
    return np.array([_root(a, b) for a, b in zip(first, second, strict=True)])


def _quotient(numerator: tuple[float, Floats], denominator: tuple[float, Floats]) -> Estimate:
    if not denominator[0] > 0:
        return Estimate(math.nan, math.nan, len(numerator[1]), "the gradient is not told from noise")
    quotients = np.divide(
        numerator[1], denominator[1], out=np.full(len(numerator[1]), np.nan), where=denominator[1] > 0
    )
    return resampling.estimate(numerator[0] / denominator[0], quotients)
