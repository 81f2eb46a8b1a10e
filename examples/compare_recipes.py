"""Train with several recipes and seeds, and compare the held-out accuracy they end at.

    python examples/compare_recipes.py --recipes grpo dr_grpo rloo --seeds 0 1 2

Two recipes differ where the intervals say so; one seed says little.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from grposcope.report import page
from grposcope.runs import read
from grposcope.training.config import TrainConfig
from grposcope.training.loop import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipes", nargs="+", default=["grpo", "dr_grpo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--problems", type=int, default=200, help="held-out problems")
    parser.add_argument("--out", type=Path, help="folder for the runs (default: a temporary one)")
    given = parser.parse_args()
    out, runs = given.out or Path(tempfile.mkdtemp()), []
    for recipe in given.recipes:
        ends = []
        for seed in given.seeds:
            folder = out / f"{recipe}-{seed}"
            train(TrainConfig(recipe=recipe, seed=seed, steps=given.steps, prompts=given.prompts, eval_every=0,
                              eval_problems=given.problems, out=str(folder)))  # fmt: skip
            runs.append(read(folder))
            ends.append(runs[-1].evaluations.of("pass@1").value[-1])
        error = np.std(ends, ddof=1) / np.sqrt(len(ends)) if len(ends) > 1 else float("nan")
        print(f"{recipe}: held-out {np.mean(ends):.3f} ± {error:.3f} (standard error over {len(ends)} seeds)")
    page.write(page.document(runs), out / "page.html")
    print(f"all runs on one page: {out / 'page.html'}")


if __name__ == "__main__":
    main()
