"""Made evidence through the claims: every fault that rollouts show, and clean twins, at the one threshold.

    python benchmarks/faults/made.py [--clean 100]

Faults and their twins are those of tests/helpers/faulty_rollouts.py, one each. Further clean evidence: pipelines of all
recipes, rewards and number formats (`pipelines`), and rollouts of several checkpoints, drawn as they should be, with
and without the sampler's log-probabilities, and with adapters at other scales as alternatives (`toy_tokens`). Counted
is evidence of which any claim is broken, with Wilson's 95 % interval. Nothing is kept: it takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))


def broken(evidence: Any) -> list[str]:
    """The faults that are present."""
    from grposcope.faults.judge_rollouts import prove

    return [finding.fault for findings in prove(evidence).values() for finding in findings if finding.present]


def clean(number: int) -> Any:
    """Clean evidence by its number: every second one of a pipeline, the others of checkpoints."""
    import toy_tokens
    from pipelines import Pipeline

    from grposcope.instruments.verify import read

    random = np.random.default_rng(number)
    if number % 2:
        made = Pipeline(
            seed=number, steps=int(random.integers(2, 5)), prompts=int(random.choice([4, 8, 16])),
            group=int(random.choice([4, 8])), reward=str(random.choice(["binary", "steps", "real", "two"])),
            recipe=str(random.choice(["grpo", "batch", "dr_grpo", "dapo", "rloo"])),
            stored=str(random.choice(["float32", "bfloat16", "decimals"])), masks_truncated=bool(random.random() < 0.5),
        )  # fmt: skip
        return read.of_rows(made.rows(), made.settings)
    count = int(random.integers(1, 5))
    moved, recorded = float(random.choice([0.1, 0.3, 0.6])), bool(random.random() < 0.5)
    found = toy_tokens.evidence(48, tuple(range(count)), count, moved, recorded=recorded, seed=number)
    if random.random() < 0.5:
        return found
    every = toy_tokens.logits(48 * count, count, moved, number)
    tokens = [row.completion_ids for row in found.rows if row.completion_ids is not None]
    scales = {factor: toy_tokens.scored(every[:1] + factor * (every - every[:1]), tokens) for factor in (0.0, 0.5, 2.0)}
    scored = tuple(
        replace(one, at_scale={factor: each[place].logp for factor, each in scales.items()})
        for place, one in enumerate(found.scored)
    )
    return replace(found, scored=scored)


def main() -> None:
    """Count and print."""
    from faulty_rollouts import FAULTY

    from grposcope.maths.intervals import wilson

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clean", type=int, default=100, help="further clean evidence")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for name, build in FAULTY.items():
        found, twin = broken(build(True)), broken(build(False))
        counts.update({"found": bool(found), "named": name in found, "twins": bool(twin)})
        if name not in found or twin:
            print(f"{name}: {found}; its twin: {twin}", flush=True)
    for number in range(given.clean):
        if found := broken(clean(number)):
            counts["clean"] += 1
            print(f"clean {number}: {found}", flush=True)
    for words, count, total in (("faults found", counts["found"], len(FAULTY)), ("named", counts["named"], len(FAULTY)),
                                ("clean twins called broken", counts["twins"], len(FAULTY)),
                                ("further clean evidence called broken", counts["clean"], given.clean)):  # fmt: skip
        low, high = wilson(count / total, total)
        print(f"{words}: {count} of {total} ({low:.1%} to {high:.1%})")


if __name__ == "__main__":
    main()
