"""`grposcope offpolicy` from a model: on rollouts that another sampler draws, or on those of a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from transformers.utils import logging

from grposcope.commands import probe_model
from grposcope.core.errors import UserError
from grposcope.instruments.offpolicy import from_model, token_rollouts
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
        return token_rollouts.batches(Path(arguments.place), policy, arguments.prompts)

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
