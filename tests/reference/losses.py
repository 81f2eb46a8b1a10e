"""Slow twins of the recipes: the published loss of each, in loops over lists of floats.

Every twin takes log-probabilities under the policy and under the one that sampled (B rows of T), the mask (B × T),
the rewards (P rows of G), and `frozen`: log-probabilities that stand where the paper writes a stop-gradient. At
frozen = logp the value is the loss; differentiating by logp alone, frozen held, gives the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Matrix = list[list[float]]
Mask = list[list[bool]]
Twin = Callable[[Matrix, Matrix, Mask, Matrix, Matrix], float]


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: list[float], ddof: int) -> float:
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - ddof))


def standardized(rewards: Matrix, ddof: int = 1, eps: float = 1e-4) -> list[float]:
    return [(r - mean(group)) / (deviation(group, ddof) + eps) for group in rewards for r in group]


def centered(rewards: Matrix) -> list[float]:
    return [r - mean(group) for group in rewards for r in group]


def batch_standardized(rewards: Matrix, ddof: int = 1, eps: float = 1e-4) -> list[float]:
    scale = deviation([r for group in rewards for r in group], ddof) + eps
    return [a / scale for a in centered(rewards)]


def whitened(rewards: Matrix, ddof: int = 1, eps: float = 1e-4) -> list[float]:
    return standardized([[r for group in rewards for r in group]], ddof, eps)


def mean_normalized(rewards: Matrix, eps: float = 1e-6) -> list[float]:
    return [(r - mean(group)) / (mean(group) + eps) for group in rewards for r in group]


def leave_one_out(rewards: Matrix) -> list[float]:
    out = []
    for group in rewards:
        for i, r in enumerate(group):
            out.append(r - mean([other for j, other in enumerate(group) if j != i]))
    return out


def shrunk(rewards: Matrix) -> list[float]:
    """r less λ times the mean of the others, λ from the pairs and variances of the other prompts' rewards."""
    out = []
    for place, group in enumerate(rewards):
        far = near = 0.0
        for other, theirs in enumerate(rewards):
            if other != place:
                pairs = [a * b for i, a in enumerate(theirs) for j, b in enumerate(theirs) if i != j]
                far += mean(pairs)
                near += deviation(theirs, 1) ** 2 / (len(theirs) - 1)
        far = max(far, 0.0)
        shrink = 1.0 if len(rewards) == 1 else far / (far + near) if far + near > 0 else 0.0
        for i, r in enumerate(group):
            out.append(r - shrink * mean([other for j, other in enumerate(group) if j != i]))
    return out


def clipped(ratio: float, advantage: float, low: float, high: float) -> float:
    return min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)


def kept(mask: Mask, row: int) -> list[int]:
    return [t for t, keep in enumerate(mask[row]) if keep]


def clipped_tokens(
    logp: Matrix, old: Matrix, mask: Mask, advantages: list[float], low: float, high: float
) -> list[list[float]]:
    """The clipped surrogate of every kept token, a list per rollout."""
    return [
        [clipped(math.exp(logp[i][t] - old[i][t]), a, low, high) for t in kept(mask, i)]
        for i, a in enumerate(advantages)
    ]


def mean_of_means(rows: list[list[float]]) -> float:
    return math.fsum(math.fsum(row) / max(len(row), 1) for row in rows) / len(rows)


def mean_of_tokens(rows: list[list[float]]) -> float:
    return math.fsum(v for row in rows for v in row) / max(sum(len(row) for row in rows), 1)


