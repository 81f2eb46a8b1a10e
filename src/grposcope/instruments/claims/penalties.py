"""[U] arXiv:2603.01162, appendix A: what estimating the deviation costs, and which divergence k3 is the gradient of."""

from __future__ import annotations

import itertools
import math

import numpy as np

from grposcope.instruments.claims.claim import Derived, Tell
from grposcope.instruments.claims.enumerated_policy import Array
from grposcope.maths.dead_groups import log_choose


def standardized_error(tell: Tell) -> Derived:
    """G × MSE of standardized gradients about g/σ as G grows, against tr Σ₁ with the known deviation and with ours.

    Two classes of answers with means d apart and scatters 1 and 1.5; sums over all numbers of successes K.
    """
    said, good, below, dimension = [], True, True, 1.0
    for success in (0.1, 0.3, 0.5):
        spread = success * (1 - success)
        squared = spread**2 * dimension  # ‖g‖², g = V(1 − V) d
        plus, minus = (1 - success) ** 2 * dimension + 1.0, success**2 * dimension + 1.5
        second = success * (1 - success) ** 2 * plus + (1 - success) * success**2 * minus
        explained = (second - squared) / spread
        own = explained - 0.75 * (1 - 2 * success) ** 2 * squared / spread**2
        group = 16_384
        k = np.arange(1, group)
        chance = np.exp(log_choose(group, k) + k * math.log(success) + (group - k) * math.log1p(-success))
        scale = np.sqrt(k * (group - k) / (group * (group - 1)))
        square = float(chance @ (scale**2 * (dimension + 1.0 / k + 1.5 / (group - k))))
        target = math.sqrt(spread * dimension)
        error = group * (square - 2 * float(chance @ scale) * target + target**2)
        good, below = good and abs(error / own - 1) < 0.01, below and error <= explained * 1.001
        said.append(f"{error:.3f} at V = {success:g} (printed {explained:.3f}, ours {own:.3f})")
    return Derived(
        "holds in part" if good and below else "cannot tell",
        f"G × MSE at G = 16,384: {', '.join(said)}; so the printed term is a bound from above, and estimating the "
        "deviation lowers the variance",
        "two classes of answers, sums over every number of successes",
    )


def _tokens(logits: dict[tuple[int, ...], Array], theta: Array) -> tuple[list[tuple[int, ...]], Array, Array]:
    """Completions of two tokens, their token probabilities (N, 2) and token scores (N, 2, D)."""
    letters = range(len(next(iter(logits.values()))))
    completions = list(itertools.product(letters, repeat=2))
    chances, scores = [], []
    for completion in completions:
        rows = []
        for t in range(2):
            features = logits[completion[:t]]
            p = np.exp(features @ theta)
            p /= p.sum()
            rows.append((p[completion[t]], features[completion[t]] - p @ features))
        chances.append([p for p, _ in rows])
        scores.append([s for _, s in rows])
    return completions, np.array(chances), np.array(scores)


def k3_of_tokens(tell: Tell) -> Derived:
    """Distance of the gradients of k3, of sequences, over tokens and as a reward, to those of both divergences."""
    rng, worst = np.random.default_rng(13), 0.0
    away: list[float] = []
    paid: list[float] = []
    for _ in range(9):
        places = [(), (0,), (1,), (2,)]
        logits = {position: rng.normal(size=(3, 4)) for position in places}
        theta, fixed = rng.normal(size=(2, 4))
        _, chances, scores = _tokens(logits, theta)
        _, reference, _ = _tokens(logits, fixed)
        p, q, whole = chances.prod(1), reference.prod(1), scores.sum(1)
        forward = -(q @ whole)  # ∇ KL(π_ref ‖ π)
        reverse = np.einsum("n,nd->d", p * np.log(p / q), whole)  # ∇ KL(π ‖ π_ref)
        sequence = np.einsum("n,nd->d", p * (1 - q / p), whole)
        token = np.einsum("n,nt,ntd->d", p, 1 - reference / chances, scores)
        k3 = reference / chances - 1 - np.log(reference / chances)
        reward = np.einsum("n,n,nd->d", p, k3.sum(1), whole)
        worst = max(worst, float(np.linalg.norm(sequence - forward) / np.linalg.norm(forward)))
        for distances, gradient in ((away, token), (paid, reward)):
            distances.append(
                min(
                    float(np.linalg.norm(gradient - direction) / np.linalg.norm(direction))
                    for direction in (forward, reverse)
                )
            )
    nearest, as_reward = float(np.median(away)), float(np.median(paid))
    return Derived(
        "does not hold" if nearest > 0.05 and worst < 1e-9 else "cannot tell",
        f"summed over tokens it is {nearest:.2f} of its length away from the nearer of the gradients of KL(π_ref‖π) "
        f"and KL(π‖π_ref), in the median; of whole sequences it is that of KL(π_ref‖π) to {worst:.0e}; paid as a "
        f"reward it is {as_reward:.2f} away",
        "nine policies of two tokens, every completion enumerated",
    )
