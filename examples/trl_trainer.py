"""GRPOscopeTrainer in the place of TRL's GRPOTrainer: probes of the gradient, and credit for single steps.

    pip install 'grposcope[trl]'
    torchrun --nproc_per_node 2 examples/trl_trainer.py --credit steps

The shipped model rewrites a sum one operation at a time: each rewriting is a step.
"""

from __future__ import annotations

import argparse

from datasets import Dataset
from trl import GRPOConfig

from grposcope.engines.trl import GRPOscopeTrainer
from grposcope.lab import policies, tasks

TASK = tasks.load("arithmetic")
PROBLEMS = list(TASK.problems("train"))[:200]
BY_PROMPT = {problem.prompt: problem for problem in PROBLEMS}


def right(prompts: list[str], completions: list[str], **columns: object) -> list[float]:
    """1 where the sum is right, else 0."""
    return [TASK.reward(BY_PROMPT[prompt], text) for prompt, text in zip(prompts, completions, strict=True)]


def lines(prompts: list[str], completions: list[str], **columns: object) -> list[list[tuple[int, float]]]:
    """For each completion its steps: where each ends, and 1 where it is right."""
    pairs = zip(prompts, completions, strict=True)
    return [[(step.end, float(step.correct)) for step in TASK.steps(BY_PROMPT[one], text)] for one, text in pairs]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", default="outputs", help="folder of the trainer")
    parser.add_argument("--credit", default="outcome", help="outcome, steps or process")
    parser.add_argument("--probe-every", type=int, default=10)
    arguments, policy = parser.parse_args(), policies.load("tiny")
    trainer = GRPOscopeTrainer(
        policy.model,
        right,
        args=GRPOConfig(
            arguments.out, max_steps=arguments.steps, per_device_train_batch_size=32, num_generations=8,
            max_completion_length=TASK.max_tokens, learning_rate=1e-4, use_cpu=True, bf16=False, report_to="none",
            logging_steps=1, log_completions=True, num_completions_to_print=0,  # every row, every reward
        ),
        train_dataset=Dataset.from_dict({"prompt": list(BY_PROMPT)}),
        processing_class=policy.tokenizer,
        probe_every=arguments.probe_every,
        credit=arguments.credit,
        step_rewards=None if arguments.credit == "outcome" else lines,
    )  # fmt: skip
    trainer.train()


if __name__ == "__main__":
    main()
