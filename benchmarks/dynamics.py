"""Speed of the dynamics: batched bandits against a loop and against their own arithmetic, fits against SciPy.

    python benchmarks/dynamics.py                   about two minutes on one core

Paired in one process; medians over rounds. Three parts:

bandit   4,096 runs × 1,000 steps × 16 arms, exact and sampled (G = 8). The loop does one run at a time with NumPy
         on arrays of 16 and is timed on a few runs, then scaled. The arithmetic bound is the time of the array
         operations that the mathematics needs, one pass each, timed in the cache by themselves and right before and
         after the run: per step and logit a maximum, a shift, an exp, two weighted sums (normaliser, value), the
         normalisation, the payoff less its mean, the product with π, the step size, and momentum's three (β v, + F,
         θ + v): an exp and ten passes. Sampled, instead of payoff and product: G uniforms per refresh, their G·K
         comparisons with the cumulative policy and as many byte additions, and nine passes (cumulative sum, counts,
         mean, residual, scatter twice, scale, weight, 1/G).
fits     fit.fit of the inertial model (search from four starts, standard errors), against
         `scipy.optimize.curve_fit` from the truth with numerical Jacobians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
from scipy.optimize import curve_fit

from grposcope.instruments.dynamics import fit
from grposcope.instruments.dynamics.bandit import Bandit
from grposcope.instruments.dynamics.oscillator import Oscillator


def timed(work: Callable[[], object]) -> float:
    """CPU seconds of this process during one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def usual(work: Callable[[], object], repeats: int = 31) -> float:
    """Median wall-clock seconds of a call over `repeats` calls."""
    return statistics.median(timed_wall(work) for _ in range(repeats))


def timed_wall(work: Callable[[], object]) -> float:
    """Wall-clock seconds of one call, for work that is too short for the CPU clock."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def one_run(rewards: np.ndarray, lr: float, momentum: float, group: int | None, steps: int, seed: int) -> np.ndarray:
    """Expected reward (steps + 1,) of one run in the obvious way: NumPy on the arrays of one policy."""
    random = np.random.default_rng(seed)
    theta, velocity = np.zeros(len(rewards)), np.zeros(len(rewards))
    value = np.empty(steps + 1)
    for step in range(steps + 1):
        weights = np.exp(theta - theta.max())
        policy = weights / weights.sum()
        value[step] = policy @ rewards
        if group is None:
            force = policy * (rewards - value[step])
        else:
            arms = np.searchsorted(policy.cumsum(), random.random(group)).clip(0, len(rewards) - 1)
            paid = rewards[arms]
            advantage = (paid - paid.mean()) * (group / (group - 1))
            force = np.bincount(arms, advantage, len(rewards)) / group
        velocity = momentum * velocity + force
        theta = theta + lr * velocity
    return value


def arithmetic(arms: int, runs: int, group: int | None) -> float:
    """Seconds per step that the necessary array operations of `runs` runs take, timed on pieces that fit the cache."""
    piece = max(16, 32768 // arms)
    a, b, out = np.random.default_rng(0).standard_normal((3, arms, piece))
    row = a[0].copy()
    one_pass = usual(lambda: np.multiply(a, b, out=out))
    passes = usual(lambda: np.exp(a, out=out)) + (10 if group is None else 17) * one_pass
    if group is not None:
        random, uniforms, edges = np.random.default_rng(0), np.empty((group, piece)), a.copy()
        hits, counts = np.empty((arms, piece), bool), np.zeros((arms, piece), np.uint8)
        passes += usual(lambda: random.random(out=uniforms))
        passes += group * (
            usual(lambda: np.less(row, edges, out=hits)) + usual(lambda: np.add(counts, hits, out=counts))
        )
    return passes * runs / piece


LOOPED = 4
"""Number of runs that the loop is timed on in a round."""


def bandit(rounds: int, runs: int, steps: int, arms: int) -> list[dict]:
    """Time the batched bandits, the loop and the arithmetic bound; a row for exact and one for sampled gradients."""
    rewards = np.random.default_rng(1).random(arms)
    b, rows = Bandit(rewards), []
    for group in (None, 8):
        batched, loops, bounds = [], [], []
        for r in range(rounds):
            bound = arithmetic(arms, runs, group)
            batched.append(timed(lambda g=group: b.simulate(0.1, 0.9, 1, g, steps, np.arange(runs))))
            bounds.append((bound + arithmetic(arms, runs, group)) / 2 * steps)
            loops.append(timed(lambda g=group, r=r: [one_run(rewards, 0.1, 0.9, g, steps, LOOPED * r + i)
                                                      for i in range(LOOPED)]) / LOOPED * runs)  # fmt: skip

        same = b.simulate(0.1, 0.9, 1, None, 50).value[0]
        assert np.allclose(same, one_run(rewards, 0.1, 0.9, None, 50, 0))
        rows.append({
            "gradient": "exact" if group is None else f"sampled, G = {group}",
            "batched s": statistics.median(batched), "loop s": statistics.median(loops),
            "bound s": statistics.median(bounds),
            "loop ÷ batched": statistics.median(x / y for x, y in zip(loops, batched, strict=True)),
            "batched ÷ bound": statistics.median(x / y for x, y in zip(batched, bounds, strict=True)),
        })  # fmt: skip
    return rows


def fits(rounds: int, points: int) -> dict:
    """Time fits of the inertial model, by `fit.fit` and by curve_fit, and the other analyses of the same curve."""
    t = np.arange(float(points))
    truth = Oscillator(1.0, 0.02, 0.0002, 0.2, 0.8).trajectory(t)
    y = truth + 0.05 * np.random.default_rng(2).standard_normal(points)
    fitted = fit.fit(t, y, "inertial")
    start = [fitted.parameters[k].value for k in ("start", "plateau", "time_constant", "damping_ratio")]

    def curve(t: np.ndarray, start: float, plateau: float, tau: float, zeta: float) -> np.ndarray:
        tau, zeta = max(abs(tau), 1e-3), max(abs(zeta), 1e-3)
        return Oscillator((tau / (2 * zeta)) ** 2, tau, 1.0, start, plateau).trajectory(t)

    here, scipy = [], []
    some = 20
    for r in range(rounds):
        curves = truth + 0.05 * np.random.default_rng(10 + r).standard_normal((some, points))
        here.append(timed(lambda c=curves: [fit.fit(t, row, "inertial") for row in c]) / some)
        scipy.append(timed(lambda c=curves: [curve_fit(curve, t, row, start, maxfev=2000) for row in c]) / some)
    return {
        "points": points, "fit s": statistics.median(here), "curve_fit s": statistics.median(scipy),
        "ratio": statistics.median(x / y for x, y in zip(scipy, here, strict=True)),
        "forecast s": statistics.median(timed(lambda: fit.forecast(t, y, points / 2)) for _ in range(rounds)),
    }  # fmt: skip


def main() -> None:
    """Measure and print tables, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--arms", type=int, default=16)
    parser.add_argument("--points", type=int, default=1000)
    arguments = parser.parse_args()
    simulated = bandit(arguments.rounds, arguments.runs, arguments.steps, arguments.arms)
    fitted = fits(arguments.rounds, arguments.points)
    for row in (*simulated, fitted):
        print("; ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
    print(json.dumps({"arguments": vars(arguments), "bandit": simulated, "fit": fitted}))


if __name__ == "__main__":
    main()
