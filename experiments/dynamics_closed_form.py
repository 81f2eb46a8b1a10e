"""Experiment: do closed forms fit reward curves with little noise, and can R² tell the inertial one from its rivals?

Claim    arXiv:2606.30789: the inertial curve explains R² ≥ 0.91 of the reward, over three models and two group sizes.
Command  python experiments/dynamics_closed_form.py --out runs/dynamics_closed_form     a minute on one core; resumable
         … --report prints what is there; … --quick --out FOLDER proves nothing
Method   Three policies over eight answers to each of 64 prompts of 16 random inputs, one answer right: log-linear, one
         layer of 64 tanh units, two layers. RLOO at G = 8 and 16, all prompts in every step, heavy ball with β = 0.9,
         400 steps, twelve seeds each. The step size is such that the run in exact expectation has half of its rise
         behind it at step 80. A reward is the mean of 512 or 1,024 rollouts, so the ceiling of R² is near 1.
Fits     inertial, exponential, logistic and power (`instruments.dynamics.fit`) to the whole run for R², and to its
first half for
         the error on the second: root mean square against the policy's exact expected reward there, ÷ that of the
         mean of the last tenth of the first half ("the last level").
Verdict  fits holds if the ceiling is above 0.95 in every cell and the lower end of the 95 % interval of the inertial R²
         over seeds is at least 0.91 in all six; does not hold if the upper end is below it in one; else cannot tell.
         decides "R² singles out the inertial curve": holds if its R² is higher than each rival's by more than 0.01 in
         all six cells (lower ends of paired intervals); does not hold if a rival is within 0.01 of it, or above, in
         all six (its interval); else cannot tell.
         extrapolates holds if its error is below the last level's and every rival's in all six cells (paired t tests
         of log errors, Holm over the 24); does not hold if one beats it so in some cell; else cannot tell.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from pathlib import Path

import numpy as np
from curve_families import FAMILIES
from numpy.typing import NDArray
from scipy import stats

from grposcope.core.files import dumps, write_json
from grposcope.instruments.dynamics import fit

NETWORKS = {"log-linear": (), "one layer": (64,), "two layers": (64, 64)}
GROUPS, MODELS, BETA = (8, 16), ("inertial", "exponential", "logistic", "power"), 0.9
PROMPTS, INPUTS, ANSWERS = 64, 16, 8


class Policy:
    """A tanh network from inputs (P, I) to logits (P, K), with the right answer of each prompt (P,)."""

    def __init__(self, hidden: tuple[int, ...], seed: int):
        rng = np.random.default_rng([2606, 30789, seed])
        sizes = (INPUTS, *hidden, ANSWERS)
        self.inputs = rng.normal(size=(PROMPTS, INPUTS))
        self.right = np.eye(ANSWERS)[rng.integers(ANSWERS, size=PROMPTS)]
        self.start = [rng.normal(size=s) / math.sqrt(s[0]) for s in itertools.pairwise(sizes)]
        self.start[-1] = self.start[-1] * 0.1  # so that all answers begin about alike

    def forward(self, weights: list[NDArray]) -> tuple[NDArray, list[NDArray]]:
        """Probabilities (P, K), and the input of every layer."""
        values = [self.inputs]
        for w in weights[:-1]:
            values.append(np.tanh(values[-1] @ w))
        logits = values[-1] @ weights[-1]
        exp = np.exp(logits - logits.max(1, keepdims=True))
        return exp / exp.sum(1, keepdims=True), values

    def gradient(self, weights: list[NDArray], values: list[NDArray], back: NDArray) -> list[NDArray]:
        """Gradient of the sum of back (P, K) × logits."""
        found = []
        for w, value in zip(weights[::-1], values[::-1], strict=True):
            found.append(value.T @ back)
            back = back @ w.T * (1 - value**2)  # of the inputs it is not used
        return found[::-1]

    def train(self, lr: float, steps: int, group: int | None, seed: int) -> tuple[NDArray, NDArray]:
        """Mean reward of the rollouts and expected reward at each step; group None is exact expectation."""
        rng, weights, observed, expected = np.random.default_rng(seed), self.start, [], []
        velocity = [np.zeros_like(w) for w in weights]
        for _ in range(steps):
            p, values = self.forward(weights)
            expected.append(float((p * self.right).sum(1).mean()))
            counts = p if group is None else rng.multinomial(group, p)
            mean = (counts * self.right).sum(1, keepdims=True) / (group or 1)
            observed.append(float(mean.mean()))
            back = counts * (self.right - mean) / (group - 1 if group else 1) / PROMPTS  # sums to zero
            moves = self.gradient(weights, values, back)
            velocity = [BETA * v + m for v, m in zip(velocity, moves, strict=True)]
            weights = [w + lr * v for w, v in zip(weights, velocity, strict=True)]
        return np.array(observed), np.array(expected)

    def step_size(self, steps: int) -> float:
        """The η at which half of the rise in exact expectation lies behind a run at a fifth of its steps."""
        low, high = -4.0, 3.0
        for _ in range(14):
            middle = (low + high) / 2
            curve = self.train(10**middle, steps, None, 0)[1]
            soon = np.argmax(curve - curve[0] >= (curve.max() - curve[0]) / 2) < steps / 5
            early = bool(soon) and curve[-1] > 0.8 * curve.max()
            low, high = (low, middle) if early else (middle, high)
        return 10**high


def studied(name: str, seed: int, steps: int) -> dict:
    """R² of every curve and its error on the second half, for both group sizes."""
    policy = Policy(NETWORKS[name], seed)
    lr, n = policy.step_size(steps), np.arange(1, steps + 1)
    rows = []
    for group in GROUPS:
        observed, expected = policy.train(lr, steps, group, seed)
        half = steps // 2
        level = observed[half - half // 10 : half].mean()
        row = {"group": group, "ceiling": fit.noise_ceiling(n, observed).value, "start": expected[0],
               "end": expected[-1], "level": float(np.sqrt(((level - expected[half:]) ** 2).mean()))}  # fmt: skip
        for model in MODELS:
            ahead = fit.fit(n[:half], observed[:half], FAMILIES[model]).predict(n[half:])
            row[model] = {"r2": fit.fit(n, observed, FAMILIES[model]).r2,
                          "error": float(np.sqrt(((ahead - expected[half:]) ** 2).mean()))}  # fmt: skip
        rows.append(row | {"rewards": observed.tolist()})
    return {"network": name, "seed": seed, "lr": lr, "rows": rows}


def interval(values: NDArray) -> tuple[float, float, float]:
    """Mean and its 95 % t interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return float(values.mean()), float(values.mean() - half), float(values.mean() + half)


