"""GRPOTrainer of TRL with GRPOscopeCallback: record, diagnosis and alarms, in one line.

    pip install 'grposcope[trl]'
    python examples/trl_callback.py --steps 40 --alert-to tensorboard

The model is the one that GRPOscope ships, so that a step takes a fraction of a second on two cores.
"""

from __future__ import annotations

import argparse

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from grposcope.engines.trl import GRPOscopeCallback
from grposcope.lab import policies, tasks

TASK = tasks.load("arithmetic")
PROBLEMS = list(TASK.problems("train"))[:200]
BY_PROMPT = {problem.prompt: problem for problem in PROBLEMS}


def right(prompts: list[str], completions: list[str], **columns: object) -> list[float]:
    """1 where the sum is right, else 0."""
    return [TASK.reward(BY_PROMPT[prompt], text) for prompt, text in zip(prompts, completions, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", default="outputs", help="folder of the trainer")
    parser.add_argument("--alert-to", nargs="*", default=[], help="wandb, tensorboard, or URLs, such as Slack's")
    arguments = parser.parse_args()
    policy = policies.load("tiny")
    watch = GRPOscopeCallback(stop_on="non-finite", alert_to=arguments.alert_to)
    trainer = GRPOTrainer(
        policy.model,
        right,
        args=GRPOConfig(
            arguments.out, max_steps=arguments.steps, per_device_train_batch_size=32, num_generations=8,
            max_completion_length=TASK.max_tokens, learning_rate=1e-4, use_cpu=True, bf16=False, report_to="none",
            logging_steps=1, log_completions=True, num_completions_to_print=0,  # every row, every reward
        ),
        train_dataset=Dataset.from_dict({"prompt": list(BY_PROMPT)}),
        processing_class=policy.tokenizer,
        callbacks=[watch],
    )  # fmt: skip
    trainer.train()


if __name__ == "__main__":
    main()
