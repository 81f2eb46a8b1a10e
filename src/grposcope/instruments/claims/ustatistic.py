"""[U] arXiv:2603.01162: the gradient of GRPO is a U-statistic; its error, the oracle, the group size, the limit law."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, stats

from grposcope.instruments.claims import finite_groups, penalties, reuse
from grposcope.instruments.claims.claim import Derived, Drawing, PaperClaim, Tell
from grposcope.instruments.claims.enumerated_policy import Array, EnumeratedPolicy, leave_one_out
from grposcope.instruments.group_size import limit

ROUNDING = 1e-10
"""Difference from which on two sums over listed outcomes are not equal."""


def _policies() -> list[EnumeratedPolicy]:
    return [EnumeratedPolicy.random(seed, 2, 3, 3, binary) for seed in (1, 2) for binary in (False, True)]


def _mse(tell: Tell) -> Derived:
    """Formula against a list of every outcome."""
    worst, cells = 0.0, 0
    points: list[tuple[str, float, float, float]] = []
    for number, policy in enumerate(_policies(), 1):
        prompt, oracle, residual = policy.parts()
        for group in (2, 3, 4, 8):
            formula = prompt + oracle / group + residual / (group * (group - 1))
            listed = policy.error(group, leave_one_out)
            worst, cells = max(worst, abs(listed - formula)), cells + 1
            points.append((f"policy {number}", group, listed / prompt, 0.0))
    return Derived(
        "holds" if worst < ROUNDING else "does not hold",
        f"formula and enumeration differ by at most {worst:.1g} in {cells} cells (G = 2 to 8, graded and binary "
        "rewards)",
        "softmax policies of 2 prompts and 3 answers, every outcome enumerated",
        Drawing("group size G", "error of one prompt's gradient ÷ V_p", points, log=True),
    )


def _oracle(tell: Tell) -> Derived:
    """The error against that of a gradient that knows the value of each prompt, both listed, without prompts' share."""
    ratios: dict[int, list[float]] = {group: [] for group in (2, 8, 16)}
    worst = 0.0
    for policy in _policies():
        values = (policy.chances * policy.rewards).sum(1)
        prompt, sigma, residual = policy.parts()
        for group, found in ratios.items():
            own = policy.error(group, leave_one_out) - prompt
            error = policy.error(group, lambda r, x, values=values: r - values[x]) - prompt  # type: ignore[misc]
            found.append(own / error)
            worst = max(worst, abs(own / error - (1 + residual / ((group - 1) * sigma))))
    mean = {group: math.fsum(values) / len(values) for group, values in ratios.items()}
    good = worst < 1e-8 and 1 < mean[16] < mean[8] < mean[2]
    return Derived(
        "holds" if good else "does not hold",
        "error ÷ the oracle's, mean of four policies: "
        + ", ".join(f"{value:.2f} at G = {group}" for group, value in mean.items())
        + f"; it agrees with 1 + Δ/((G−1)Σ₁) to {worst:.1g}",
        "the same policies, every outcome enumerated",
        Drawing("group size G", "error ÷ the oracle's", [("mean", group, value, 0.0) for group, value in mean.items()]),
    )


def _universal(tell: Tell) -> Derived:
    """The best G for several budgets, by the listed error, against 1 + √(Δ/V_p)."""
    groups, equal, said = np.arange(2, 13), True, []
    points: list[tuple[str, float, float, float]] = []
    for seed in (1, 2, 5):
        policy = EnumeratedPolicy.random(seed, 2, 2, 3, True)
        prompt, _, residual = policy.parts()
        root = 1 + math.sqrt(residual / prompt)
        error = np.array([policy.error(int(group), leave_one_out) for group in groups])
        best = {int(groups[(error * groups / budget).argmin()]) for budget in (64, 512, 4096)}
        near = {int(np.clip(math.floor(root), 2, 12)), int(np.clip(math.ceil(root), 2, 12))}
        equal = equal and len(best) == 1 and best <= near
        needed = error * groups / (error * groups).min()
        points += [(f"G* = {root:.2f}", float(g), float(y), 0.0) for g, y in zip(groups, needed, strict=True)]
        said.append(f"{min(best)} (1 + √(Δ/V_p) = {root:.2f})")
    return Derived(
        "holds" if equal else "does not hold",
        f"the G with the smallest error is the same at 64, 512 and 4,096 rollouts: {', '.join(said)}",
        "three softmax policies, every outcome of G = 2 to 12 enumerated; it changes during training "
        "(ustat_universality_seeds.py)",
        Drawing("group size G", "rollouts needed ÷ the minimum", points),
    )


