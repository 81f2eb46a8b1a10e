"""Gradient errors of all corrections against a probe, in turn, on the same rollouts of an int8 sampler.

    python benchmarks/corrections.py                    tiny on arithmetic, 16 × 8 rollouts, seven rounds
    python benchmarks/corrections.py --spread 0.02      ratios of that spread instead of the sampler's own
    python benchmarks/corrections.py --model smollm2 --prompts 4 --max-tokens 96 --rounds 3

Four sides, one after the other in each round, without the self-check:

    probe         the whole fast probe, as `benchmarks/probe.py` has it
    corrections   products of the estimates of prompts under every correction of `corrections.ALL`
    without       the same without prefix_ratio, which takes a copy of every rollout for itself alone
    sequence      the same for those with one coefficient per rollout, none and full among them

The ratios of CPU time are the ones to read on a machine shared with others. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys

import torch
from probe import timed
from transformers.utils import logging

from grposcope.instruments.gradient.probe import probe
from grposcope.instruments.offpolicy import estimates
from grposcope.instruments.offpolicy.from_model import mismatched
from grposcope.lab import policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.sampling import resumable_rollouts
from grposcope.lab.sampling.accumulate import frozen_logprobs
from grposcope.lab.sampling.sampler import Sampling
from grposcope.maths.corrections import ALL, NONE


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=0)
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--spread", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(given.threads)
    policy, task = policies.load(given.model), tasks.load(given.task, None)
    sampling = Sampling(given.max_tokens or task.max_tokens, precision=given.precision)
    drawn = resumable_rollouts.draw(policy, task, recipes.GRPO, sampling, (given.prompts, given.group), 0)
    rollouts = drawn.rollouts
    trainer = frozen_logprobs(policy.model, rollouts, 1.0, 32)
    if given.spread:
        noise = torch.randn(trainer.shape, generator=torch.Generator().manual_seed(0)).to(trainer)
        trainer = rollouts.logp + given.spread * noise
    ratios = mismatched(rollouts, trainer).ratios
    sequence = [one for one in ALL if one.level == "sequence" or one is NONE]
    few = [one for one in ALL if one.name != "prefix_ratio"]
    live = int((rollouts.rewards != rollouts.rewards[:, :1]).any(-1).sum())
    print(f"{rollouts.groups} rollouts, {live} groups live, {int(rollouts.mask.sum())} tokens, "
          f"spread of log ratios {ratios.log.std():.3g}")  # fmt: skip
    sides = {
        "probe": lambda: probe(policy.model, rollouts, recipes.GRPO, check=False),
        "corrections": lambda: estimates.measure(policy.model, rollouts, ratios, ALL, check=False),
        "without": lambda: estimates.measure(policy.model, rollouts, ratios, few, check=False),
        "sequence": lambda: estimates.measure(policy.model, rollouts, ratios, sequence, check=False),
    }
    names = tuple(sides)[1:]
    copies = {name: sides[name]().copies for name in names}
    print(f"copies: {copies}")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(given.rounds):
        for name, side in sides.items():
            times[name].append(timed(side))
        print(f"round {number}: " + ", ".join(f"{n} {t[-1][0]:.2f} s" for n, t in times.items()), file=sys.stderr)
    found = {}
    for name in names:
        for clock, at in (("wall", 0), ("CPU", 1)):
            each = [own[at] / base[at] for own, base in zip(times[name], times["probe"], strict=True)]
            found[f"{name} / probe, {clock}"] = statistics.median(each)
            print(f"{name} / probe, {clock}: {statistics.median(each):.2f} ({min(each):.2f}-{max(each):.2f})")
    print(json.dumps(found | {"copies": copies["corrections"], "live": live}))


if __name__ == "__main__":
    main()