def report(folder: Path) -> None:
    """Table and verdicts; the last line is JSON."""
    runs = [json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))]
    cells = [(name, k) for name in NETWORKS for k in range(len(GROUPS)) if sum(r["network"] == name for r in runs) > 1]
    if not cells:
        print("nothing to report")
        return
    print("| network | G | seeds | reward | ceiling | " + " | ".join(f"R², {m}" for m in MODELS)
          + " | " + " | ".join(f"error ÷ last level, {m}" for m in MODELS) + " |\n" + "|---" * 13 + "|")  # fmt: skip
    reach, gaps, tests = [], {m: [] for m in MODELS[1:]}, []
    for name, k in cells:
        own = [r["rows"][k] for r in runs if r["network"] == name]
        r2 = {m: np.array([o[m]["r2"] for o in own]) for m in MODELS}
        errors = {m: np.log([o[m]["error"] for o in own]) for m in MODELS} | {
            "level": np.log([o["level"] for o in own])
        }
        ceiling = np.array([o["ceiling"] for o in own])
        reach.append((float(ceiling.min()), *interval(r2["inertial"])))
        for m in MODELS[1:]:
            gaps[m].append(interval(r2["inertial"] - r2[m]))
        for m in (*MODELS[1:], "level"):
            d = errors["inertial"] - errors[m]
            tests.append((name, GROUPS[k], m, float(d.mean()), float(stats.ttest_1samp(d, 0.0).pvalue)))
        shown = [f"{r2[m].mean():.3f} ({r2[m].min():.3f})" for m in MODELS]
        shown += ["{:.2f} [{:.2f}, {:.2f}]".format(*np.exp(interval(errors[m] - errors["level"]))) for m in MODELS]
        print(f"| {name} | {GROUPS[k]} | {len(own)} | {np.mean([o['start'] for o in own]):.2f} → "
              f"{np.mean([o['end'] for o in own]):.2f} | {ceiling.mean():.3f} ({ceiling.min():.3f}) | "
              f"{' | '.join(shown)} |")  # fmt: skip
    order, running, judged = sorted(tests, key=lambda t: t[4]), 0.0, []
    for rank, (*what, mean, p) in enumerate(order):
        running = max(running, min(1.0, (len(order) - rank) * p))
        judged.append((*what, mean, running))
    better = [t for t in judged if t[3] < 0 and t[4] < 0.05]
    worse = [t for t in judged if t[3] > 0 and t[4] < 0.05]
    whole = len(cells) == 6
    fits = all(c > 0.95 and low >= 0.91 for c, _, low, _ in reach) and whole
    single = all(low > 0.01 for rows in gaps.values() for _, low, _ in rows) and whole
    alike = [m for m, rows in gaps.items() if all(high < 0.01 for *_, high in rows)]
    says = "does not hold: " + ", ".join(f"{t[2]} better for {t[0]}, G = {t[1]}" for t in worse)
    says = says if worse else "holds" if len(better) == 24 else "cannot tell"
    verdicts = {
        "fits": "holds" if fits else "does not hold" if any(high < 0.91 for *_, high in reach) else "cannot tell",
        "decides": "holds" if single else f"does not hold: {', '.join(alike)}" if alike else "cannot tell",
        "extrapolates": f"{says}; better in {len(better)} of {len(judged)} comparisons",
    }  # fmt: skip
    for m, rows in gaps.items():
        print(f"R² inertial less {m}: " + ", ".join(f"{v:+.4f} [{low:+.4f}, {high:+.4f}]" for v, low, high in rows))
    for name, said in verdicts.items():
        print(f"{name}: {said}")
    print(dumps({"verdicts": verdicts, "r2": reach, "gaps": gaps, "tests": judged}))


def main() -> None:
    """Train what is missing, then report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/dynamics_closed_form"), help="folder of the results")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--quick", action="store_true", help="a smoke test at a scale that proves nothing")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.quick:
        given.seeds, given.steps = 2, 120
    for name in NETWORKS:
        for seed in range(given.seeds):
            path = given.out / f"{name.replace(' ', '-')}-{seed}.json"
            if not given.report and not path.exists():
                write_json(path, studied(name, seed, given.steps))
    report(given.out)


if __name__ == "__main__":
    main()
