"""Graded rollouts that the geometry experiments share, drawn once and kept in a file.

    python experiments/geometry_rollouts.py --model smollm2 --task arithmetic:steps=1,limit=20 --groups 10 --out FILE

Draws batches of prompts until `--groups` groups with unequal rewards are found, or `--prompts` prompts
have been tried, and keeps every group with its rewards. Only mixed groups have a gradient; how many were
tried is kept beside them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from grposcope import policies, tasks
from grposcope.objectives import advantages, recipes
from grposcope.training.collect import collect
from grposcope.training.sampler import Sampling


def draw(given: argparse.Namespace, chunk: int = 8) -> None:
    """Keep mixed groups as a list of one-prompt Rollouts, the rewards of all groups tried, and the texts."""
    policy, source, group = policies.load(given.model), tasks.load(given.task), given.group
    sampling = Sampling(given.max_tokens or source.max_tokens)
    problems, position = source.problems("train"), 0
    mixed, texts, rewards = [], [], []
    while len(mixed) < given.groups and position < given.prompts:
        batch = collect(
            policy, source, problems, recipes.GRPO, sampling, (chunk, group), given.seed, position, source.labels_steps
        )
        rewards.append(batch.rollouts.rewards)
        for p, dead in enumerate(advantages.dead(batch.rollouts.rewards).tolist()):
            if not dead:
                mixed.append(batch.rollouts.take(torch.tensor([p])))
                texts.append(batch.texts[p * group : (p + 1) * group])
        position = batch.position
        solved = torch.cat(rewards).mean()
        print(f"{position} prompts tried, {len(mixed)} mixed groups, solved {solved:.3f}", flush=True)
        kept = {"mixed": mixed, "texts": texts, "rewards": torch.cat(rewards), "task": given.task, "model": given.model}
        torch.save(kept, given.out)  # after every batch, so that it can be stopped


def main() -> None:
    """Draw and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--task", default="arithmetic:steps=1,limit=20")
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=64, help="give up after so many")
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    Path(given.out).parent.mkdir(parents=True, exist_ok=True)
    draw(given)


if __name__ == "__main__":
    main()