class _World:
    """Two prompts of four answers over three parameters, with a ridge, so that there is one optimum inside."""

    ridge, step = 0.3, 4.0

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self.features, self.rewards = rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 4))

    def chances(self, theta: Array) -> Array:
        weights = np.exp(np.einsum("xad,...d->...xa", self.features, theta))
        return np.asarray(weights / weights.sum(-1, keepdims=True))

    def objective(self, theta: Array) -> Array:
        value = (self.chances(theta) * self.rewards).sum(-1).mean(-1)
        return np.asarray(value - self.ridge / 2 * (theta**2).sum(-1))

    def parts(self, theta: Array) -> tuple[Array, Array, Array, Array]:
        """Scores' pieces at one θ: gradients (X, D), their outer product, Σ₁ and Δ as matrices (D, D)."""
        p = self.chances(theta)
        s = self.features - (p[..., None] * self.features).sum(1, keepdims=True)
        off = self.rewards - (p * self.rewards).sum(-1, keepdims=True)
        g = ((p * off)[..., None] * s).sum(1)
        outer = g.T @ g / len(g)
        sigma = np.einsum("xa,xad,xae->de", p * off**2, s, s) / len(g) - outer
        fisher = np.einsum("xa,xad,xae->xde", p, s, s)
        delta = ((p * off**2).sum(-1)[:, None, None] * fisher).mean(0) + outer
        return g, outer, sigma, delta

    def gradient(self, theta: Array) -> Array:
        return np.asarray(self.parts(theta)[0].mean(0) - self.ridge * theta)

    def sampled(self, theta: Array, group: int, rng: np.random.Generator) -> Array:
        """A leave-one-out gradient of one random prompt for each θ, (runs, D)."""
        x = rng.integers(2, size=len(theta))
        ladder = np.take_along_axis(self.chances(theta), x[:, None, None], 1)[:, 0].cumsum(-1)
        drawn = (rng.random((len(theta), group, 1)) > ladder[:, None, :-1]).sum(-1)
        r = self.rewards[x[:, None], drawn]
        advantages = (r - r.mean(-1, keepdims=True)) / (group - 1)  # they sum to zero: features stand for scores
        return np.asarray((advantages[:, None] @ self.features[x[:, None], drawn])[:, 0] - self.ridge * theta)


def _limit_law(tell: Tell, runs: int = 2000, steps: int = 1500) -> Derived:
    """Distance of n × gap to the weighted χ² law at the end, and to the law with another group's noise."""
    world, groups, rows = _World(), (2, 8), {}
    best = optimize.root(world.gradient, np.zeros(3), tol=1e-13).x
    slope = -np.stack([(world.gradient(best + e) - world.gradient(best - e)) / 2e-5 for e in 1e-5 * np.eye(3)])
    hessian = (slope + slope.T) / 2
    g, outer, sigma, delta = world.parts(best)
    spread = outer - np.outer(g.mean(0), g.mean(0))
    laws = {
        group: limit.weights(
            hessian, limit.covariance(hessian, limit.noise(spread, sigma, delta, 1, group), world.step)
        ) / 2
        for group in groups
    }  # fmt: skip
    for group in groups:
        tell(f"limit law: {runs:,} runs at G = {group}")
        rng, theta = np.random.default_rng([11, group]), np.tile(best, (runs, 1))
        for n in range(1, steps + 1):
            theta = theta + world.step / (n + 20) * world.sampled(theta, group, rng)
        gaps = steps * (world.objective(best) - world.objective(theta))
        other = groups[1 - groups.index(group)]
        rows[group] = [
            float(stats.kstest(gaps, lambda x, law=laws[of]: limit.cdf(x, law)).statistic) for of in (group, other)
        ]
    least = float(stats.kstwo.ppf(0.99, runs))
    good = all(own < 2 * least and off > 3 * own for own, off in rows.values())
    return Derived(
        "holds" if good else "does not hold",
        "Kolmogorov-Smirnov distance between n × gap and its law: "
        + ", ".join(
            f"{own:.3f} at G = {group} ({off:.2f} to the law of the other group size)"
            for group, (own, off) in rows.items()
        )
        + f"; 99% of samples from the law itself stay below {least:.3f}",
        f"one softmax policy of three parameters, {runs:,} runs of {steps:,} steps each",
    )


