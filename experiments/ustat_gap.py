"""The gap of a learned policy: which constant, how tight a bound, and is the group mean the best that can be done?

Claim    arXiv:2603.01162: the suboptimality gap of a policy trained by GRPO at decreasing step sizes has a bound at
         finite n and a limit law, those of an oracle that knows the value function, which is asymptotically optimal in
         a broad class of policy gradients. (Its abstract; bound and class are written out here as we read them.)
Command  python experiments/ustat_gap.py --out runs/ustat_gap           a quarter of an hour on one core; resumable,
         a file per world; --report prints what is there, --quick --out FOLDER proves nothing
Method   Eight worlds: three prompts of five answers that share four parameters, random features and binary rewards;
         the objective is E r − 0.3/2 ‖θ‖². `runs` policies each are trained from θ = 0 with steps η/(n + n₀),
         η = 2/(least curvature), n₀ = 2η·(most curvature), on one random prompt and G rollouts a step, by
           group      leave-one-out advantages             oracle     r − V(x), the value at every step
           reinforce  r                                    best       r − b(x), constants that make the limit least
           standard   (r − mean)/spread, its overall scale undone
         Exact limits: n · gap → ½ tr(H S) = ½ tr(W C) with W = η² H (2ηH − I)⁻¹, C the noise of the method; the best
         constant is b(x) = E[r s'Ws]/E[s'Ws]. The size of group that is best for the gap is 1 + √(tr WΔ/tr WV_p).
         Prediction at finite n: the covariance (I − η_n H) Σ (I − η_n H) + η_n² C, followed from the start.
         Bound: J is L-smooth and ‖∇J‖² ≥ 2μ gap, so e ← (1 − 2μη(1 − Lη/2)) e + ½Lη² M, with the worst μ, L and
         M = tr C of all policies that were met.
Verdicts, one per claim; the worlds are the units, intervals are t intervals of means of logarithms over worlds
  law      holds if for every world, every unbiased method and G the mean of n · gap at the last n is within 5 % or 3
           standard errors of the limit's, and the Kolmogorov-Smirnov distance is at most 0.05
  rate     holds if the interval of the slope of log gap on log n over the last decade lies in [−1.1, −0.9]
  bound    holds if the gap never exceeds it by more than 3 standard errors; its tightness is told, not judged
  oracle   group ÷ oracle: holds for large groups if the interval at G = 32 lies in [0.95, 1.05]; holds for every group
           if it does so at G = 2, does not hold for every group if at G = 2 it lies above 1.05
  optimal  does not hold, read as "no baseline does better than the value", if for some world the best constant has a
           limit at least 1 % less than the oracle's, and simulated best ÷ oracle at G = 8 lies below 1; else holds
  standard (ten times as many steps, 400 runs) its gap does not vanish if in every world it ends within 25 % or 3
           standard errors of the exact J(θ*) − J(θ_std) > 0; it vanishes if it ends below half of that in every world
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats
from ustat_limit import RIDGE, Softmax

from grposcope.core.files import dumps, write_json
from grposcope.instruments.group_size import limit

GROUPS, METHODS, MARKS, X = (
    (2, 8, 32),
    ("group", "oracle", "reinforce", "best"),
    (30, 100, 300, 1000, 3000, 30000),
    0.05,
)


class World:
    """One policy class with its optimum θ*, curvature H, weight W and the best constants."""

    def __init__(self, seed: int):
        rng = np.random.default_rng([2603, seed])
        while True:
            rewards = (rng.random((3, 5)) < 0.4).astype(float)
            features = rng.normal(size=(3, 5, 4))
            self.policy = Softmax(features, rewards)
            if not ((rewards.sum(1) > 0) & (rewards.sum(1) < 5)).all():
                continue
            ends = [self.root(self.policy.gradient, start) for start in (np.zeros(4), *rng.normal(size=(12, 4)) * 2)]
            if np.ptp(np.array(ends), axis=0).max() < 1e-6:  # one optimum, reached from everywhere
                break
        self.best = ends[0]
        self.hessian = -self.slope(self.policy.gradient, self.best)
        curvatures = np.linalg.eigvalsh(self.hessian)
        self.step = 2 / curvatures[0]
        self.delay = 2 * self.step * curvatures[-1]
        self.weight = self.step**2 * self.hessian @ np.linalg.inv(2 * self.step * self.hessian - np.eye(4))
        p, s = self.scores(self.best)
        size = np.einsum("xad,de,xae->xa", s, self.weight, s) * p
        self.constants = (size * rewards).sum(1) / size.sum(1)

    @staticmethod
    def root(field, start: NDArray) -> NDArray:
        """Where an ascent along the field ends."""
        theta = start
        for _ in range(400):
            theta = theta + 0.5 * field(theta)
        return optimize.root(field, theta, tol=1e-13).x

    @staticmethod
    def slope(field, theta: NDArray) -> NDArray:
        """Symmetrised Jacobian of a field of four parameters, by central differences."""
        found = np.stack([(field(theta + e) - field(theta - e)) / 2e-5 for e in 1e-5 * np.eye(4)])
        return (found + found.T) / 2

    def scores(self, theta: NDArray) -> tuple[NDArray, NDArray]:
        """Probabilities (X, A) and scores (X, A, D)."""
        p = self.policy.chances(theta)
        return p, self.policy.features - np.einsum("xa,xad->xd", p, self.policy.features)[:, None]

    def parts(self, theta: NDArray, baseline: NDArray | None = None) -> tuple[NDArray, NDArray, NDArray]:
        """Cov_x g, Σ₁ and Δ as matrices (D, D); Σ₁ with a baseline (X,) other than the value if one is given."""
        p, s = self.scores(theta)
        r, value = self.policy.rewards, (p * self.policy.rewards).sum(1)
        g = np.einsum("xa,xa,xad->xd", p, r - value[:, None], s)
        outer = np.einsum("xd,xe->de", g, g) / len(g)
        off = r - (value if baseline is None else baseline)[:, None]
        sigma = np.einsum("xa,xad,xae->de", p * off**2, s, s) / len(g) - outer
        spread = (p * (r - value[:, None]) ** 2).sum(1)
        residual = np.einsum("x,xa,xad,xae->de", spread, p, s, s) / len(g) + outer
        return outer - np.outer(g.mean(0), g.mean(0)), sigma, residual

    def noise(self, theta: NDArray, method: str, group: int) -> NDArray:
        """Covariance C of a step's gradient."""
        constants = {"reinforce": np.zeros(3), "best": self.constants}.get(method)
        across, sigma, residual = self.parts(theta, constants)
        if method == "group":
            return limit.noise(across, sigma, residual, 1, group)
        return across + sigma / group

    def scale(self, group: int, theta: NDArray | None = None) -> NDArray:
        """Expected factor (X,) of standardizing on a prompt's gradient: w_G(p) = E √(K/G (1 − K/G)) / p(1 − p)."""
        p = (self.policy.chances(self.best if theta is None else theta) * self.policy.rewards).sum(1)
        k = np.arange(group + 1)
        return stats.binom.pmf(k, group, p[:, None]) @ np.sqrt(k / group * (1 - k / group)) / (p * (1 - p))

    def standardized(self, theta: NDArray, group: int) -> NDArray:
        """Expected field of standardized advantages, divided by the mean scale at the optimum."""
        p = self.policy.chances(theta)
        centred = self.policy.rewards - (p * self.policy.rewards).sum(-1, keepdims=True)
        g = np.einsum("xa,xa,xad->xd", p, centred, self.policy.features)
        return self.scale(group, theta) @ g / 3 / self.scale(group).mean() - RIDGE * theta

    def sampled(self, theta: NDArray, method: str, group: int, rng: np.random.Generator) -> NDArray:
        """A gradient of one random prompt for each θ (runs, D)."""
        x = rng.integers(3, size=len(theta))
        features, r = self.policy.features[x], self.policy.rewards[x]
        p = np.exp(np.einsum("nad,nd->na", features, theta))
        p /= p.sum(1, keepdims=True)
        counts = rng.multinomial(group, p)
        if method in ("group", "standard"):
            mean = (counts * r).sum(1, keepdims=True) / group
            credit = counts * (r - mean) / (group - 1)
            if method == "standard":
                spread = np.sqrt(mean * (1 - mean))  # of rewards 0 and 1
                credit = credit * (group - 1) / group / np.where(spread > 0, spread, 1) / self.scale(group).mean()
        else:
            value = (p * r).sum(1) if method == "oracle" else self.constants[x] if method == "best" else 0 * x
            credit = counts * (r - value[:, None]) / group
            credit = credit - p * credit.sum(1, keepdims=True)  # Σ A s with s = φ − E φ
        return np.einsum("na,nad->nd", credit, features) - RIDGE * theta


