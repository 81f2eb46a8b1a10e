"""Writes docs/example.jsonl: a made-up log in the format of verl's file logger, of a run whose reward is gamed.

python docs/example.py

For two fifths of the run the policy gets better. Then it finds a hole in the verifier: the training reward goes on
rising, the score on held-out problems falls back. 200 steps of 512 rollouts, an evaluation of 500 problems every 10.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

STEPS, ROLLOUTS, PROBLEMS, EVERY = 200, 512, 500, 10


def rows(seed: int = 0) -> list[dict[str, object]]:
    """The rows of the log: the step and its metrics under verl's names."""
    rng = np.random.default_rng(seed)
    made = []
    for step in range(1, STEPS + 1):
        u = step / STEPS
        solved = 0.3 + 0.25 * min(u / 0.4, 1.0) - 0.3 * max(0.0, u - 0.4)
        paid = 0.3 + 0.6 * u
        data = {
            "critic/score/mean": rng.binomial(ROLLOUTS, paid) / ROLLOUTS,
            "actor/entropy": 0.6 * np.exp(-0.6 * u) * np.exp(0.05 * rng.normal()),
            "actor/grad_norm": 0.4 * np.exp(0.15 * rng.normal()),
            "actor/kl_loss": 0.08 * u * np.exp(0.1 * rng.normal()),
            "actor/pg_clipfrac": 0.004 * np.exp(0.2 * rng.normal()),
            "actor/lr": 1e-6,
            "response_length/mean": 310 + 60 * u + 8 * rng.normal(),
            "response_length/clip_ratio": rng.binomial(ROLLOUTS, 0.01) / ROLLOUTS,
        }
        if step % EVERY == 0 or step == 1:
            data["val-core/gsm8k/acc/mean@1"] = rng.binomial(PROBLEMS, solved) / PROBLEMS
        made.append({"step": step, "data": {name: float(f"{value:.5g}") for name, value in data.items()}})
    return made


if __name__ == "__main__":
    lines = [json.dumps(row) for row in rows()]
    Path(__file__).with_suffix(".jsonl").write_text("\n".join(lines) + "\n")