CLAIMS = (
    PaperClaim(
        "mse", "u", "The error of the group gradient is (1/P)[V_p + Σ₁/G + Δ/(G(G−1))], like that of a U-statistic",
        f"holds if formula and enumeration differ by less than {ROUNDING:g} in every cell", True,
        "ustat_exactness.py", _mse, "ours",
    ),
    PaperClaim(
        "oracle", "u", "As G grows, the group gradient becomes as good as one that knows the value of each prompt",
        "holds if the ratio of the enumerated errors is 1 + Δ/((G−1)Σ₁) and falls towards 1", True,
        "ustat_deep_network.py", _oracle, "theorem",
    ),
    PaperClaim(
        "group-size", "u", "One group size is best, whatever the budget: G* = 1 + √(Δ/V_p)",
        "holds if the enumerated error is smallest at the same G for three budgets, and that G is next to G*", True,
        "ustat_universality.py", _universal, "theorem",
    ),
    PaperClaim(
        "limit-law", "u", "Near the optimum the gap tends to a weighted χ² law that depends on the group size",
        "holds if the distance to the law is less than twice that of samples from it, and the distance to the law of "
        "another group size is over three times as large", False, "ustat_limit.py", _limit_law, "theorem",
    ),
    PaperClaim(
        "limit-scale", "u", "The covariance of Theorem 8, as printed without η², is that of √n (θ_n − θ*)",
        "does not hold if n Var of an exact recursion is within 1% of the formula with η² at three rates", True,
        "ustat_limit.py", finite_groups.limit_scale, "theorem",
    ),
    PaperClaim(
        "arcsin", "u", "At a fixed G standardized advantages climb 2 arcsin √V (Proposition 13)",
        "does not hold if at G = 8 the enumerated weight of a prompt of success rate 0.1 is not that of arcsin", True,
        "", finite_groups.standardized_objective, "theorem",
    ),
    PaperClaim(
        "finite-baseline", "u", "Under assumption A2 leave-one-out beats no baseline at every G (Corollary 5)",
        "does not hold if an enumerated error without a baseline is less where Cov(r, ‖s‖²) = 0", True,
        "ustat_finite_baseline.py", finite_groups.finite_baseline, "theorem",
    ),
    PaperClaim(
        "shrunk-baseline", "u", "A baseline of λ × the others' mean has the error V_p + [E(r−λV)²‖s‖² − ‖g‖²]/G + "
        "λ²Δ/(G(G−1))", f"holds if formula and enumeration differ by less than {ROUNDING:g}", True, "",
        finite_groups.shrunk_baseline, "ours",
    ),
    PaperClaim(
        "standardized-error", "u", "Standardized gradients have the error tr Σ₁/G of the known deviation (Theorem 12)",
        "in part if G × MSE is below it and agrees with [tr Σ₁ − ¾(1−2V)²‖g‖²/σ⁴] to 1%", True, "",
        penalties.standardized_error, "theorem",
    ),
    PaperClaim(
        "k3-tokens", "u", "A k3 penalty summed over tokens is a penalty of KL(π‖π_ref) (Proposition 13)",
        "does not hold if its pathwise gradient is over 5% off those of both divergences, in the median", True, "",
        penalties.k3_of_tokens, "theorem",
    ),
    PaperClaim(
        "batch-reuse", "u", "Between updates of one batch the squared bias grows as ‖θ − θ_old‖² (Theorem 12)",
        "holds if the slope of its logarithm is within 0.1 of 2 without a ratio and with one per token, in every world",
        True, "offpolicy_between_updates.py", reuse.between_updates, "theorem",
    ),
)  # fmt: skip
