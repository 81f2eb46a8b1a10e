"""Graded rollouts that the geometry experiments share, drawn once and kept in a file.

    python experiments/geometry_rollouts.py --task arithmetic:steps=1,limit=20 --max-tokens 12 --out FILE
    python experiments/geometry_rollouts.py --task gsm8k:../shared/data/gsm8k --shortest 256 --max-tokens 220 \\
        --temperature 0.7 --chunk 8 --minutes 25 --groups 4 --prompts 256 --out FILE

Draws batches of prompts until `--groups` groups with unequal rewards are found, `--prompts` prompts have
been tried or `--minutes` of CPU time are spent. Every group is kept, with its rewards and texts; mixed ones,
the only ones with a gradient, also by themselves. `--shortest N` takes the N problems with the shortest
worked solution, as a stand-in for the easiest. Printed is the rate solved, with Wilson's 95 % interval, which
takes rollouts as independent: those of one prompt are not, so it is too narrow.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from grposcope.lab import policies, tasks
from grposcope.lab.objectives import advantages, recipes
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.maths.intervals import wilson


def draw(given: argparse.Namespace) -> dict[str, object]:
    """Draw until one of the limits is reached, saving all groups and the mixed ones after every batch; the counts."""
    policy, source, group = policies.load(given.model), tasks.load(given.task), given.group
    sampling = Sampling(given.max_tokens or source.max_tokens, given.temperature)
    problems, position = source.problems("train"), 0
    if given.shortest:
        problems = sorted(problems, key=lambda p: len(str(p.fields["solution"])))[: given.shortest]
    kept: dict[str, list] = {"mixed": [], "all": [], "texts": [], "written": [], "answers": []}
    rewards, counts, began = [], {}, time.process_time()
    while (
        len(kept["mixed"]) < given.groups
        and position < given.prompts
        and time.process_time() - began < 60 * given.minutes
    ):
        batch = collect(
            policy, source, problems, recipes.GRPO, sampling, (given.chunk, group), given.seed, position,
            label_steps=source.labels_steps,
        )  # fmt: skip
        rewards.append(batch.rollouts.rewards)
        kept["all"].append(batch.rollouts)
        kept["written"] += batch.texts
        kept["answers"] += [p.answer for p in batch.problems]
        for p, dead in enumerate(advantages.dead(batch.rollouts.rewards).tolist()):
            if not dead:
                kept["mixed"].append(batch.rollouts.take(torch.tensor([p])))
                kept["texts"].append(batch.texts[p * group : (p + 1) * group])
        position = batch.position
        every = torch.cat(rewards)
        low, high = wilson(float(every.mean()), every.numel())
        counts = {
            "prompts": position, "rollouts": every.numel(), "solved": float(every.sum()), "rate": float(every.mean()),
            "wilson": [low, high], "mixed": len(kept["mixed"]), "cpu_minutes": (time.process_time() - began) / 60,
        }  # fmt: skip
        print(json.dumps(counts), flush=True)
        whole = {**kept, "rewards": every, **{name: getattr(given, name) for name in ("task", "model", "temperature")}}
        torch.save(whole, given.out)  # after every batch, so that it can be stopped
    return counts


def main() -> None:
    """Draw and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--task", default="arithmetic:steps=1,limit=20")
    parser.add_argument("--groups", type=int, default=10, help="mixed groups to stop at")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=64, help="give up after so many")
    parser.add_argument("--minutes", type=float, default=60, help="CPU minutes to give up after")
    parser.add_argument("--chunk", type=int, default=8, help="prompts drawn at a time")
    parser.add_argument("--shortest", type=int, default=0, help="only problems with the shortest worked solutions")
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    Path(given.out).parent.mkdir(parents=True, exist_ok=True)
    print(json.dumps(draw(given)))


if __name__ == "__main__":
    main()