def predicted(world: World, noise: NDArray, steps: int) -> dict[int, float]:
    """½ tr(H Σ_n) of the linear recursion from θ = 0, at the marks."""
    moment, found = np.outer(world.best, world.best), {}
    for n in range(1, steps + 1):
        rate = world.step / (n + world.delay)
        shrink = np.eye(4) - rate * world.hessian
        moment = shrink @ moment @ shrink + rate**2 * noise
        if n in MARKS:
            found[n] = 0.5 * float(np.trace(world.hessian @ moment))
    return found


def bounded(
    world: World, met: NDArray, method: str, group: int, steps: int
) -> tuple[dict[int, float], dict[str, float]]:
    """The bound at the marks, and μ, L and M, the worst of the policies that were met (k, D)."""
    gap = world.policy.objective(world.best) - world.policy.objective(met)
    steep = np.array([(world.policy.gradient(t) ** 2).sum() for t in met])
    mu = float((steep / (2 * gap))[gap > 1e-9].min())
    some = met[:: max(1, len(met) // 300)]
    smooth = max(float(np.abs(np.linalg.eigvalsh(world.slope(world.policy.gradient, t))).max()) for t in some)
    most = max(float(np.trace(world.noise(t, method, group))) for t in some)
    bound, found = float(world.policy.objective(world.best) - world.policy.objective(np.zeros(4))), {}
    for n in range(1, steps + 1):
        rate = world.step / (n + world.delay)
        bound = (1 - 2 * mu * rate * (1 - smooth * rate / 2)) * bound + 0.5 * smooth * rate**2 * most
        if n in MARKS:
            found[n] = bound
    return found, {"mu": mu, "smooth": smooth, "noise": most}


def simulate(
    world: World, method: str, group: int, runs: int, steps: int, seed: int
) -> tuple[dict[int, NDArray], NDArray]:
    """Gaps of all runs at the marks, and policies that were met on the way (k, D)."""
    rng, theta = np.random.default_rng([seed, GROUPS.index(group), len(method)]), np.zeros((runs, 4))
    top, gaps, met = world.policy.objective(world.best), {}, [theta[:1]]
    for n in range(1, steps + 1):
        theta = theta + world.step / (n + world.delay) * world.sampled(theta, method, group, rng)
        if n in MARKS:
            gaps[n] = top - world.policy.objective(theta)
        if n < 10 or n in MARKS or n == 60:
            met.append(theta[:: max(1, runs // 200)])
    return gaps, np.concatenate(met)


def studied(seed: int, runs: int, steps: int) -> dict:
    """All of one world."""
    world, cells = World(seed), []
    prompts, _, residual = world.parts(world.best)
    for method in (*METHODS, "standard"):
        for group in GROUPS if method != "standard" else (8,):
            some, most = (runs, steps) if method != "standard" else (min(runs, 400), 10 * steps)
            gaps, met = simulate(world, method, group, some, most, seed)
            cell = {"method": method, "group": group, "mean": {n: float(g.mean()) for n, g in gaps.items()},
                    "se": {n: float(g.std(ddof=1) / math.sqrt(some)) for n, g in gaps.items()}}  # fmt: skip
            if method == "standard":
                end = world.root(lambda t: world.standardized(t, 8), world.best)
                cell["floor"] = float(world.policy.objective(world.best) - world.policy.objective(end))
            else:
                noise = world.noise(world.best, method, group)
                law = limit.weights(world.hessian, limit.covariance(world.hessian, noise, world.step)) / 2
                assert abs(law.sum() / (np.trace(world.weight @ noise) / 2) - 1) < 1e-6
                cell["limit"] = float(law.sum())
                cell["distance"] = {n: float(stats.kstest(n * g, lambda x: limit.cdf(x, law)).statistic)  # noqa: B023
                                    for n, g in gaps.items()}  # fmt: skip
                cell["predicted"] = predicted(world, noise, steps)
                cell["bound"], cell["constants"] = bounded(world, met, method, group, steps)
            cells.append(cell)
    return {"seed": seed, "runs": runs, "cells": cells, "step": world.step, "delay": world.delay,
            "curvature": np.linalg.eigvalsh(world.hessian).tolist(),
            "solved": (world.policy.chances(world.best) * world.policy.rewards).sum(1).tolist(),
            "best group by MSE": 1 + math.sqrt(np.trace(residual) / np.trace(prompts)),
            "best group by gap": 1 + math.sqrt(np.trace(world.weight @ residual) / np.trace(world.weight @ prompts)),
            }  # fmt: skip


def across(values: list[float]) -> tuple[float, float, float]:
    """Geometric mean over worlds with its t interval."""
    logs = np.log(values)
    half = stats.t.ppf(0.975, len(logs) - 1) * stats.sem(logs)
    return float(np.exp(logs.mean())), float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))


def shown(triple: tuple[float, float, float]) -> str:
    """A geometric mean and its interval."""
    return f"{triple[0]:.3f} [{triple[1]:.3f}, {triple[2]:.3f}]"


def within(triple: tuple[float, float, float], low: float, high: float) -> bool:
    """Whether the interval of a triple lies between two numbers."""
    return low <= triple[1] and triple[2] <= high


def held(yes: bool) -> str:
    """A verdict."""
    return "holds" if yes else "does not hold"


def report(folder: Path) -> None:
    """Tables and verdicts of the worlds that are there; the last line is JSON."""
    worlds = [json.loads(p.read_text()) for p in sorted(folder.glob("world-*.json"))]
    if len(worlds) < 2:
        print("fewer than two worlds: nothing to compare")
        return
    cell = [{(c["method"], c["group"]): c for c in w["cells"]} for w in worlds]
    marks = list(cell[0]["group", 2]["mean"])
    last, keys = marks[-1], [(m, g) for m in METHODS for g in GROUPS]

    def end(key: tuple[str, int], name: str = "mean") -> list[float]:
        return [c[key][name][last] for c in cell]

    print(f"{len(worlds)} worlds, {worlds[0]['runs']} runs; geometric means over worlds of n · gap ÷ its limit\n")
    names = ["method", "G", *(f"n = {n}" for n in marks), f"÷ linear recursion, n = {marks[0]}, {last}",
             f"bound ÷ gap at n = {last} (worst)", "largest KS distance", "limit ÷ oracle's"]  # fmt: skip
    print(f"| {' | '.join(names)} |\n" + "|---" * len(names) + "|")
    law, slopes, exceeded = [], [], 0
    for key in keys:
        ratios = [[int(n) * c[key]["mean"][n] / c[key]["limit"] for c in cell] for n in marks]
        linear = [across([c[key]["mean"][n] / c[key]["predicted"][n] for c in cell])[0] for n in (marks[0], last)]
        loose = [c[key]["bound"][last] / c[key]["mean"][last] for c in cell]
        distance = end(key, "distance")
        limits = across([c[key]["limit"] / c["oracle", key[1]]["limit"] for c in cell])[0]
        print(f"| {key[0]} | {key[1]} | " + " | ".join(f"{across(r)[0]:.3f}" for r in ratios)
              + f" | {linear[0]:.3f}, {linear[1]:.3f} | {across(loose)[0]:.1f} ({max(loose):.1f}) | "
              f"{max(distance):.3f} | {limits:.3f} |")  # fmt: skip
        for c, ratio, d in zip(cell, ratios[-1], distance, strict=True):
            near = max(0.05, 3 * c[key]["se"][last] / c[key]["mean"][last])
            law.append(abs(ratio - 1) <= near and d <= 0.05)
            exceeded += sum(c[key]["mean"][n] - 3 * c[key]["se"][n] > c[key]["bound"][n] for n in marks)
    for c in cell:
        x = np.log([int(n) for n in marks if int(n) >= int(last) / 10])
        y = [np.mean([np.log(c[k]["mean"][n]) for k in keys]) for n in marks if int(n) >= int(last) / 10]
        slopes.append(float(np.polyfit(x, y, 1)[0]))
    half = float(stats.t.ppf(0.975, len(slopes) - 1) * stats.sem(slopes))
    slope = float(np.mean(slopes))
    to_oracle = {g: across([a / b for a, b in zip(end(("group", g)), end(("oracle", g)), strict=True)]) for g in GROUPS}
    better = across([a / b for a, b in zip(end(("best", 8)), end(("oracle", 8)), strict=True)])
    worse = across([a / b for a, b in zip(end(("reinforce", 8)), end(("oracle", 8)), strict=True)])
    exact = [c["best", 8]["limit"] / c["oracle", 8]["limit"] for c in cell]
    standard = [c["standard", 8] for c in cell]
    far = list(standard[0]["mean"])[-1]
    ends = [(c["mean"][far] / c["floor"], c["se"][far] / c["floor"]) for c in standard]
    vanishes, stays = all(gap < 0.5 for gap, _ in ends), all(abs(gap - 1) < max(0.25, 3 * se) for gap, se in ends)
    few = "does not hold" if to_oracle[2][1] > 1.05 else "holds" if within(to_oracle[2], 0.95, 1.05) else "cannot tell"
    beats = min(exact) <= 0.99 and better[2] < 1
    verdicts = {
        "law": f"{held(all(law))}: {sum(law)} of {len(law)} cells",
        "rate": f"{held(within((slope, slope - half, slope + half), -1.1, -0.9))}: slope {slope:.3f} ± {half:.3f}",
        "bound": f"{held(not exceeded)}: exceeded {exceeded} times",
        "oracle": f"large groups: {held(within(to_oracle[32], 0.95, 1.05))}; every group: {few}; "
                  + ", ".join(f"G = {g}: {shown(t)}" for g, t in to_oracle.items()),
        "optimal": f"{held(not beats)}: best ÷ oracle at G = 8 {shown(better)}, exact {min(exact):.3f} to "
                   f"{max(exact):.3f}; reinforce ÷ oracle {shown(worse)}",
        "standard": ("vanishes" if vanishes else "does not vanish" if stays else "cannot tell")
                    + f": at n = {far} the gap ÷ its exact floor is "
                    + ", ".join(f"{gap:.2f} ± {se:.2f}" for gap, se in ends)
                    + f"; leave-one-out's limit ÷ {far}, ÷ that floor: "
                    + ", ".join(f"{c['group', 8]['limit'] / int(far) / c['standard', 8]['floor']:.2f}" for c in cell),
    }  # fmt: skip
    print("\n| world | success at θ* | curvature | best G by the MSE | by the gap | best ÷ oracle, exact limit, G = 8 |"
          "\n|---|---|---|---|---|---|")  # fmt: skip
    for w, e in zip(worlds, exact, strict=True):
        bend = f"{w['curvature'][0]:.2f} to {w['curvature'][-1]:.2f}"
        print(f"| {w['seed']} | {', '.join(f'{p:.2f}' for p in w['solved'])} | {bend} | "
              f"{w['best group by MSE']:.2f} | {w['best group by gap']:.2f} | {e:.3f} |")  # fmt: skip
    for name, said in verdicts.items():
        print(f"{name}: {said}")
    print(dumps({"verdicts": verdicts, "slopes": slopes, "to_oracle": to_oracle, "best": better, "reinforce": worse}))


def main() -> None:
    """Make the worlds that are missing, then report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/ustat_gap"), help="folder of the results")
    parser.add_argument("--worlds", type=int, default=8)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--report", action="store_true", help="simulate nothing")
    parser.add_argument("--quick", action="store_true", help="a smoke test at a scale that proves nothing")
    given = parser.parse_args()
    if given.quick:
        given.worlds, given.runs, given.steps = 2, 40, 300
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in range(given.worlds):
        path, began = given.out / f"world-{seed}.json", time.perf_counter()
        if not given.report and not path.exists():
            write_json(path, studied(seed, given.runs, given.steps))
            print(f"world {seed}: {time.perf_counter() - began:.0f} s", flush=True)
    report(given.out)


if __name__ == "__main__":
    main()
