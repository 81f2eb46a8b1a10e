"""Trees beside independent rollouts: seconds per generated token, and tokens generated against those promised.

    python benchmarks/trees.py --model tiny
    python benchmarks/trees.py --model smollm2 --task gsm8k:FOLDER --prompts 4 --tokens 64 --every 16

In every round the same prompts are sampled as trees and as the same number of independent rollouts, in turn. Two pairs
per round: with the model's end tokens, and without any, where every completion has `--tokens` tokens. Seconds are those
of the whole batch, the reading of the prompts included, over the tokens that it generated. The promise of the branch
places is Σ_t (branches alive at token t), which without ends is a number and with them is estimated from the lengths of
the independent rollouts. `--even` gives the trees so many more prompts that both sides generate as many tokens: a tree
has fewer rows in its first tokens, and a step of few rows costs more per row. `--cpu` takes the processor's time,
where other programs run. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from math import prod
from typing import Any


def main() -> None:
    import torch

    from grposcope.core.estimate import Estimate
    from grposcope.core.named_settings import Widths
    from grposcope.lab import policies, tasks
    from grposcope.lab.credit.trees import filling, generated
    from grposcope.lab.sampling.sampler import Sampling, Tree, sample, sample_trees

    arguments = _parser().parse_args()
    torch.set_num_threads(arguments.threads)
    policy, task = policies.load(arguments.model), tasks.load(arguments.task)
    widths = Widths((2, 2, 2), "").read(arguments.widths)
    group = arguments.group or prod(widths)
    every, most = arguments.every, arguments.tokens or task.max_tokens
    alive = [prod(filling(widths, group)[: min(t // every, len(widths) - 1) + 1]) for t in range(most)]
    problems, sampling = task.problems("train"), Sampling(most)

    def promised(lengths: torch.Tensor) -> float:
        """Tokens per prompt, from the lengths of independent rollouts."""
        return sum(branches * float((lengths > t).double().mean()) for t, branches in enumerate(alive))

    clock = time.process_time if arguments.cpu else time.perf_counter
    never = torch.tensor([-1])
    share = promised(torch.tensor([most])) / (group * most)
    grown = round(arguments.prompts / share) if arguments.even else arguments.prompts
    ratios: dict[str, list[float]] = {"ends": [], "no ends": []}
    counts: dict[str, list[float]] = {"ends": [], "no ends": []}
    saved: list[float] = []
    cases = {"ends": policy.eos, "no ends": never}
    if arguments.case:
        cases = {arguments.case: cases[arguments.case]}
    for number in range(-1, arguments.rounds):
        start = (number + 1) * grown
        chosen = [problems[(start + i) % len(problems)].prompt for i in range(grown)]
        ids, mask = policies.encode(policy, chosen, task.instruction, most)
        for name, eos in cases.items():
            few, few_mask = ids[: arguments.prompts], mask[: arguments.prompts]
            stream = torch.Generator().manual_seed(number + 7)
            took: dict[str, tuple[float, float]] = {}
            for side in ("plain", "tree") if number % 2 else ("tree", "plain"):
                began = clock()
                if side == "plain":
                    out = sample(policy.model, (few, few_mask), group, sampling, eos, policy.pad, stream)
                    seconds, tokens = clock() - began, int(out.mask.sum())
                    lengths = out.mask.sum(-1)
                else:
                    out, levels = sample_trees(
                        policy.model, (ids, mask), group, Tree(widths, every), sampling, eos, policy.pad, stream
                    )
                    seconds, tokens = clock() - began, generated(levels, out.mask, group, widths)
                took[side] = seconds, tokens
            if number < 0:  # warming up
                continue
            ratios[name].append(math.log(took["tree"][0] / took["tree"][1] * took["plain"][1] / took["plain"][0]))
            counts[name].append(took["tree"][1] / grown / promised(lengths))
            if name == "ends":
                saved.append(took["tree"][1] / grown / (took["plain"][1] / arguments.prompts))
    result: dict[str, Any] = {"arguments": vars(arguments), "group": group, "prompts of trees": grown}
    for name in cases:
        cost, count = Estimate.mean(ratios[name]), Estimate.mean(counts[name])
        low, high = (math.exp(x) for x in cost.interval())
        print(f"{name}: {math.exp(cost.value):.3f} × the seconds per generated token ({low:.3f} to {high:.3f}), "
              f"{count.value:.4f} ± {count.se:.4f} of the tokens promised (n = {cost.n} rounds)")  # fmt: skip
        result[name] = {"seconds per token": [math.exp(cost.value), low, high], "of promise": [count.value, count.se]}
    if saved:
        few_tokens = Estimate.mean(saved)
        print(f"tokens of a tree over those of as many rollouts: {few_tokens.value:.3f} ± {few_tokens.se:.3f}")
        result["tokens"] = [few_tokens.value, few_tokens.se]
    print(json.dumps(result))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--group", type=int, default=0, help="leaves per prompt, 0 for one tree")
    parser.add_argument("--widths", default="2x2x2")
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=0, help="longest completion, 0 for the task's")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--even", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--case", choices=("ends", "no ends"), help="one of the two pairs alone")
    return parser


if __name__ == "__main__":
    main()
