"""What each way of combining rewards does to the expected gradient, by enumeration of all groups of small policies.

Policies of four answers with two binary rewards, right and form: answers (1,1), (1,0), (0,1), (0,0) with probabilities
π from a softmax of four logits. A group of G draws is one of 4^G; for each the advantages are exact, so the expected
gradient E (1/G) Σ A_i ∇log π(y_i) is a finite sum, and so is the gradient of what was asked for, ∇ E Σ λ_j r_j.

Identity (exact, tolerance 1e-10, ε = 0): Σ_i A_i s_i of a standardized sum equals Σ_j (λ_j σ_j/σ_S) Σ_i Z_ij s_i in
every group; the mean over groups of λ_j σ_j/σ_S is the effective weight that `maths.component_weights` reports.
Bias: cosine of the expected gradient with that of Σ λ_j E r_j, and the ratio w_form/w_right with which the expected
gradient is w_right ∇E right + w_form ∇E form (least squares; the residual says how much lies elsewhere), beside
λ_form/λ_right = 1. Whitening over a batch divides all groups by one number and is left out: for one group of one
prompt it is that of the group.
Rules, before the first run: the identity holds if its largest error is below 1e-10. An aggregation keeps the trade-off
that was asked for at a policy if its ratio lies within 0.5 … 2; it is counted at how many of the 45 policies (nine
rates of right times five of form, independent) it does. Prediction: the ratio of the effective weights of ONE probe of
64 groups, drawn with seed 0, is held against the ratio of the expected gradient; it predicts if it lies within 1.25 ×
either way. Budget: a minute.

Added after the first run, without a rule: the same from the probe's Σ c σ²/Σ σ², the coefficient weighed by variance.

    python experiments/rewards_enumeration.py
"""

from __future__ import annotations

from itertools import product

import numpy as np

from grposcope.maths.aggregation import Aggregation, Components, Floats, combine
from grposcope.maths.component_weights import measure

GROUP = 4
ANSWERS = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
RIGHT = np.linspace(0.1, 0.9, 9)
FORM = np.array([0.5, 0.8, 0.9, 0.95, 0.99])
WAYS = {
    "sum, undivided": Aggregation("sum_then_normalize", "none"),
    "sum, standardized": Aggregation("sum_then_normalize", "group", eps=0.0),
    "standardized, then summed": Aggregation("standardized_components", eps=0.0),
}


def all_groups() -> tuple[np.ndarray, Floats]:
    """Every group of GROUP answers (4^G, G), and its rewards (4^G, G, 2)."""
    drawn = np.array(list(product(range(4), repeat=GROUP)))
    return drawn, ANSWERS[drawn]


def policy(right: float, form: float) -> Floats:
    """Probabilities of the four answers, right and form independent."""
    return np.array([right * form, right * (1 - form), (1 - right) * form, (1 - right) * (1 - form)])


def scores(pi: Floats) -> Floats:
    """∇ log π of each answer with respect to the logits, (4, 4)."""
    score: Floats = np.eye(4) - pi
    return score


def expected(pi: Floats, drawn: np.ndarray, advantages: Floats) -> Floats:
    """E (1/G) Σ A s over all groups; advantages (4^G, G)."""
    chance = pi[drawn].prod(1)
    gradient: Floats = np.einsum("n,ni,nid->d", chance, advantages, scores(pi)[drawn]) / GROUP
    return gradient


def ratio(pi: Floats, gradient: Floats) -> tuple[float, float]:
    """w_form/w_right of a gradient as a sum of ∇E right and ∇E form, and the share of its norm that is in neither."""
    basis = np.stack([(pi * ANSWERS[:, j]) @ scores(pi) for j in range(2)], 1)
    weights, *_ = np.linalg.lstsq(basis, gradient, rcond=None)
    rest = np.linalg.norm(gradient - basis @ weights) / np.linalg.norm(gradient)
    return float(weights[1] / weights[0]), float(rest)


def identity(drawn: np.ndarray, rewards: Floats) -> float:
    """Largest error of A = Σ_j (λ_j σ_j/σ_S) Z_j over all groups, with weights 1 and 0.3."""
    weights = np.array([1.0, 0.3])
    given = Components.of_groups(("right", "form"), rewards)
    done = combine(given, weights, WAYS["sum, standardized"])
    total = rewards @ weights
    spread, own = total.std(1, ddof=1), rewards.std(1, ddof=1)
    live = spread > 1e-12
    z = (rewards - rewards.mean(1, keepdims=True)) / np.where(own > 0, own, 1.0)[:, None]
    by_weights = (z * (weights * own / np.where(live, spread, 1.0)[:, None])[:, None]).sum(-1)
    return float(np.abs(done.advantages.reshape(total.shape) - by_weights)[live].max())


def main() -> None:
    """Print the tables."""
    drawn, rewards = all_groups()
    print(f"identity: largest error over {len(drawn)} groups {identity(drawn, rewards):.1e} (limit 1e-10)\n")
    given = Components.of_groups(("right", "form"), rewards)
    made = {name: combine(given, [1, 1], how).advantages.reshape(len(drawn), GROUP) for name, how in WAYS.items()}
    random = np.random.default_rng(0)
    print("| combined | of 45 keep the trade-off | least, largest ratio | least cosine | largest rest | by λσ/σ_S | "
          "by Σcσ²/Σσ² |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for name, how in WAYS.items():
        ratios, cosines, rests, predicted, after = [], [], [], 0, 0
        for right, form in product(RIGHT, FORM):
            pi = policy(right, form)
            gradient = expected(pi, drawn, made[name])
            wanted = (pi * ANSWERS.sum(1)) @ scores(pi)
            cosines.append(gradient @ wanted / np.linalg.norm(gradient) / np.linalg.norm(wanted))
            found, rest = ratio(pi, gradient)
            ratios.append(found)
            rests.append(rest)
            probe = ANSWERS[random.choice(4, (64, GROUP), p=pi)]
            said = measure(Components.of_groups(("right", "form"), probe), [1, 1], how, np.arange(64)).components
            # an effective weight is that of Z, and the gradient's that of r: divide by the deviation of each reward
            rates = np.sqrt([right * (1 - right), form * (1 - form)])
            probed = said[1].effective.value / said[0].effective.value * rates[0] / rates[1]
            predicted += 0.8 <= probed / found <= 1.25
            done = combine(Components.of_groups(("right", "form"), probe), [1, 1], how)
            squares = done.deviations**2
            by_variance = (done.coefficients * squares).sum(0) / np.maximum(squares.sum(0), 1e-300)
            after += 0.8 <= by_variance[1] / by_variance[0] / found <= 1.25
        kept = sum(0.5 <= one <= 2 for one in ratios)
        span = f"{min(ratios):.2f}, {max(ratios):.2f}"
        print(f"| {name} | {kept} | {span} | {min(cosines):.3f} | {max(rests):.3f} | {predicted} | {after} |")


if __name__ == "__main__":
    main()
