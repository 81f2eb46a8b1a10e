"""How often `grposcope plan` answers, and how often its answer misses the true best group size.

    python benchmarks/plan_coverage.py [--repeats 40] [--seed 0] [--families classes,softmax] [--quick]

Probes are drawn from the worlds of `plan_worlds.py`, whose G* is known, at mean rewards from 0.01 to 0.99, 16 to 128
prompts and 4 to 16 rollouts. An answer is a best group size with a 95 % interval, or "at least N" where it has no end;
a miss is an answer whose interval does not hold the truth. Goals: misses in at most 5 % of probes at every mean reward;
answers in at least 80 % at mean rewards of 0.2 to 0.8 with 64 × 8. The percentile bootstrap of 1 + √(Δ/V_p) is shown
beside it. Probes of which one prompt carries over a fifth of the squared gradients are counted apart, by their number
of prompts: of those with twenty live groups or more `plan` says that their intervals are too short. JSON comes last.
"""

from __future__ import annotations

import argparse
import json
import math
import time

import numpy as np
from plan_worlds import FAMILIES

from grposcope.instruments.group_size import planning
from grposcope.instruments.group_size.size import UNEVEN
from grposcope.maths import moments, resampling

MEANS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99)
PROMPTS, GROUPS = (16, 64, 128), (4, 8, 16)


def cell(family: str, mean: float, prompts: int, group: int, repeats: int, seed: int) -> dict[str, float]:
    """Shares of probes with an answer, with a miss, and the same of the percentile bootstrap."""
    rng = np.random.default_rng([seed, prompts, group, round(1000 * mean), sum(map(ord, family))])
    world = FAMILIES[family](mean, rng)
    truth, counts = world.best(), np.zeros(7)
    for repeat in range(repeats):
        scores, rewards = world.draw(prompts, group, rng)
        if not np.ptp(rewards, axis=1).any():
            continue  # refused: no gradient
        found = moments.from_scores(scores, rewards, replicates=200, seed=repeat)
        plan = planning.optimal_group(found, groups=())
        low, high = resampling.interval(planning.optimum(found.bootstrap, 0.0, 1.0))
        old = math.isfinite(high)
        answers = plan.decided or plan.at_least > 0
        miss = answers and not plan.interval[0] <= truth <= plan.interval[1]
        uneven = answers and found.largest_share > UNEVEN
        counts += (answers, plan.decided, miss, old, old and not low <= truth <= high, uneven, uneven and miss)
    names = ("answers", "ends", "misses", "percentile_answers", "percentile_misses", "uneven", "uneven_misses")
    return dict(zip(names, map(float, counts / repeats), strict=True)) | {"truth": truth}


def main() -> None:
    """Print a row per family and mean reward: misses over all shapes, answers at 64 × 8."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--prompts", type=int, nargs="+", default=PROMPTS, help="64 among them")
    parser.add_argument("--means", type=float, nargs="+", default=MEANS)
    parser.add_argument("--quick", action="store_true", help="three mean rewards, 64 × 8 alone")
    arguments = parser.parse_args()
    means = (0.025, 0.2, 0.5) if arguments.quick else arguments.means
    shapes = [(64, 8)] if arguments.quick else [(p, g) for p in arguments.prompts for g in GROUPS]
    print(
        "| family | mean reward | G* | misses | worst shape | answers, 64 × 8 | that end "
        "| percentile: misses | answers |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    began, rows = time.perf_counter(), []
    for family in arguments.families.split(","):
        cells: list[tuple[int, dict[str, float]]] = []
        for mean in means:
            found = {s: cell(family, mean, *s, arguments.repeats, arguments.seed) for s in shapes}
            cells += [(p, one) for (p, _), one in found.items()]
            average = {name: float(np.mean([c[name] for c in found.values()])) for name in found[64, 8]}
            worst = max(found, key=lambda shape: found[shape]["misses"])
            row = {"family": family, "mean": mean, **average, "worst": found[worst]["misses"], "worst_shape": worst,
                   "answers_64x8": found[64, 8]["answers"],
                   "ends_64x8": found[64, 8]["ends"]}  # fmt: skip
            rows.append(row)
            print(
                f"| {family} | {mean:g} | {average['truth']:.1f} | {average['misses']:.1%} | {row['worst']:.1%} at "
                f"{worst[0]} × {worst[1]} | {row['answers_64x8']:.0%} | {row['ends_64x8']:.0%} | "
                f"{average['percentile_misses']:.1%} | {found[64, 8]['percentile_answers']:.0%} |",
                flush=True,
            )
        print(f"\nof {family} with one prompt over {UNEVEN:.0%}, by prompts:")
        for prompts in arguments.prompts:
            own = [one for p, one in cells if p == prompts]
            uneven, missed = (sum(one[name] for one in own) for name in ("uneven", "uneven_misses"))
            print(
                f"    {prompts}: {missed / uneven if uneven else math.nan:.0%} of {round(arguments.repeats * uneven)}"
            )
    print(json.dumps({"repeats": arguments.repeats, "seed": arguments.seed, "rows": rows,
                      "seconds": time.perf_counter() - began}))  # fmt: skip


if __name__ == "__main__":
    main()
