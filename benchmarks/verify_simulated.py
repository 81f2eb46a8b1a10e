"""How often `verify` calls a sound pipeline broken, and what it says of faults that need no model: made-up rollouts.

python benchmarks/verify_simulated.py [--clean 500] [--faulty 10]

Rule, written before the first run. Sound: `clean` pipelines with seeds from 0, each with a recipe, kind of reward,
storage of numbers, group size (4, 8), prompts (4, 16, 32), steps (1 to 3), cut completions masked or not, and half of
them with 10 % of the rollouts dropped blindly; a third has a log of 60 steps with a restart. A pipeline counts as wrong
where any claim is broken. The target is at most 5 % with an upper 95 % bound (Clopper-Pearson) of at most 8 %. Faulty:
each fault of advantages, groups and masks in `faulty` pipelines of 2 × 4 and of 16 × 8 rollouts a step; a permutation
that leaves all advantages as they are does not count. The target is 100 % detected and 80 % named.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import pipelines
from pipelines import Pipeline

NAMES = {
    "shuffled_in_group": {"shuffled in the group", "shifted among siblings"},
    "shuffled_across": {"shuffled across the batch"},
    "shifted": {"shifted in the batch"},
    "shifted_among_siblings": {"shifted among siblings"},
    "of_batch": {"scale"},
    "other_ddof": {"ddof"},
    "other_epsilon": {"epsilon"},
    "other_sign": {"sign"},
    "doubled": {"factor"},
    "split_groups": {"groups split"},
    "interleaved_groups": {"groups in another order"},
    "unscaled": {"scale"},
    "end_masked": {"end of text masked"},
    "end_twice": {"end of text twice"},
    "padding_trained": {"padding trained on"},
    "off_by_one": {"mask off by one"},
    "prompt_trained": {"prompt trained on"},
    "tool_trained": {"tool output trained on"},
    "truncated_trained": {"truncated completions trained on"},
    "mixed_groups": {"mixed prompts"},
    "singletons": {"singletons"},
    "failures_as_zeros": {"failures as zeros"},
}
"""Fault of the helpers -> names under which it is right."""


def clean(seed: int) -> list[str]:
    """Claims that are called broken of one sound pipeline, with the fault."""
    random = np.random.default_rng([seed, 1])
    logged = seed % 3 == 0
    pipeline = Pipeline(
        seed=seed,
        steps=60 if logged else int(random.integers(1, 4)),
        prompts=2 if logged else int(random.choice([4, 16, 32])),
        group=int(random.choice([4, 8])),
        reward=str(random.choice(["binary", "steps", "real", "two"])),
        recipe=str(random.choice(["grpo", "batch", "dr_grpo", "rloo"])),
        stored=str(random.choice(["float32", "bfloat16", "decimals"])),
        masks_truncated=bool(random.integers(2)),
    )
    rows = pipeline.rows()
    run = pipelines.log(rows, 60, restart=int(random.integers(20, 42))) if logged else None
    if random.random() < 0.5:
        rows = [{**row, "dropped": "late" if random.random() < 0.1 else ""} for row in rows]
    found = pipelines.judged(rows, pipeline.settings, run)
    return [f"{name}: {one.told[0].fault}" for name, one in found.items() if one.status == "broken"]


def faulty(name: str, count: int) -> tuple[int, int, int]:
    """(pipelines, detected, rightly named) of one fault."""
    made = seen = named = 0
    for seed in range(count):
        for prompts, group in ((2, 4), (16, 8)):
            reward = ("binary", "real", "two")[seed % 3]
            pipeline = Pipeline(seed=seed, steps=1, prompts=prompts, group=group, reward=reward, masks_truncated=True)
            sound, rows = pipeline.rows(), pipelines.with_fault(pipeline, getattr(pipelines, name))
            if _same(rows, sound):
                continue
            broken = [one for one in pipelines.judged(rows, pipeline.settings).values() if one.status == "broken"]
            made += 1
            seen += bool(broken)
            named += any({test.fault, test.brief} & NAMES[name] for one in broken for test in one.told)
    return made, seen, named


def _same(rows: pipelines.Rows, sound: pipelines.Rows) -> bool:
    """Whether a fault left everything as it was, up to rounding."""
    if len(rows) != len(sound):
        return False
    values = [[row["advantage"] for row in part] for part in (rows, sound)]
    others = [
        [{key: value for key, value in row.items() if key != "advantage"} for row in part] for part in (rows, sound)
    ]
    return bool(np.allclose(*values, atol=1e-5)) and others[0] == others[1]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clean", type=int, default=500)
    parser.add_argument("--faulty", type=int, default=10)
    arguments = parser.parse_args()
    wrong = [found for seed in range(arguments.clean) if (found := clean(seed))]
    bound = stats.beta.ppf(0.95, len(wrong) + 1, arguments.clean - len(wrong))
    print(f"sound: {len(wrong)} of {arguments.clean} called broken, upper 95 % bound {bound:.1%}")
    for found in wrong:
        print("  ", "; ".join(found))
    print("fault, pipelines, detected, named")
    for name in NAMES:
        print(name, *faulty(name, arguments.faulty), sep=", ", flush=True)


if __name__ == "__main__":
    main()
