"""A whole training step (sample, grade, update): grposcope against TRL's GRPOTrainer, in turn in one process.

    python benchmarks/step_vs_trl.py                  tiny on arithmetic
    python benchmarks/step_vs_trl.py --model smollm2 --setting fixed --prompts 4 --group 2 --max-tokens 32 --steps 5 \
        --live 1 0.5 0.25

Both sides get the same weights, prompts, group size, token limit, AdamW, gradient clipping and
threads, with a learning rate of 0 so that neither drifts. TRL's step runs from its on_step_begin to
its on_step_end; then a step of grposcope runs on the same prompts. Two settings: `natural`, where
completions end when the model ends them and the task grades them, and `fixed`, where every
completion has exactly the token limit and rewards are a hash of the text, so that no group is dead
and no row ends early. There `--live` makes the groups of a batch dead but for these shares: a step of grposcope with
each share follows every step of TRL, which does the same work whatever the rewards. The last line is JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import torch
from datasets import Dataset
from transformers import TrainerCallback
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from grposcope.lab import policies, tasks
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.tasks import Problem, Task
from grposcope.lab.train import setup
from grposcope.lab.train.update import TokenTerms, update

WARM_UP = 2
"""Steps of each side that do not count."""


class Hashed(Task):
    """A task whose rewards are a hash of the completion, so that they are rarely equal; 0 for `dead` problems."""

    def __init__(self, inner: Task, dead: Container[str] = ()):
        self.inner, self.name, self.instruction, self.dead = inner, inner.name, inner.instruction, dead

    def problems(self, split: Any) -> Sequence[Problem]:
        return self.inner.problems(split)

    def reward(self, problem: Problem, completion: str) -> float:
        return 0.0 if problem.id in self.dead else hashlib.sha256(completion.encode()).digest()[0] / 255


def prompt_texts(policy: Policy, task: Task, problems: Sequence[Problem]) -> list[str]:
    """The exact text of each prompt, so that both sides read the same tokens."""
    ids, mask = policies.encode(policy, [p.prompt for p in problems], task.instruction)
    return [policy.tokenizer.decode(row[keep]) for row, keep in zip(ids, mask, strict=True)]


def measure(
    arguments: argparse.Namespace, setting: str, load: Callable[[str], Policy] = policies.load
) -> list[dict[str, Any]]:
    """Seconds per step of both sides, paired, as medians; a row per share of live groups, None where it is natural.

    arguments.device: cpu, or the device on which `load` puts the models.
    """
    synchronize = torch.cuda.synchronize if arguments.device != "cpu" else lambda: None
    plain = tasks.load(arguments.task)
    shares: list[float | None] = [None] if setting == "natural" else arguments.live
    trl_policy, policy = load(arguments.model), load(arguments.model)
    shape, rounds = (arguments.prompts, arguments.group), arguments.steps + WARM_UP
    problems = plain.problems("train")[: shape[0] * rounds]
    ours_by_share: dict[float | None, list[dict[str, float]]] = {share: [] for share in shares}
    graded = {share: graded_task(plain, problems, shape[0], share) for share in shares}
    task = graded[shares[0]]
    by_text = dict(zip(prompt_texts(policy, task, problems), problems, strict=True))
    if setting == "fixed":
        policy = replace(policy, eos=torch.tensor([-1], device=policy.model.device))
    sampling = Sampling(arguments.max_tokens)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=0.0, fused=True)
    objective = recipes.GRPO
    micro_batch = setup.micro_batch(policy, arguments.max_tokens)

    def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        return [task.reward(by_text[p], c) for p, c in zip(prompts, completions, strict=True)]

    def our_step(index: int, task: Task) -> dict[str, float]:
        began = time.perf_counter()
        chosen = problems[index * shape[0] : (index + 1) * shape[0]]
        batch = collect(policy, task, chosen, objective, sampling, shape, seed=index, position=0)
        synchronize()
        sampled = time.perf_counter()
        fixed = TokenTerms(objective.token_advantages(batch.rollouts), None, None)
        done = update(policy.model, optimizer, objective, batch.rollouts, fixed, 1.0, 1.0, micro_batch)
        synchronize()
        ended = time.perf_counter()
        length = float(batch.rollouts.lengths.float().mean())
        return {
            "seconds": ended - began,
            "sample": sampled - began,
            "update": ended - sampled,
            "trained": done.trained,
            "length": length,
        }

    theirs: list[float] = []
    lengths: list[float] = []

    class InTurn(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            synchronize()
            self.began = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            synchronize()
            theirs.append(time.perf_counter() - self.began)
            lengths.append(trainer._metrics["train"]["completions/mean_length"][-1])
            for share, ours in ours_by_share.items():
                ours.append(our_step(len(ours), graded[share]))

    with tempfile.TemporaryDirectory() as scratch:
        config = GRPOConfig(
            output_dir=scratch, use_cpu=arguments.device == "cpu", bf16=False, report_to="none", save_strategy="no",
            disable_tqdm=True, logging_steps=1000, shuffle_dataset=False, max_steps=rounds,
            learning_rate=0.0, max_grad_norm=1.0,
            per_device_train_batch_size=shape[0] * shape[1], num_generations=shape[1], beta=0.0, loss_type="grpo",
            max_completion_length=arguments.max_tokens, temperature=1.0, gradient_checkpointing=False,
            generation_kwargs={"min_new_tokens": arguments.max_tokens} if setting == "fixed" else None,
        )  # fmt: skip
        data = Dataset.from_dict({"prompt": list(by_text)})
        trainer = GRPOTrainer(
            trl_policy.model, reward, config, data, processing_class=trl_policy.tokenizer, callbacks=[InTurn()]
        )
        trainer.train()
    return [
        {"setting": setting, "live": share, **compared(ours[WARM_UP:], theirs[WARM_UP:], lengths[WARM_UP:])}
        for share, ours in ours_by_share.items()
    ]


def graded_task(task: Task, problems: Sequence[Problem], prompts: int, live: float | None) -> Task:
    """The task with hashed rewards that differ in a share `live` of the `prompts` of each batch; unchanged for None."""
    if live is None:
        return task
    return Hashed(task, {p.id for i, p in enumerate(problems) if i % prompts >= round(live * prompts)})


def compared(ours: list[dict[str, float]], theirs: list[float], lengths: list[float]) -> dict[str, float]:
    """Figures of steps in turn."""
    ratios = [t / o["seconds"] for t, o in zip(theirs, ours, strict=True)]
    return {
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
    parser.add_argument("--live", type=float, nargs="+", default=[1.0], help="shares of live groups in `fixed`")
    parser.add_argument("--steps", type=int, default=15, help="counted steps of each side")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    settings = ("natural", "fixed") if arguments.setting == "both" else (arguments.setting,)
    load = partial(policies.load, device=policies.device(arguments.device))
    rows = [row for setting in settings for row in measure(arguments, setting, load)]
    print(
        "| setting | live | n | grposcope s/step | TRL s/step | TRL ÷ grposcope (median, min-max) "
        "| grposcope: sample + update s | tokens |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for r in rows:
        spread = f"{r['ratio_median']:.2f} ({r['ratio_min']:.2f}-{r['ratio_max']:.2f})"
        phases = f"{r['ours_sample_s']:.3f} + {r['ours_update_s']:.3f}"
        lengths = f"{r['ours_length']:.1f} / {r['trl_length']:.1f}"
        live = "as it comes" if r["live"] is None else f"{r['live']:g}"
        cells = [
            r["setting"],
            live,
            r["n"],
            f"{r['ours_median_s']:.3f}",
            f"{r['trl_median_s']:.3f}",
            spread,
            phases,
            lengths,
        ]
        print("| " + " | ".join(map(str, cells)) + " |")
    print(json.dumps({"arguments": vars(arguments), "rows": rows}))


if __name__ == "__main__":
    main()
