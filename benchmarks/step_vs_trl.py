"""A whole training step (sample, grade, update): grposcope against TRL's GRPOTrainer, in turn in one process.

    python benchmarks/step_vs_trl.py                  tiny on arithmetic
    python benchmarks/step_vs_trl.py --model smollm2 --setting fixed --prompts 2 --group 4 --max-tokens 64 --steps 5

Both sides get the same weights, prompts, group size, token limit, AdamW, gradient clipping and
threads, with a learning rate of 0 so that neither drifts. TRL's step runs from its on_step_begin to
its on_step_end; then a step of grposcope runs on the same prompts. Two settings: `natural`, where
completions end when the model ends them and the task grades them, and `fixed`, where every
completion has exactly the token limit and rewards are a hash of the text, so that no group is dead
and no row ends early. The last line is JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from datasets import Dataset
from transformers import TrainerCallback
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from grposcope import policies, tasks
from grposcope.objectives import recipes
from grposcope.policies import Policy
from grposcope.tasks import Problem, Task
from grposcope.training.rollouts import collect
from grposcope.training.sampler import Sampling
from grposcope.training.update import TokenTerms, update


class Hashed(Task):
    """A task whose rewards are a hash of the completion, so that they are rarely equal."""

    def __init__(self, inner: Task):
        self.inner, self.name, self.instruction = inner, inner.name, inner.instruction

    def problems(self, split: Any) -> Sequence[Problem]:
        return self.inner.problems(split)

    def reward(self, problem: Problem, completion: str) -> float:
        return hashlib.sha256(completion.encode()).digest()[0] / 255


def prompt_texts(policy: Policy, task: Task, problems: Sequence[Problem]) -> list[str]:
    """The exact text of each prompt, so that both sides read the same tokens."""
    ids, mask = policies.encode(policy, [p.prompt for p in problems], task.instruction)
    return [policy.tokenizer.decode(row[keep]) for row, keep in zip(ids, mask, strict=True)]


def measure(arguments: argparse.Namespace, setting: str) -> dict[str, Any]:
    """Seconds per step of both sides, paired, as medians."""
    task = tasks.load(arguments.task)
    task = Hashed(task) if setting == "fixed" else task
    trl_policy, policy = policies.load(arguments.model), policies.load(arguments.model)
    shape, rounds = (arguments.prompts, arguments.group), arguments.steps + 2
    problems = task.problems("train")[: shape[0] * rounds]
    by_text = dict(zip(prompt_texts(policy, task, problems), problems, strict=True))
    if setting == "fixed":
        policy = replace(policy, eos=torch.tensor([-1]))
    sampling = Sampling(arguments.max_tokens)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=0.0, fused=True)
    objective = recipes.GRPO

    def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        return [task.reward(by_text[p], c) for p, c in zip(prompts, completions, strict=True)]

    def our_step(index: int) -> dict[str, float]:
        began = time.perf_counter()
        chosen = problems[index * shape[0] : (index + 1) * shape[0]]
        batch = collect(policy, task, chosen, objective, sampling, shape, seed=index, position=0)
        sampled = time.perf_counter()
        fixed = TokenTerms(objective.token_advantages(batch.rollouts), None, None)
        done = update(policy.model, optimizer, objective, batch.rollouts, fixed, 1.0, 1.0, arguments.micro_batch)
        ended = time.perf_counter()
        length = float(batch.rollouts.lengths.float().mean())
        return {
            "seconds": ended - began,
            "sample": sampled - began,
            "update": ended - sampled,
            "trained": done.trained,
            "length": length,
        }

    ours: list[dict[str, float]] = []
    theirs: list[float] = []
    lengths: list[float] = []

    class InTurn(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            theirs.append(time.perf_counter() - self.began)
            lengths.append(trainer._metrics["train"]["completions/mean_length"][-1])
            ours.append(our_step(len(ours)))

    with tempfile.TemporaryDirectory() as scratch:
        config = GRPOConfig(
            output_dir=scratch, use_cpu=True, bf16=False, report_to="none", save_strategy="no", disable_tqdm=True,
            logging_steps=1000, shuffle_dataset=False, max_steps=rounds, learning_rate=0.0, max_grad_norm=1.0,
            per_device_train_batch_size=shape[0] * shape[1], num_generations=shape[1], beta=0.0, loss_type="grpo",
            max_completion_length=arguments.max_tokens, temperature=1.0, gradient_checkpointing=False,
            generation_kwargs={"min_new_tokens": arguments.max_tokens} if setting == "fixed" else None,
        )  # fmt: skip
        data = Dataset.from_dict({"prompt": list(by_text)})
        trainer = GRPOTrainer(
            trl_policy.model, reward, config, data, processing_class=trl_policy.tokenizer, callbacks=[InTurn()]
        )
        trainer.train()
    ours, theirs, lengths = ours[2:], theirs[2:], lengths[2:]  # the first two warm up
    ratios = [t / o["seconds"] for t, o in zip(theirs, ours, strict=True)]
    return {
        "setting": setting,
        "n": len(ratios),
        "ours_median_s": statistics.median(o["seconds"] for o in ours),
        "trl_median_s": statistics.median(theirs),
        "ratio_median": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "ours_sample_s": statistics.median(o["sample"] for o in ours),
        "ours_update_s": statistics.median(o["update"] for o in ours),
        "ours_length": statistics.mean(o["length"] for o in ours),
        "trl_length": statistics.mean(lengths),
        "ours_rollouts_trained": statistics.mean(o["trained"] for o in ours),
    }


def main() -> None:
    """Measure and print a table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--setting", choices=("natural", "fixed", "both"), default="both")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=25)
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=15, help="counted steps of each side")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    settings = ("natural", "fixed") if arguments.setting == "both" else (arguments.setting,)
    rows = [measure(arguments, setting) for setting in settings]
    print(
        "| setting | n | grposcope s/step | TRL s/step | TRL ÷ grposcope (median, min-max) "
        "| grposcope: sample + update s | tokens |"
    )
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        spread = f"{r['ratio_median']:.2f} ({r['ratio_min']:.2f}-{r['ratio_max']:.2f})"
        phases = f"{r['ours_sample_s']:.3f} + {r['ours_update_s']:.3f}"
        lengths = f"{r['ours_length']:.1f} / {r['trl_length']:.1f}"
        cells = [r["setting"], r["n"], f"{r['ours_median_s']:.3f}", f"{r['trl_median_s']:.3f}", spread, phases, lengths]
        print("| " + " | ".join(map(str, cells)) + " |")
    print(json.dumps({"arguments": vars(arguments), "rows": rows}))


if __name__ == "__main__":
    main()
