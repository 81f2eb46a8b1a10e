"""At which temperatures and truncations tokens are looked at when they are scored: what `ScoredTokens` has columns for.

Between the powers, log Σ_v p_v^β is interpolated: it is a smooth convex function of β.
"""

POWERS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5, 2.0)
"""Powers β: a sampler at temperature T/β draws by p^β, where p are the probabilities at the stated T."""

TOP_KS = (1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 40, 50, 64, 100, 128, 200)
"""Numbers of likeliest tokens, from few to many."""

TOP_PS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
"""Probabilities of a nucleus."""
