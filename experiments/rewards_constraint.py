"""Does a multiplier hold a constraint on the length, and does damping take the swing out of it?

The shipped model on sums (arithmetic, right answers pay 1, the advantage is GRPO's), which writes about 14.6 tokens
at first, under `length<=13`. 60 steps of 16 prompts and groups of 8, rate η = 0.2 a batch, seeds 0 to 7: plain dual
ascent (κ = 0) and damped (κ = 2).

Rules, before the first run. Held: the upper 95 % bound of the mean length on 64 held-out problems, 4 samples each,
averaged over the evaluations after step 48 (their standard errors taken as fully correlated), is at most 13 + 0.5
tokens; an arm holds the constraint if it does so in at least 7 of 8 seeds. Damping pays if the largest undershoot, 13
less the least mean length of 5 batches in a row, is smaller in at least 7 of 8 seeds. Nothing is claimed of the
reward, which is shown. Budget: 8 CPU-minutes.

    python experiments/rewards_constraint.py OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from grposcope.lab.train import loop
from grposcope.lab.train.config import TrainConfig
from grposcope.logs import read

LIMIT, SLACK, STEPS = 13.0, 0.5, 60
ARMS = {"plain": 0.0, "damped": 2.0}


def run(folder: Path, damping: float, seed: int) -> tuple[float, float, float, float]:
    """Upper bound of the held-out length, undershoot, held-out accuracy at last, largest multiplier."""
    if not (folder / "summary.json").exists():
        loop.train(TrainConfig(
            constraint=f"length<={LIMIT:g}", dual_rate=0.2, dual_damping=damping, seed=seed, steps=STEPS, prompts=16,
            group=8, eval_every=6, eval_problems=64, checkpoint_every=0, rollouts_every=0, threads=1, out=str(folder),
        ))  # fmt: skip
    made = read(folder)
    held = made.evaluations.of("length")
    late = held.step > 0.8 * STEPS
    bound = float(held.value[late].mean() + 1.96 * held.se[late].mean())
    lengths = np.convolve(made.table["length"], np.full(5, 0.2), "valid")
    accuracy = made.evaluations.of("pass@1").value[-1]
    most = made.table[f"constraint/length<={LIMIT:g}/multiplier"].max()
    return bound, LIMIT - float(lengths.min()), float(accuracy), float(most)


def main() -> None:
    """Run what is not there yet, and print a row per run and the verdicts."""
    out = Path(sys.argv[1])
    found = {}
    print("| arm | seed | upper bound of the length | undershoot | held-out accuracy | largest multiplier |")
    print("|---|---|---|---|---|---|")
    for seed in range(8):
        for arm, damping in ARMS.items():
            found[arm, seed] = run(out / f"{arm}-{seed}", damping, seed)
            print(f"| {arm} | {seed} | " + " | ".join(f"{value:.2f}" for value in found[arm, seed]) + " |", flush=True)
    for arm in ARMS:
        held = sum(found[arm, seed][0] <= LIMIT + SLACK for seed in range(8))
        print(f"{arm}: held in {held} of 8 seeds")
    smaller = sum(found["damped", seed][1] < found["plain", seed][1] for seed in range(8))
    print(f"damping: a smaller undershoot in {smaller} of 8 seeds")


if __name__ == "__main__":
    main()
