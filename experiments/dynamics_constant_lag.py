"""Which constant lag is the first to blow up: N*, the published rule, or K*?

Claim    Gradients that are all K steps old are stable up to K* (`instruments.dynamics.constant_lag`, ours), at least
         what κηK < 1 − μ of arXiv:2606.30789 allows; N* is of refreshes and too large here.
Command  python experiments/dynamics_constant_lag.py --out runs/dynamics_constant_lag       some two minutes on one core
Method   Exact expectation. `bandit`: 8 softmax bandits of 4 to 16 arms with a KL to a uniform reference. `network`: 8
         seeds of a policy with one hidden layer of width 32, four prompts of five answers, a KL of 0.3 to the start.
         Each is brought to its optimum; κ is the largest eigenvalue of minus the Hessian there; the weights are pushed
         along its eigenvector, and heavy ball goes on with the gradient of K steps before, at (β, ηκ) = (0, 0.3),
         (0, 0.08), (0.5, 0.08), (0.9, 0.02). Unstable: the displacement is larger in the last fifth than in the fifth
         before the middle. K is scanned from 0 or K* − 4 on.
Verdict  written before the first run: K* holds if the first unstable K is within one of K* + 1 in every cell; the rule
         is safe if no K below it is unstable in any; N* is too large if N* > the last stable K in every cell.
         The first run took rounding for growth where the push had died out (12 of 64 cells, all at K = 0): since then a
         displacement below a thousandth of the push counts as gone. The rule is as it was.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from numpy.typing import NDArray

from grposcope.core.files import dumps, write_json
from grposcope.instruments.dynamics import constant_lag, refresh

SETTINGS = ((0.0, 0.3), (0.0, 0.08), (0.5, 0.08), (0.9, 0.02))
PUSH = 1e-4
GONE = 1e-3
"""Share of the push below which the displacement counts as gone: rounding and what the optimiser left remain."""

Force = Callable[[NDArray], NDArray]


def bandit(seed: int) -> tuple[NDArray, Callable[[torch.Tensor], torch.Tensor]]:
    """Starting logits, and the expected reward less 0.4 KL to the uniform policy."""
    rng = np.random.default_rng(seed)
    arms = int(rng.integers(4, 17))
    rewards = torch.tensor(rng.random(arms))

    def objective(logits: torch.Tensor) -> torch.Tensor:
        logp = logits.log_softmax(-1)
        return (logp.exp() * (rewards - 0.4 * (logp + np.log(arms)))).sum()

    return np.zeros(arms), objective


def network(seed: int) -> tuple[NDArray, Callable[[torch.Tensor], torch.Tensor]]:
    """Starting weights of a hidden layer of width 32, and the mean over prompts of the reward less 0.3 KL."""
    rng = np.random.default_rng(100 + seed)
    prompts, answers, width = torch.tensor(rng.normal(size=(4, 6))), 5, 32
    rewards = torch.tensor(rng.random((4, answers)))
    start = np.concatenate([0.4 * rng.normal(size=6 * width), 0.2 * rng.normal(size=width * answers)])

    def logp(weights: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(prompts @ weights[: 6 * width].reshape(6, width))
        return (hidden @ weights[6 * width :].reshape(width, answers)).log_softmax(-1)

    reference = logp(torch.tensor(start)).detach()

    def objective(weights: torch.Tensor) -> torch.Tensor:
        now = logp(weights)
        return (now.exp() * (rewards - 0.3 * (now - reference))).sum(-1).mean()

    return start, objective


def optimum(start: NDArray, objective: Callable[[torch.Tensor], torch.Tensor]) -> NDArray:
    """The weights that L-BFGS ends at."""
    weights = torch.tensor(start, requires_grad=True)
    solver = torch.optim.LBFGS([weights], max_iter=4000, tolerance_grad=1e-13, tolerance_change=1e-16,
                               line_search_fn="strong_wolfe")  # fmt: skip

    def closure() -> torch.Tensor:
        solver.zero_grad()
        loss = -objective(weights)
        loss.backward()
        return loss

    solver.step(closure)
    return weights.detach().numpy()


def unstable(best: NDArray, along: NDArray, force: Force, step: float, beta: float, lag: int) -> bool:
    """Whether a push along the eigenvector grows with gradients of `lag` steps before."""
    steps = 60 * (lag + 4)
    path = [best + PUSH * along] * (lag + 2)
    apart = []
    for _ in range(steps):
        path.append(path[-1] + beta * (path[-1] - path[-2]) + step * force(path[-1 - lag]))
        path = path[-(lag + 3) :]
        apart.append(abs(float((path[-1] - best) @ along)))
        if apart[-1] > 1e3 * PUSH:
            return True
    fifth = steps // 5
    late = max(apart[-fifth:])
    return late > GONE * PUSH and late > max(apart[fifth : 2 * fifth])


def cells(name: str, seed: int) -> list[dict]:
    """A row per setting."""
    start, objective = (bandit if name == "bandit" else network)(seed)
    best = optimum(start, objective)
    hessian = -torch.autograd.functional.hessian(objective, torch.tensor(best)).numpy()
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    kappa, along = float(values[-1]), vectors[:, -1]

    def force(weights: NDArray) -> NDArray:
        at = torch.tensor(weights, requires_grad=True)
        return torch.autograd.grad(objective(at), at)[0].numpy()

    rows = []
    for beta, pull in SETTINGS:
        step = pull / kappa
        predicted = int(constant_lag.threshold(step, beta, kappa))
        lag = max(0, predicted - 4)
        while lag < predicted + 8 and not unstable(best, along, force, step, beta, lag):
            lag += 1
        rows.append({
            "kind": name, "seed": seed, "beta": beta, "pull": pull, "first_unstable": lag, "K*": predicted,
            "rule": constant_lag.rule(step, beta, kappa), "N*": refresh.threshold(step, beta, kappa),
            "gradient": float(np.abs(force(best)).max()),
        })  # fmt: skip
        print(dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    """Scan, print, decide."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    rows = [row for name in ("bandit", "network") for seed in range(given.seeds) for row in cells(name, seed)]
    verdict = {
        "K*": "holds" if all(abs(row["first_unstable"] - row["K*"] - 1) <= 1 for row in rows) else "does not hold",
        "to the step": sum(row["first_unstable"] == row["K*"] + 1 for row in rows), "cells": len(rows),
        "rule": "safe" if all(row["first_unstable"] >= row["rule"] for row in rows) else "not safe",
        "N* too large": all(row["N*"] >= row["first_unstable"] for row in rows),
        "N* ÷ last stable K": [round(row["N*"] / max(row["first_unstable"] - 1, 1), 2) for row in rows[:4]],
    }  # fmt: skip
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / "cells.json", {"cells": rows, "verdict": verdict})
    print(dumps(verdict))


if __name__ == "__main__":
    main()