def grpo(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− 1/B Σ_i 1/|y_i| Σ_t min(ρ A, clip(ρ, 0.8, 1.2) A), A = (r − r̄)/(σ + 1e-4) within the group."""
    return -mean_of_means(clipped_tokens(logp, old, mask, standardized(rewards), 0.2, 0.2))


def dr_grpo(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− 1/(B·L) Σ_i Σ_t min(ρ A, clip(ρ) A), A = r − r̄; L is the width of the array."""
    rows = clipped_tokens(logp, old, mask, centered(rewards), 0.2, 0.2)
    return -math.fsum(v for row in rows for v in row) / (len(rows) * len(mask[0]))


def rloo(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− 1/B Σ_i A_i Σ_t ρ, A = r − mean of the others."""
    total = 0.0
    for i, a in enumerate(leave_one_out(rewards)):
        total += a * math.fsum(math.exp(logp[i][t] - old[i][t]) for t in kept(mask, i))
    return -total / len(mask)


def shrunk_rloo(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− 1/B Σ_i A_i Σ_t ρ, A = r − λ · mean of the others."""
    total = 0.0
    for i, a in enumerate(shrunk(rewards)):
        total += a * math.fsum(math.exp(logp[i][t] - old[i][t]) for t in kept(mask, i))
    return -total / len(mask)


def dapo(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− 1/Σ|y| Σ_i Σ_t min(ρ A, clip(ρ, 0.8, 1.28) A), A = (r − r̄)/(σ + 1e-4)."""
    return -mean_of_tokens(clipped_tokens(logp, old, mask, standardized(rewards), 0.2, 0.28))


def gspo(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− 1/B Σ_i min(s A, clip(s, 1 − 3e-4, 1 + 4e-4) A), s = (π(y)/π_old(y))^{1/|y|}: differentiated through s."""
    total = 0.0
    for i, a in enumerate(standardized(rewards)):
        if kept(mask, i):
            s = math.exp(mean([logp[i][t] - old[i][t] for t in kept(mask, i)]))
            total += clipped(s, a, 3e-4, 4e-4)
    return -total / len(mask)


def cispo(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− 1/Σ|y| Σ_i Σ_t sg[min(ρ, 5)] A log π."""
    rows = [
        [min(math.exp(frozen[i][t] - old[i][t]), 5.0) * a * logp[i][t] for t in kept(mask, i)]
        for i, a in enumerate(standardized(rewards))
    ]
    return -mean_of_tokens(rows)


def reinforce(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− 1/B Σ_i r_i Σ_t π/sg[π], whose gradient is − 1/B Σ r_i s_i."""
    flat = [r for group in rewards for r in group]
    total = 0.0
    for i, r in enumerate(flat):
        total += r * math.fsum(math.exp(logp[i][t] - frozen[i][t]) for t in kept(mask, i))
    return -total / len(mask)


def ppo(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− mean over tokens of min(ρ A, clip(ρ, 0.8, 1.2) A), A whitened over the batch."""
    return -mean_of_tokens(clipped_tokens(logp, old, mask, whitened(rewards), 0.2, 0.2))


def maxrl(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− mean over tokens of min(ρ A, clip(ρ, 0.8, 1.2) A), A = (r − r̄)/(r̄ + 1e-6)."""
    return -mean_of_tokens(clipped_tokens(logp, old, mask, mean_normalized(rewards), 0.2, 0.2))


def batch_grpo(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− mean over tokens of min(ρ A, clip(ρ, 0.8, 1.2) A), A = (r − r̄)/(σ of the batch + 1e-4)."""
    return -mean_of_tokens(clipped_tokens(logp, old, mask, batch_standardized(rewards), 0.2, 0.2))


def rec_one_side(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− mean over tokens of A log π [A > 0 and sg ρ ≤ 1.2, or A ≤ 0 and sg ρ ≥ 0.8], A = r − r̄."""
    rows = []
    for i, a in enumerate(centered(rewards)):
        row = [(math.exp(frozen[i][t] - old[i][t]), logp[i][t]) for t in kept(mask, i)]
        rows.append([a * log if (ratio <= 1.2 if a > 0 else ratio >= 0.8) else 0.0 for ratio, log in row])
    return -mean_of_tokens(rows)


def rec_one_side_is(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− mean over tokens of min(ρ A, clip(ρ, 0.8, 1.2) A), A = r − r̄."""
    return -mean_of_tokens(clipped_tokens(logp, old, mask, centered(rewards), 0.2, 0.2))


def no_ratio(logp: Matrix, mask: Mask, advantages: list[float], frozen: Matrix) -> float:
    """− mean over tokens of A π/sg[π]."""
    rows = [[a * math.exp(logp[i][t] - frozen[i][t]) for t in kept(mask, i)] for i, a in enumerate(advantages)]
    return -mean_of_tokens(rows)


def opmd(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− mean over tokens of A π/sg[π] − 0.1 (log π − log π_old)², A = r − r̄."""
    held = [[0.1 * (logp[i][t] - old[i][t]) ** 2 for t in kept(mask, i)] for i in range(len(mask))]
    return no_ratio(logp, mask, centered(rewards), frozen) + mean_of_tokens(held)


def asymre(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− mean over tokens of A π/sg[π] + 0.1 (log π − log π_old), whose gradient has A + 0.1; A = r − r̄."""
    held = [[0.1 * (old[i][t] - logp[i][t]) for t in kept(mask, i)] for i in range(len(mask))]
    return no_ratio(logp, mask, centered(rewards), frozen) + mean_of_tokens(held)


def exponential(rewards: Matrix) -> list[float]:
    return [a * math.exp(a) for a in centered(rewards)]


def red_weight(logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, frozen: Matrix) -> float:
    """− mean over tokens of A e^A π/sg[π], A = r − r̄."""
    return no_ratio(logp, mask, exponential(rewards), frozen)


def grpo_with_kl(
    logp: Matrix, old: Matrix, ref: Matrix, mask: Mask, rewards: Matrix, kl: float, weighted: bool
) -> float:
    """GRPO's loss with its penalty, kl · (π_ref/π − log(π_ref/π) − 1) per token, times ρ if weighted."""
    rows = []
    for i, a in enumerate(standardized(rewards)):
        row = []
        for t in kept(mask, i):
            ratio, q = math.exp(logp[i][t] - old[i][t]), ref[i][t] - logp[i][t]
            penalty = math.exp(q) - q - 1
            row.append(-clipped(ratio, a, 0.2, 0.2) + kl * penalty * (ratio if weighted else 1.0))
        rows.append(row)
    return mean_of_means(rows)


TWINS: dict[str, Twin] = {
    twin.__name__: twin
    for twin in (
        *(grpo, dr_grpo, rloo, shrunk_rloo, dapo, gspo, cispo, reinforce, ppo, maxrl, batch_grpo),
        *(rec_one_side, rec_one_side_is, opmd, asymre, red_weight),
    )
} | {"ppo_critic": ppo}


def finite_differences(
    twin: Twin, logp: Matrix, old: Matrix, mask: Mask, rewards: Matrix, step: float = 1e-5
) -> Matrix:
    """∂ twin / ∂ logp by central differences, what is under a stop-gradient held."""
    out = []
    for i, row in enumerate(logp):
        out.append([0.0] * len(row))
        for t in range(len(row)):
            up, down = [list(r) for r in logp], [list(r) for r in logp]
            up[i][t] += step
            down[i][t] -= step
            change = twin(up, old, mask, rewards, logp) - twin(down, old, mask, rewards, logp)
            out[i][t] = change / (2 * step)
    return out
