"""Rollouts of a file as token ids, with the sampler's log-probabilities: what a checkpoint makes the trainer's of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from grposcope.core.errors import UserError
from grposcope.core.rollouts import Ints, Rollout, Text
from grposcope.instruments.offpolicy import read
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_batch import RolloutBatch
from grposcope.logs import read_rollouts
from grposcope.logs.rollout_columns import NAMES


def batches(path: Path, policy: Policy, prompts: int | None) -> list[RolloutBatch]:
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
