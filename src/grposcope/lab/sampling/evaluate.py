"""Held-out accuracy: pass@1 and the unbiased pass@k, each with its standard error over problems."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grposcope.core.estimate import Estimate
from grposcope.lab.policies import Policy, encode
from grposcope.lab.sampling.draw_settings import DrawSettings
from grposcope.lab.sampling.sampler import Sampling, sample
from grposcope.lab.sampling.turn_sampler import sample_turns
from grposcope.lab.tasks import faults
from grposcope.lab.tasks.base import Problem, Task
from grposcope.lab.tasks.faults import ErrorPolicy
from grposcope.maths.pass_at_k import pass_at_k

CHUNK = 256
"""Completions sampled at once."""


def evaluate(
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    samples: int,
    sampling: Sampling,
    generator: torch.Generator,
    reward_timeout: float = 0,
    reward_errors: ErrorPolicy = "fail",
) -> dict[str, Estimate]:
    """pass@k for k = 1, 2, 4, … ≤ samples, and the mean reward and length, over the problems.

    A completion passes when its reward is at least 1, one of several turns when that of a turn is. The problems are the
    independent units of the standard errors; several completions of one problem are not. Grading up to CHUNK of them
    may take `reward_timeout` seconds, 0 for no limit. A completion whose reward fails counts as 0, unless
    `reward_errors` is "fail".
    """
    per_problem: dict[str, list[float]] = {}
    size = max(1, CHUNK // samples)
    for start in range(0, len(problems), size):
        batch = problems[start : start + size]
        policy_here: ErrorPolicy = "fail" if reward_errors == "fail" else "zero"
        if task.max_turns > 1:
            settings = DrawSettings(sampling, reward_timeout=reward_timeout, reward_errors=policy_here)
            drawn = sample_turns(policy, task, batch, samples, settings, generator)
            completions, rewards = drawn.completions, list(drawn.rewards)
            best = [max(own, default=0.0) for own in drawn.turn_rewards]
        else:
            ids, mask = encode(policy, [p.prompt for p in batch], task.instruction, sampling.max_tokens)
            completions = sample(policy.model, (ids, mask), samples, sampling, policy.eos, policy.pad, generator)
            texts = policy.tokenizer.batch_decode(completions.tokens, skip_special_tokens=True)
            asked = [p for p in batch for _ in range(samples)]
            rewards, _ = faults.graded(task, asked, texts, reward_timeout, policy_here)
            best = rewards
        lengths = completions.mask.sum(-1).tolist()
        for index in range(len(batch)):
            rows = slice(index * samples, (index + 1) * samples)
            passed = sum(r >= 1 for r in best[rows])
            k = 1
            while k <= samples:
                per_problem.setdefault(f"pass@{k}", []).append(pass_at_k(samples, passed, k))
                k *= 2
            per_problem.setdefault("reward", []).append(sum(rewards[rows]) / samples)
            per_problem.setdefault("length", []).append(sum(lengths[rows]) / samples)
    return {name: Estimate.mean(values) for name, values in per_problem.items()}
