"""`grposcope offpolicy` from a model: on rollouts that another sampler draws, or on those of a file.

Rollouts of a file as token ids, with the sampler's log-probabilities: what a checkpoint makes the trainer's of.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers.utils import logging

from grposcope.commands import probe_model
from grposcope.core.errors import UserError
from grposcope.core.rollouts import Ints, Rollout, Text
from grposcope.instruments.offpolicy import from_model, read
from grposcope.instruments.offpolicy.answer import OffPolicyFound
from grposcope.instruments.offpolicy.read import MismatchedRollouts
from grposcope.lab import batch_memory, policies, tasks
from grposcope.lab.cpu import PRECISIONS
from grposcope.lab.objectives import recipes
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.lab.sampling.rollouts import collect
from grposcope.lab.sampling.sampler import Sampling
from grposcope.lab.train.setup import micro_batch
from grposcope.logs import read_rollouts
from grposcope.logs.rollout_columns import NAMES


def measure(arguments: argparse.Namespace) -> tuple[MismatchedRollouts, OffPolicyFound]:
    """The answer from a model on rollouts of a file, or on those that a sampler draws."""
    check(arguments)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    source = probe_model.find(arguments.model or arguments.place)
    settings = dict(probe_model.DEFAULTS) | dict(source.settings)
    for name in ("task", "max_tokens", "temperature"):
        if getattr(arguments, name) is None:
            setattr(arguments, name, settings.get(name))
    policy = policies.load(source.model, torch.float32, policies.device(arguments.device), arguments.remote_code)
    batches = _batches(arguments, policy)
    width = max(batch.tokens.shape[1] for batch in batches)
    return from_model.measure(
        policy.model, batches, micro_batch(policy, width), arguments.temperature,
        progress=lambda line: print(line, file=sys.stderr), cut=_sampler_cut(arguments),
    )  # fmt: skip


def check(arguments: argparse.Namespace) -> None:
    """UserError for flags that do not go together, and numbers that are too small."""
    if arguments.sampler_precision not in PRECISIONS:
        raise UserError(f"--sampler-precision {arguments.sampler_precision}: use one of {', '.join(PRECISIONS)}")
    if arguments.gram is not None:
        raise UserError("--gram goes with ROLLOUTS only: with a model the products are computed; leave it out")
    if arguments.temperature is not None and not arguments.temperature > 0:
        raise UserError(f"--temperature {arguments.temperature:g} must be above 0: greedy rollouts are all equal")
    if arguments.model is not None and (arguments.top_k is not None or arguments.top_p is not None):
        raise UserError("--top-k and --top-p apply to rollouts that are drawn here, not to ROLLOUTS; leave them out")
    if arguments.top_p is not None and not 0 < arguments.top_p <= 1:
        raise UserError(f"--top-p {arguments.top_p:g} must be above 0 and at most 1")
    for name, least in (("prompts", 2), ("group", 2), ("batches", 1), ("top_k", 1)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise UserError(f"--{name.replace('_', '-')} {value} must be at least {least}")
    if arguments.model is None:
        prompts = 64 if arguments.prompts is None else arguments.prompts
        sizes = {"--prompts": prompts, "--group": arguments.group}
        batch_memory.check(sizes, arguments.max_tokens, gram=True, longest="--max-tokens")


def _sampler_cut(arguments: argparse.Namespace) -> str:
    """From which tokens the sampler draws, as an answer says it; empty for all."""
    cuts = []
    if arguments.top_k is not None:
        cuts.append(f"the {arguments.top_k:,} likeliest tokens")
    if arguments.top_p is not None and arguments.top_p < 1:
        cuts.append(f"the likeliest tokens up to a probability of {arguments.top_p:g}")
    return " and of these ".join(cuts)


def _batches(arguments: argparse.Namespace, policy: Policy) -> list[RolloutBatch]:
    """The rollouts of the file, or those that the sampler draws."""
    if arguments.model is not None:
        return _batches_of_file(Path(arguments.place), policy, arguments.prompts)

    cut = _sampler_cut(arguments)
    if arguments.sampler is None and arguments.sampler_precision == "float32" and not cut:
        raise UserError(
            "sampler and trainer would be the same; give --sampler-precision int8, --top-k 20, or --sampler MODEL"
        )
    sampler = policy
    if arguments.sampler is not None:
        model = probe_model.find(arguments.sampler).model
        sampler = policies.load(model, device=policy.model.device.type, remote_code=arguments.remote_code)
    task = tasks.load(arguments.task, arguments.reward)
    sampling = Sampling(
        arguments.max_tokens or task.max_tokens, arguments.temperature, arguments.top_k or 0, arguments.top_p or 1.0,
        arguments.sampler_precision, processed=bool(cut),
    )  # fmt: skip
    prompts = 64 if arguments.prompts is None else arguments.prompts
    problems = task.problems("train")
    return [
        collect(sampler, task, problems, recipes.GRPO, sampling, (prompts, arguments.group), arguments.seed,
                number * prompts).rollouts
        for number in range(arguments.batches)
    ]  # fmt: skip


def _batches_of_file(path: Path, policy: Policy, prompts: int | None) -> list[RolloutBatch]:
    """The rollouts in batches of so many prompts, all in one by default; the rest that fills no batch is left out.

    UserError, with the line, for rows that lack a column or do not fit, and for groups of several sizes.
    """
    groups: dict[tuple[int, str | None], list[Rollout]] = {}
    for row in read_rollouts.rollouts(path):
        groups.setdefault((row.step, row.group), []).append(_with_ids(row, policy))
    sizes = {len(rows) for rows in groups.values()}
    if len(sizes) != 1 or min(sizes) < 2:
        raise UserError(
            f"{path}: groups have {', '.join(map(str, sorted(sizes))) or 'no'} rollouts; errors of the gradient need "
            "groups of one size, at least 2"
        )
    every, count = list(groups.values()), prompts or len(groups)
    if count > len(every):
        raise UserError(f"{path} has {len(every)} groups, fewer than a batch of {count}; use fewer prompts")
    return [_batch(every[start : start + count], policy) for start in range(0, len(every) - count + 1, count)]


def _with_ids(row: Rollout, policy: Policy) -> Rollout:
    """The rollout with the tokens of prompt and completion, encoded from their texts where it has none."""
    logp = read.log_probabilities(row, "sampler")
    if row.group is None or row.reward != row.reward:
        lacking = "group" if row.group is None else "reward"
        raise UserError(f"{row.where}: no {lacking}; errors of the gradient need both")
    completion = _ids(row.completion_ids, row.completion, "completion", policy, row.where)
    if len(completion) == len(logp) - 1:  # a text does not show the token that ended it
        completion = np.append(completion, int(policy.eos[0]))
    if len(completion) != len(logp) or not len(completion):
        raise UserError(
            f"{row.where}: {len(completion):,} tokens of the completion and {len(logp):,} log-probabilities of the "
            f"sampler; give the ids of the tokens that were drawn, as {NAMES['completion_ids'][0]}"
        )
    before = _ids(row.prompt_ids, row.prompt, "prompt", policy, row.where)
    return replace(row, prompt_ids=before, completion_ids=completion)


def _ids(ids: Ints | None, text: Text | None, name: str, policy: Policy, where: str) -> Ints:
    """Token ids, or those of the text."""
    if ids is None and isinstance(text, str):
        return np.array(policy.tokenizer(text, add_special_tokens=name == "prompt").input_ids, np.int64)
    vocabulary = int(getattr(policy.model.config, "vocab_size", 0) or 2**31)
    if ids is None or ((ids < 0) | (ids >= vocabulary)).any():
        raise UserError(
            f"{where}: no tokens of the {name}; give a list of ids of {policy.name}, as {NAMES[f'{name}_ids'][0]}, or "
            f"its plain text as {name}"
        )
    return ids


def _batch(groups: Sequence[Sequence[Rollout]], policy: Policy) -> RolloutBatch:
    """Groups of rollouts with tokens as a batch."""
    rows = [row for group in groups for row in group]
    before = [row.prompt_ids for row in rows if row.prompt_ids is not None]
    after = [row.completion_ids for row in rows if row.completion_ids is not None]
    sizes = max(map(len, before)), max(map(len, after))
    prompt_ids, tokens = (torch.full((len(rows), size), policy.pad) for size in sizes)
    logp = torch.zeros(tokens.shape, dtype=torch.float64)
    prompt_mask, mask = (torch.zeros(array.shape, dtype=torch.bool) for array in (prompt_ids, tokens))
    for i, row in enumerate(rows):
        start, end = sizes[0] - len(before[i]), len(after[i])
        prompt_ids[i, start:], prompt_mask[i, start:] = torch.from_numpy(before[i]), True
        tokens[i, :end], mask[i, :end] = torch.from_numpy(after[i]), True
        logp[i, :end] = torch.from_numpy(read.log_probabilities(row, "sampler"))
    rewards = torch.tensor([row.reward for row in rows], dtype=torch.float64).unflatten(0, (len(groups), -1))
    return RolloutBatch(
        prompt_ids, prompt_mask, tokens, mask, logp, torch.zeros_like(logp),
        torch.zeros(len(rows), dtype=torch.bool), rewards,
    ).to(policy.model.device)  # fmt: skip
