"""How often the best group size of standardized advantages is answered and missed, beside that of leave-one-out.

    python benchmarks/plan_recipe.py [--repeats 40] [--seed 0]

Probes are drawn from the worlds of `plan_worlds.py`, where noise over signal of any advantage is a sum over all numbers
of successes, at mean rewards of 0.2, 0.5 and 0.8 with 64 × 12. `costs` is what leave-one-out's best G costs the
standardized recipe. An answer is an interval, or "at least N"; a miss is an answer that does not hold the truth.
"""

from __future__ import annotations

import argparse

import numpy as np
from plan_worlds import FAMILIES, leave_one_out, standardized

from grposcope.instruments.group_size import recipe_plan
from grposcope.maths import moments

SIZES = range(2, 65)


def main() -> None:
    """Print a row per family and mean reward."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print("| family | mean reward | best G: leave-one-out | standardized | costs | answers | that end | misses |")
    print("|---|---|---|---|---|---|---|---|")
    for number, (family, make) in enumerate(FAMILIES.items()):
        for mean in (0.2, 0.5, 0.8):
            rng = np.random.default_rng([arguments.seed, number, round(1000 * mean)])
            world, counts = make(mean, rng), np.zeros(3)
            plain, errors = ([world.error(g, scale(g)) for g in SIZES] for scale in (leave_one_out, standardized))
            usual, truth = int(np.argmin(plain)), SIZES[int(np.argmin(errors))]
            for _ in range(arguments.repeats):
                scores, rewards = world.draw(64, 12, rng)
                flat = scores.reshape(64 * 12, -1)
                plan = recipe_plan.standardized(moments.from_gram(flat @ flat.T, rewards, replicates=20))
                answers = plan.decided or plan.at_least > 0
                counts += (answers, plan.decided, answers and not plan.interval[0] <= truth <= plan.interval[1])
            answered, ends, misses = counts / arguments.repeats
            costs = errors[usual] / min(errors) - 1
            print(f"| {family} | {mean:g} | {SIZES[usual]} | {truth} | {costs:.1%} | {answered:.0%} | {ends:.0%} | "
                  f"{misses:.1%} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
