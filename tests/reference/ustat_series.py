"""Ruben's series (1962) for Σ λ_i χ²₁: a mixture of χ² laws with D, D + 2, … degrees of freedom, scaled by min λ."""

from __future__ import annotations

import math

from scipy import stats


def ruben(x: float, weights: list[float], terms: int = 4000) -> float:
    """P(Σ λ_i χ²₁ ≤ x). The weights of the mixture add up to 1, so what is left out is known."""
    least, degrees = min(weights), len(weights)
    shares = [math.prod(math.sqrt(least / w) for w in weights)]
    powers = [sum((1 - least / w) ** k for w in weights) / 2 for k in range(terms)]
    total = shares[0] * stats.chi2.cdf(x / least, degrees)
    k = 0
    while 1 - math.fsum(shares) > 1e-13 and k < terms - 1:
        k += 1
        shares.append(sum(powers[k - j] * shares[j] for j in range(k)) / k)
        total += shares[k] * stats.chi2.cdf(x / least, degrees + 2 * k)
    return float(total)
