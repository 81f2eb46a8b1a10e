"""One optimiser step on rollouts of a real model: its time next to the bound of its arithmetic, and its memory.

    python benchmarks/update.py --task gsm8k:FOLDER              2 prompts × 8 completions of 128 tokens
    python benchmarks/update.py --task gsm8k:FOLDER --memory     peak memory of whole steps, a process each
    python benchmarks/update.py --task gsm8k:FOLDER --profile    where the time goes, one update of each side

Sides, in turn in each round: `by hand` (the passes of `cpu`) and `autograd` (the model's own forward
over rows that hold a prompt and its completions). All rollouts have a reward of their own, so that every group is
live, and the limit's length. The bound is the floating-point operations of the update, every prompt computed once, over
the rate of large float32 matrix products that are measured right before and after each update. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import torch
from transformers.utils import logging

from grposcope.lab import cpu, policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.train import optimizer as optimizers
from grposcope.lab.train import setup
from grposcope.lab.train.config import TrainConfig
from grposcope.lab.train.update import TokenTerms, update

SIDES = ("by hand", "autograd")


def main() -> None:
    """Measure what is asked for; print a table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--micro-batch", type=int, default=0, help="0: as grposcope train chooses")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", choices=SIDES, help="only this one")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    sides = (arguments.side,) if arguments.side else SIDES
    if arguments.child:
        print(json.dumps(steps(arguments)))
    elif arguments.memory:
        results = {side: child(side) for side in sides}
        print("| side | " + " | ".join(results[sides[0]]) + " |\n|---|" + "---|" * len(results[sides[0]]))
        for side, peaks in results.items():
            print(f"| {side} | " + " | ".join(f"{value:.2f} GB" for value in peaks.values()) + " |")
        print(json.dumps(results))
    elif arguments.profile:
        for side in sides:
            profile(side, arguments)
    else:
        print(json.dumps(timed(sides, arguments)))


@contextmanager
def way(side: str) -> Iterator[None]:
    """Let updates go the way of that side."""
    with mock.patch.object(cpu, "passes", cpu.passes if side == "by hand" else lambda model: None):
        yield


def prepared(arguments: argparse.Namespace) -> tuple[Policy, tasks.Task, torch.optim.Optimizer, int]:
    """Model, task, AdamW with learning rate 0, and rollouts per forward pass."""
    policy, task = policies.load(arguments.model), tasks.load(arguments.task)
    optimizer = optimizers.build(policy.model.parameters(), 0.0, TrainConfig())
    return policy, task, optimizer, arguments.micro_batch or setup.micro_batch(policy, arguments.max_tokens)


def drawn(policy: Policy, task: tasks.Task, arguments: argparse.Namespace) -> RolloutBatch:
    """Random completions of the task's prompts, all of the limit's length, with rewards that differ."""
    stream = torch.Generator().manual_seed(0)
    problems = task.problems("train")[: arguments.prompts]
    ids, mask = policies.encode(policy, [p.prompt for p in problems], task.instruction, arguments.max_tokens)
    rows = (arguments.prompts * arguments.group, arguments.max_tokens)
    zeros = torch.zeros(rows)
    return RolloutBatch(
        prompt_ids=ids.repeat_interleave(arguments.group, 0),
        prompt_mask=mask.repeat_interleave(arguments.group, 0),
        tokens=torch.randint(2, policy.model.config.vocab_size, rows, generator=stream),
        mask=torch.ones(rows, dtype=torch.bool),
        logp=zeros,
        entropy=zeros,
        truncated=torch.ones(rows[0], dtype=torch.bool),
        rewards=torch.rand(arguments.prompts, arguments.group, dtype=torch.float64, generator=stream),
    )


def operations(policy: Policy, rollouts: RolloutBatch) -> float:
    """Floating-point operations of an update in which every prompt is computed once, and the last token is no input."""
    config: Any = policy.model.config
    group = rollouts.groups[1]
    prompts, inputs = rollouts.prompt_mask.sum(-1)[::group].double(), rollouts.lengths.double() - 1
    matrices = sum(p.numel() for n, p in policy.model.named_parameters() if p.dim() == 2 and "embed" not in n)
    matrices -= 0 if config.tie_word_embeddings else policy.model.lm_head.weight.numel()
    pairs = (prompts * (prompts + 1) / 2).sum() + (
        inputs * prompts.repeat_interleave(group) + inputs * (inputs + 1) / 2
    ).sum()
    width = policy.model.model.layers[0].self_attn.head_dim * config.num_attention_heads
    body = 2 * matrices * float(prompts.sum() + inputs.sum()) + 4 * width * config.num_hidden_layers * float(pairs)
    head = 2 * policy.model.lm_head.weight.numel() * float(rollouts.lengths.sum())
    return 3 * (body + head)  # forward, and twice as much backward


