"""Train on problems of your own with a reward function of your own.

    python examples/own_task.py --steps 5

The problems are lines of JSON, the reward is a function with TRL's signature. On the command line the same is
`grposcope train --task jsonl:problems.jsonl --reward rewards.py:score`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
from pathlib import Path

from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.loop import train


def score(completions: list[str], answer: list[str], **columns: object) -> list[float]:
    """1 where the last number is the answer, else a tenth for any number at all."""
    numbers = [re.findall(r"-?\d+", text) for text in completions]
    return [1.0 if found[-1:] == [right] else 0.1 * bool(found) for found, right in zip(numbers, answer, strict=True)]


def problems(path: Path) -> Path:
    """Sums that the shipped model `tiny` solves sometimes, a line each; further fields reach the reward too."""
    draw = random.Random(0)
    sums = [[draw.randint(20, 80), *(draw.randint(2, 9) for _ in range(3))] for _ in range(1000)]
    lines = [{"prompt": f"{a}+{b}-{c}+{d}=", "answer": str(a + b - c + d)} for a, b, c, d in sums]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, help="folder for the run (default: a temporary one)")
    arguments = parser.parse_args()
    folder = arguments.out or Path(tempfile.mkdtemp()) / "own-task"
    folder.parent.mkdir(parents=True, exist_ok=True)
    task = f"jsonl:{problems(folder.with_suffix('.jsonl'))}"
    run = train(
        TrainConfig(
            task=task, reward=f"{__file__}:score", steps=arguments.steps, prompts=16, eval_problems=60, out=str(folder)
        )
    )
    print(f"held out: {run.heldout['first']} at first, {run.heldout['last']} at last")
    print(f"the whole run on one page: grposcope report {folder}")


if __name__ == "__main__":
    main()
