"""What GRPOscopeTrainer costs in a TRL run: its probes, and its own time without them.

    python benchmarks/trl_trainer.py [--model smollm2] [--prompts 4] [--group 4] [--tokens 32] [--steps 4] [--every 10]

Trains with TRL for a few steps, probing all groups at every second step, and adds up by profile, since whole runs
differ by more than what is measured: seconds of a step (median without the first and the last), of a probe with the
self-check (one in ten has it) and without, and of what else the trainer does in a step. `probe_share` is the cost of
probing every `--every` steps over these steps, `own_share` that of the rest over a step; the callback's seconds
contain its beginning and end. The reward is the share of digits, so that groups are alive. The last line is JSON.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from datasets import Dataset
from transformers import TrainerCallback
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from grposcope.engines.trl import GRPOscopeTrainer
from grposcope.engines.trl import trainer as ours
from grposcope.lab import policies

PROMPTS = ["What is 7 + 5?", "What is 13 + 4?", "Name three numbers.", "How many days has a week?", "What is 9 - 2?",
           "Count to five.", "What is 6 * 3?", "How old is a teenager?"]  # fmt: skip


def digits(completions: list[Any], **_: Any) -> list[float]:
    """Share of characters that are digits."""
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    return [sum(map(str.isdigit, text)) / max(len(text), 1) for text in texts]


class Clock(TrainerCallback):
    """When each step begins."""

    def __init__(self) -> None:
        self.begins: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.begins.append(time.perf_counter())


def timed(owner: Any, name: str, spent: list[float]) -> Callable[..., Any]:
    """Replace a function by one that adds its seconds to the list; returns the function."""
    inner = getattr(owner, name)

    @functools.wraps(inner)  # the trainer looks at the signature
    def outer(*given: Any, **more: Any) -> Any:
        began = time.perf_counter()
        try:
            return inner(*given, **more)
        finally:
            spent.append(time.perf_counter() - began)

    setattr(owner, name, outer)
    return inner


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("prompts", 4), ("group", 4), ("tokens", 32), ("steps", 4), ("every", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--model", default="smollm2")
    given = parser.parse_args()
    logging.set_verbosity_error()
    policy = policies.load(given.model)
    whole: list[float] = []
    theirs: list[float] = []
    probes: list[float] = []
    timed(GRPOTrainer, "_generate_and_score_completions", theirs)
    timed(ours.GRPOscopeMixin, "_generate_and_score_completions", whole)
    timed(ours, "_probe", probes)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        texts = (PROMPTS * given.prompts)[: given.prompts]
        prompts = [[{"role": "user", "content": text}] for text in texts] if policy.tokenizer.chat_template else texts
        trainer = GRPOscopeTrainer(
            policy.model,
            digits,
            args=GRPOConfig(
                folder, max_steps=given.steps, per_device_train_batch_size=given.prompts * given.group,
                num_generations=given.group, max_completion_length=given.tokens, learning_rate=1e-6, use_cpu=True,
                bf16=False, report_to="none", disable_tqdm=True, logging_steps=1, save_strategy="no",
            ),
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=policy.tokenizer,
            callbacks=[clock],
            probe_every=2,
            probe_prompts=given.prompts,
        )  # fmt: skip
        trainer.train()
    ends = time.perf_counter()
    steps = [b - a for a, b in zip(clock.begins, [*clock.begins[1:], ends], strict=True)]
    plain = [seconds - (probes[k // 2] if k % 2 == 0 else 0.0) for k, seconds in enumerate(steps)][1:-1]
    step = statistics.median(plain)
    own = [a - b - (probes[k // 2] if k % 2 == 0 else 0.0) for k, (a, b) in enumerate(zip(whole, theirs, strict=True))]
    callback = trainer._scope_record.seconds / given.steps
    checked, others = probes[0], statistics.median(probes[1:])
    result = {
        **vars(given),
        "step": step,
        "probe_checked": checked,
        "probe": others,
        "probe_share": (0.1 * checked + 0.9 * others) / (given.every * step),
        "own": statistics.median(own),
        "callback_with_begin_and_end": callback,
        "own_share": statistics.median(own) / step,
    }
    for name in ("step", "probe_checked", "probe", "own", "callback_with_begin_and_end"):
        print(f"{name:28} {result[name]:.4f} s")
    shares = f"{result['probe_share']:.1%} of these steps; the rest {result['own_share']:.2%}"
    print(f"probes every {given.every} steps: {shares}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
