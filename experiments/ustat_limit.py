"""Does the suboptimality gap tend to the weighted χ² law, with the group size in its noise?

Claim    For steps η/n near the optimum, n · gap → ½ Σ λ_i χ²₁, λ the eigenvalues of H^{1/2} S H^{1/2}, S from the
         Lyapunov equation with C = (1/P)[V_p + Σ₁/G + Δ/(G(G−1))] as matrices (arXiv:2603.01162, Theorem 8).
Command  python experiments/ustat_limit.py               about five minutes on one core
Method   Two prompts of four answers that share three parameters; the objective is E r − ½ ρ ‖θ‖², which has one
         optimum inside. Real leave-one-out gradients from sampled groups, `runs` independent runs side by side,
         steps η/(n + n₀). Kolmogorov-Smirnov distance of n · gap to the law at n = 30, 100, …; for comparison the
         distance to the law with another group's noise, which has to stay.
Verdict  holds if the distance falls to the size that `runs` draws of the law itself have (95 % point), for every G.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from grposcope.core.files import dumps
from grposcope.instruments.group_size import limit

RIDGE, STEP = 0.3, 4.0


@dataclass(frozen=True)
class Softmax:
    """features (X, A, D), rewards (X, A); every prompt is equally likely."""

    features: NDArray
    rewards: NDArray

    def chances(self, theta: NDArray) -> NDArray:
        """Probabilities (…, X, A) at parameters (…, D)."""
        logits = np.einsum("xad,...d->...xa", self.features, theta)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def objective(self, theta: NDArray) -> NDArray:
        """E r − ½ ρ ‖θ‖²."""
        value = (self.chances(theta) * self.rewards).sum(-1).mean(-1)
        return value - RIDGE / 2 * (theta**2).sum(-1)

    def gradient(self, theta: NDArray) -> NDArray:
        """Exact gradient of the objective at one θ (D,)."""
        p = self.chances(theta)
        centred = self.rewards - (p * self.rewards).sum(-1, keepdims=True)
        return np.einsum("xa,xa,xad->d", p, centred, self.features) / len(p) - RIDGE * theta

    def noise(self, theta: NDArray, group: int) -> NDArray:
        """Covariance C (D, D) of the gradient of one prompt and `group` rollouts, from Σ₁, Δ and the spread of g."""
        p = self.chances(theta)
        s = self.features - np.einsum("xa,xad->xd", p, self.features)[:, None]
        off = self.rewards - (p * self.rewards).sum(-1, keepdims=True)
        g = np.einsum("xa,xa,xad->xd", p, off, s)
        outer = np.einsum("xd,xe->de", g, g) / len(g)
        oracle = np.einsum("xa,xad,xae->de", p * off**2, s, s) / len(g) - outer
        residual = np.einsum("x,xa,xad,xae->de", (p * off**2).sum(-1), p, s, s) / len(g) + outer
        return limit.noise(outer - np.outer(g.mean(0), g.mean(0)), oracle, residual, 1, group)

    def sampled(self, theta: NDArray, group: int, rng: np.random.Generator) -> NDArray:
        """A leave-one-out gradient of one random prompt for each θ (runs, D)."""
        x = rng.integers(len(self.rewards), size=len(theta))
        weights = np.exp((self.features[x] @ theta[:, :, None])[..., 0])  # (runs, A)
        ladder = weights.cumsum(-1)
        drawn = rng.random((len(theta), group, 1)) * ladder[:, None, -1:]
        a = (drawn > ladder[:, None, :-1]).sum(-1)  # (runs, G)
        r = self.rewards[x[:, None], a]
        advantages = (r - r.mean(-1, keepdims=True)) / (group - 1)
        # Σ A = 0, so features stand for scores
        return (advantages[:, None] @ self.features[x[:, None], a])[:, 0] - RIDGE * theta


def simulate(policy: Softmax, best: NDArray, group: int, runs: int, marks: list[int], seed: int) -> dict[int, NDArray]:
    """n · (J(θ*) − J(θ_n)) of every run at each of the marks."""
    rng, scaled = np.random.default_rng([seed, group]), {}
    theta, delay = np.tile(best, (runs, 1)), 20
    for n in range(1, max(marks) + 1):
        theta = theta + STEP / (n + delay) * policy.sampled(theta, group, rng)
        if n in marks:
            scaled[n] = n * (policy.objective(best) - policy.objective(theta))
    return scaled


def main() -> None:
    """Simulate, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--groups", type=int, nargs="+", default=(2, 4, 16))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, began = np.random.default_rng(7), time.perf_counter()
    policy = Softmax(rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 4)))
    best = optimize.root(policy.gradient, np.zeros(3), tol=1e-13).x
    hessian = -np.stack([(policy.gradient(best + e) - policy.gradient(best - e)) / 2e-5 for e in 1e-5 * np.eye(3)])
    hessian = (hessian + hessian.T) / 2
    print(f"curvature {np.linalg.eigvalsh(hessian)}, step × least = {STEP * np.linalg.eigvalsh(hessian)[0]:.2f}")
    marks = [n for n in (30, 100, 300, 1000, 3000, 10000, 30000) if n <= arguments.steps]
    threshold = stats.kstwo.ppf(0.95, arguments.runs)
    laws = {
        g: limit.weights(hessian, limit.covariance(hessian, policy.noise(best, g), STEP)) / 2 for g in arguments.groups
    }
    rows: list[dict] = []
    for group in arguments.groups:
        print(f"G = {group}: {time.perf_counter() - began:.0f} s", flush=True)
        other = next(g for g in arguments.groups if g != group)

        def distance(gaps: NDArray, law: NDArray) -> float:
            return float(stats.kstest(gaps, lambda x: limit.cdf(x, law)).statistic)

        for n, gaps in simulate(policy, best, group, arguments.runs, marks, arguments.seed).items():
            rows.append({
                "group": group, "n": n, "distance": distance(gaps, laws[group]),
                "other": distance(gaps, laws[other]), "other_group": other,
                "mean": gaps.mean(), "mean_se": gaps.std() / len(gaps) ** 0.5, "law_mean": laws[group].sum(),
                "q95": np.quantile(gaps, 0.95), "law_q95": limit.quantile(0.95, laws[group]),
            })  # fmt: skip
    print("| G | n | KS distance | KS to the law of another G | mean n·gap | law | 95 % point | law |")
    print("|---|---|---|---|---|---|---|---|")
    for r in rows:
        distances = f"{r['distance']:.4f} | {r['other']:.3f} (G = {r['other_group']})"
        means = f"{r['mean']:.4g} ± {r['mean_se']:.1g} | {r['law_mean']:.4g}"
        print(f"| {r['group']} | {r['n']} | {distances} | {means} | {r['q95']:.4g} | {r['law_q95']:.4g} |")
    last = {g: [r["distance"] for r in rows if r["group"] == g] for g in arguments.groups}
    holds = all(d[-1] <= threshold and d[-1] < d[0] for d in last.values())
    print(f"95 % point of the distance for {arguments.runs} draws of the law itself: {threshold:.4f}")
    print(f"verdict: {'holds' if holds else 'does not hold at this n'}")
    rows = [{k: float(v) for k, v in r.items()} for r in rows]
    print(dumps({"holds": holds, "threshold": float(threshold), "rows": rows, "arguments": vars(arguments)}))


if __name__ == "__main__":
    main()
