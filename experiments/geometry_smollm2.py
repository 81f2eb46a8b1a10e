"""Sparsity, rank and baseline while a pretrained model learns sums that it partly solves: [PG]'s curves on SmolLM2.

    python experiments/geometry_smollm2.py --seed 0 --out curves          one seed: some 20 minutes on one core

The same measures as `geometry_training.py`, on SmolLM2-135M, which solves about one in ten of "What is 7 + 16? Give
only the number." within 16 tokens, by the last number that it writes. 8 prompts × 8 rollouts a step, GRPO, AdamW at the
model's default learning rate, 60 steps; every 10 steps up to 4 live prompts of the batch are probed before the update.
One seed tells what was seen, no more. Written before the first run: sparsity "intensifies" by a measure if its last
third is above its first by more than twice the spread between neighbouring probes; the rank is "about 2" if the stable
rank of the layers lies in 1.8 to 2.5 at every probe.
"""

from __future__ import annotations

import argparse
import random
import re
from pathlib import Path

import numpy as np
import torch
from geometry_training import report, run

from grposcope.core.files import dumps, write_json
from grposcope.lab import policies
from grposcope.lab.tasks import Problem, Task
from grposcope.lab.tasks.base import Split

LARGEST, KINDS = 20, ("parameter gini", "parameter hoyer", "token gini", "token top_20", "dead")


class Sums(Task):
    """Sums of two numbers of 1 … 20, asked in words; right if the last number of the completion is the sum."""

    name, max_tokens = "sums", 16

    def problems(self, split: Split) -> list[Problem]:
        """All 400 in a random order."""
        pairs = [(a, b) for a in range(1, LARGEST + 1) for b in range(1, LARGEST + 1)]
        random.Random(0).shuffle(pairs)
        return [Problem(f"{a}+{b}", f"What is {a} + {b}? Give only the number.", str(a + b)) for a, b in pairs]

    def reward(self, problem: Problem, completion: str) -> float:
        """1 for the sum as the last number."""
        numbers = re.findall(r"\d+", completion)
        return float(bool(numbers) and numbers[-1] == problem.answer)


def verdicts(rows: list[dict]) -> dict[str, str]:
    """The rule of the docstring."""
    said = {}
    for kind in KINDS:
        curve = np.array([row[kind] for row in rows if kind in row])
        third, spread = max(1, len(curve) // 3), np.abs(np.diff(curve)).mean() / np.sqrt(2)
        change = curve[-third:].mean() - curve[:third].mean()
        said[kind] = f"{'intensifies' if change > 2 * spread else 'does not'}: {change:+.3g}, spread {spread:.2g}"
    ranks = [row["layer stable"] for row in rows if "layer stable" in row]
    inside = all(1.8 <= rank <= 2.5 for rank in ranks)
    said["rank"] = f"{'about 2' if inside else 'not about 2'}: {min(ranks):.2f} to {max(ranks):.2f}"
    return said


def main() -> None:
    """Train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=4, help="live prompts that a probe takes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="folder for the curve")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    found = run(given.seed, given, policies.load(given.model), Sums(), (8, 8), 16, given.steps // 3)
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / f"smollm2-seed{given.seed}.json", found)
    report([found])
    print(dumps({"verdicts": verdicts(found["rows"])}))


if __name__ == "__main__":
    main()
