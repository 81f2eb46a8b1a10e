"""How often `grposcope plan` misses where it warns of nothing, how often it warns, and what correlated rollouts do.

    python benchmarks/plan_flags.py [--repeats 200] [--seed 0] [--prompts 24]

Probes of 24 × 8 rollouts, unless told otherwise, at mean rewards of 0.2, 0.5 and 0.8 from the worlds `HELD_OUT` of
`plan_worlds.py`, on which nothing was tuned, and from `heavy`. A warning is a sentence of `GroupSize.uneven_sentence`.
Goals: at most 8 % of the answers of unflagged probes miss, and at most 10 % of the probes of the four mild worlds are
flagged. Then `classes` with a part of every score common to its group, as of correlated rollouts: the plan is to be
withheld. JSON comes last.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from plan_worlds import FAMILIES, HELD_OUT, leave_one_out

from grposcope.instruments.group_size import mse, planning
from grposcope.instruments.group_size.size import GroupSize
from grposcope.maths import moments

GROUP, MEANS = 8, (0.2, 0.5, 0.8)
MILD = ("weibull", "three_rates", "quiet_when_sure", "wide_features")


def counts(name: str, prompts: int, repeats: int, seed: int) -> dict[str, float]:
    """Probes, flagged ones, answers of unflagged ones, misses among them, and how often the error's interval holds."""
    found = np.zeros(5)
    for mean in MEANS:
        rng = np.random.default_rng([seed, round(100 * mean), sum(map(ord, name))])
        world = (HELD_OUT | FAMILIES)[name](mean, rng)
        truth, (second, mean2) = world.best(), world.moments(GROUP, leave_one_out(GROUP))
        for repeat in range(repeats // len(MEANS)):
            scores, rewards = world.draw(prompts, GROUP, rng)
            if not np.ptp(rewards, axis=1).any():
                continue
            measured = moments.from_scores(scores, rewards, replicates=20, seed=repeat)
            plan = planning.optimal_group(measured, groups=())
            flagged = bool(GroupSize(measured, plan, rewards).uneven_sentence())
            answers = (plan.decided or plan.at_least > 0) and not flagged
            low, high = mse.leave_one_out(measured, 1, GROUP).interval()
            holds = not flagged and low <= second - mean2 <= high
            missed = answers and not plan.interval[0] <= truth <= plan.interval[1]
            found += (1, flagged, answers, missed, holds)
    probes, flagged, answers, missed, holds = found
    return {"probes": probes, "flagged": flagged / probes, "answers": answers, "missed": missed,
            "error held": holds / max(probes - flagged, 1)}  # fmt: skip


def withheld(prompts: int, repeats: int, seed: int, share: float = 0.3) -> dict[str, float]:
    """Share of probes without an answer where a `share` of every rollout's score is common to its group."""
    rng = np.random.default_rng(seed)
    world, kept, before = FAMILIES["classes"](0.4, rng), 0, 0
    for repeat in range(repeats):
        scores, rewards = world.draw(prompts, GROUP, rng)
        own = scores - scores.mean(1, keepdims=True)
        common = rng.standard_normal((prompts, 1, scores.shape[-1])) * own.std() * np.sqrt(share / (1 - share))
        for changed in (True, False):
            measured = moments.from_scores(scores + common * changed, rewards, replicates=20, seed=repeat)
            none = bool(planning.not_independent(measured))
            kept, before = kept + (changed and none), before + (not changed and none)
    return {"correlated": kept / repeats, "independent": before / repeats}


def main() -> None:
    """Print a row per world, and how often the plan is withheld."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prompts", type=int, default=24)
    given = parser.parse_args()
    rows = {name: counts(name, given.prompts, given.repeats, given.seed) for name in (*HELD_OUT, "heavy")}
    for name, row in rows.items():
        missed = f"{row['missed']:.0f} of {row['answers']:.0f} unflagged answers miss"
        held = f"the error's interval holds in {row['error held']:.0%}"
        print(f"{name:<18} flagged {row['flagged']:.0%}, {missed}, {held}", flush=True)
    unseen = [rows[name] for name in HELD_OUT]
    total = sum(row["missed"] for row in unseen) / sum(row["answers"] for row in unseen)
    mild = float(np.mean([rows[name]["flagged"] for name in MILD]))
    print(json.dumps({"rows": rows, "missed of unflagged answers": total, "flagged in mild worlds": mild,
                      "plan withheld": withheld(given.prompts, given.repeats, given.seed)}))  # fmt: skip


if __name__ == "__main__":
    main()