def rate() -> float:
    """Floating-point operations per second of large float32 matrix products, median of five."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - began)
    return 2 * 2048**3 / statistics.median(seconds)


def timed(sides: tuple[str, ...], arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds of an update of each side and over the bound, paired."""
    policy, task, optimizer, micro_batch = prepared(arguments)
    rollouts = drawn(policy, task, arguments)
    terms, work = TokenTerms(recipes.GRPO.token_advantages(rollouts)), operations(policy, rollouts)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    bounds: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(arguments.rounds + 1):
        for side in sides:
            before = rate()
            began = time.perf_counter()
            with way(side):
                update(policy.model, optimizer, recipes.GRPO, rollouts, terms, 1.0, 1.0, micro_batch)
            took = time.perf_counter() - began
            if turn:  # the first warms up
                seconds[side].append(took)
                bounds[side].append(work / statistics.mean((before, rate())))
    print("| side | n | s per update | bound, s | over the bound, median (min-max) |\n|---|---|---|---|---|")
    rows = {}
    for side in sides:
        over = [s / b for s, b in zip(seconds[side], bounds[side], strict=True)]
        rows[side] = {
            "n": len(over),
            "seconds": statistics.median(seconds[side]),
            "bound": statistics.median(bounds[side]),
            "over": [statistics.median(over), min(over), max(over)],
        }
        print(
            f"| {side} | {len(over)} | {rows[side]['seconds']:.2f} | {rows[side]['bound']:.2f} "
            f"| {statistics.median(over):.2f} ({min(over):.2f}-{max(over):.2f}) |"
        )
    return {"arguments": vars(arguments), "operations": work, "micro_batch": micro_batch, "rows": rows}


def profile(side: str, arguments: argparse.Namespace) -> None:
    """Print the shares of the operators in the second update of a side."""
    policy, task, optimizer, micro_batch = prepared(arguments)
    rollouts = drawn(policy, task, arguments)
    terms = TokenTerms(recipes.GRPO.token_advantages(rollouts))
    with way(side):
        update(policy.model, optimizer, recipes.GRPO, rollouts, terms, 1.0, 1.0, micro_batch)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
            update(policy.model, optimizer, recipes.GRPO, rollouts, terms, 1.0, 1.0, micro_batch)
    spent = sorted(recorded.key_averages(), key=lambda e: -e.self_cpu_time_total)
    whole = sum(e.self_cpu_time_total for e in spent)
    print(f"| {side}: {whole / 1e6:.2f} s | share | calls |\n|---|---|---|")
    for event in spent[:12]:
        print(f"| `{event.key}` | {event.self_cpu_time_total / whole:.1%} | {event.count} |")


def child(side: str) -> dict[str, float]:
    """Memory in GB along whole steps, in a process of its own."""
    command = [sys.executable, __file__, *sys.argv[1:], "--side", side, "--child"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def steps(arguments: argparse.Namespace) -> dict[str, float]:
    """Peak resident memory in GB after imports, loading, and each part of two whole steps."""
    marks = {"imports": peak()}
    policy, task, optimizer, micro_batch = prepared(arguments)
    shape, problems = (arguments.prompts, arguments.group), task.problems("train")
    endless = replace(policy, eos=torch.tensor([-1]))
    for step in (1, 2):
        batch = collect(
            endless, task, problems, recipes.GRPO, Sampling(arguments.max_tokens), shape, seed=step, position=0
        )
        marks[f"sampling {step}"] = peak()
        rewards = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        rollouts = replace(batch.rollouts, rewards=rewards)
        terms = TokenTerms(recipes.GRPO.token_advantages(rollouts))
        with way(arguments.side):
            update(policy.model, optimizer, recipes.GRPO, rollouts, terms, 1.0, 1.0, micro_batch)
        marks[f"update {step}"] = peak()
    return marks


def peak() -> float:
    """Largest resident memory of this process since it began, GB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9


if __name__ == "__main__":
    main()
