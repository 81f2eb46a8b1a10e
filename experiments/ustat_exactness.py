"""Are the formulas for the error of a GRPO gradient equalities?

Claim    MSE = (1/P)[V_p + Σ₁/G + Δ/(G(G−1))] for the leave-one-out gradient (arXiv:2603.01162 has it up to O(1/G²)),
         and its neighbours for other baselines; `moments.from_gram` estimates Σ₁, Δ, V_p, ‖g‖² without bias.
Command  python experiments/ustat_exactness.py           about two minutes on one core
Method   Softmax policies of two prompts with three answers: every outcome of P groups of G is listed with its
         probability, and so is every probe of 2 prompts × 4 rollouts. No sampling anywhere.
Verdict  holds if no difference exceeds 1e-10.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from grposcope.core.files import dumps
from grposcope.instruments.group_size import mse
from grposcope.maths import moments
from reference import ustat_policies
from reference.ustat_policies import SmallPolicy

GROUPS, PROMPTS, LIMIT = (2, 3, 4, 8), (1, 2, 4), 1e-10


def predicted(truth: dict[str, float], prompts: int, group: int) -> dict[str, float]:
    """The MSE of every estimator by the formulas, at the exact moments."""
    v, s, d, mean2 = (truth[name] for name in ("prompt_variance", "sigma1", "delta", "mean2"))
    loo = (v + s / group + d / (group * (group - 1))) / prompts
    return {
        "leave-one-out": loo,
        "centered": ((group - 1) / group) ** 2 * loo + mean2 / group**2,
        "no baseline": (v + (truth["raw"] - truth["g2"]) / group) / prompts,
    }


ESTIMATORS = {
    "leave-one-out": ustat_policies.leave_one_out,
    "centered": ustat_policies.centered,
    "no baseline": ustat_policies.with_baseline(lambda score: 0 * score[0]),
}


def errors() -> list[dict]:
    """Predicted and enumerated error of every estimator at every P and G."""
    rows = []
    for binary, group, prompts in itertools.product((False, True), GROUPS, PROMPTS):
        policy = SmallPolicy.random(11, prompts=2, answers=3, binary=binary)
        formulas = predicted(policy.moments(), prompts, group)
        for name, estimator in ESTIMATORS.items():
            exact = policy.mse(estimator, prompts, group)
            kind = "binary" if binary else "graded"
            rows.append({"rewards": kind, "G": group, "P": prompts, "gradient": name, "predicted": formulas[name],
                         "enumerated": exact, "difference": abs(formulas[name] - exact)})  # fmt: skip
    return rows


def bias() -> dict[str, float]:
    """Expectation of every estimated moment over all probes of 2 × 4, less its exact value."""
    names = ("g2", "zeta1", "zeta2", "sigma1", "delta", "prompt_variance", "mean2")
    policy = SmallPolicy.random(12, prompts=2, answers=3, binary=True)
    shapes = [(2, 2), (2, 3), (2, 4)]
    total = dict.fromkeys((*names, *(f"standardized MSE at {shape}" for shape in shapes)), 0.0)
    for (chance_a, x, a), (chance_b, y, b) in itertools.product(policy.groups(4), repeat=2):
        scores = np.concatenate([policy.scores[x, list(a)], policy.scores[y, list(b)]])
        rewards = np.stack([policy.rewards[x, list(a)], policy.rewards[y, list(b)]])
        estimated = moments.from_gram(scores @ scores.T, rewards, replicates=0)
        for name in names:
            total[name] += chance_a * chance_b * getattr(estimated, name).value
        if len(np.unique(rewards)) == 2:  # otherwise there is no gradient, and no error
            for shape in shapes:
                total[f"standardized MSE at {shape}"] += chance_a * chance_b * mse.standardized(estimated, *shape).value
    truth = policy.moments()
    for shape in shapes:
        truth[f"standardized MSE at {shape}"] = policy.mse(ustat_policies.standardized, *shape)
    return {name: total[name] - truth[name] for name in total}


def main() -> None:
    """Print both tables and the verdict."""
    rows, off = errors(), bias()
    print("| rewards | G | P | gradient | predicted MSE | enumerated MSE | difference |\n|---|---|---|---|---|---|---|")
    for r in rows:
        print(f"| {r['rewards']} | {r['G']} | {r['P']} | {r['gradient']} | {r['predicted']:.12f} | "
              f"{r['enumerated']:.12f} | {r['difference']:.1e} |")  # fmt: skip
    print("\n| estimate | expectation over all probes − exact value |\n|---|---|")
    for name, value in off.items():
        print(f"| {name} | {value:.1e} |")
    worst = max(r["difference"] for r in rows)
    biased = max(map(abs, off.values()))
    holds = bool(worst < LIMIT and biased < LIMIT)
    print(f"\nverdict: {'holds' if holds else 'does not hold'}; worst error {worst:.1e}, worst bias {biased:.1e}")
    print(dumps({"holds": holds, "worst_error": worst, "worst_bias": biased, "rows": rows, "bias": off}))


if __name__ == "__main__":
    main()
