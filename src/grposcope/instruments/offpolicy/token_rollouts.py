"""Rollouts of a file as token ids, with the sampler's log-probabilities: what a checkpoint makes the trainer's of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from grposcope.core.errors import UserError
from grposcope.core.files import json_lines
from grposcope.instruments.offpolicy import read
from grposcope.lab.policies import Policy
from grposcope.lab.rollout_arrays import Rollouts
from grposcope.maths.importance import Floats

PROMPT = ("prompt_ids", "prompt_token_ids", "prompt_tokens")
COMPLETION = ("completion_ids", "completion_token_ids", "response_ids", "token_ids")
"""Names that a column of token ids may have; without one the texts `prompt` and `completion` are encoded."""


@dataclass(frozen=True)
class _Row:
    prompt: list[int]
    completion: list[int]
    logp: Floats
    reward: float
    group: str


def batches(path: Path, policy: Policy, prompts: int | None) -> list[Rollouts]:
    """The rollouts in batches of so many prompts, all in one by default; the rest that fills no batch is left out.

    UserError, with the line, for rows that lack a column or do not fit, and for groups of several sizes.
    """
    groups: dict[str, list[_Row]] = {}
    for line, row in json_lines(path):
        made = _row(row, policy, f"{path}, line {line}")
        groups.setdefault(made.group, []).append(made)
    sizes = {len(one) for one in groups.values()}
    if len(sizes) != 1 or min(sizes) < 2:
        raise UserError(
            f"{path}: groups have {', '.join(map(str, sorted(sizes))) or 'no'} rollouts; errors of the gradient need "
            "groups of one size, at least 2"
        )
    every, count = list(groups.values()), prompts or len(groups)
    if count > len(every):
        raise UserError(f"{path} has {len(every)} groups, fewer than a batch of {count}; use fewer prompts")
    return [_batch(every[start : start + count], policy) for start in range(0, len(every) - count + 1, count)]


def _row(row: Mapping[str, Any], policy: Policy, where: str) -> _Row:
    logp = read.log_probabilities(row, read.SAMPLER, where)
    completion = _ids(row, COMPLETION, "completion", policy, where)
    if len(completion) == len(logp) - 1:  # a text does not show the token that ended it
        completion = [*completion, int(policy.eos[0])]
    if len(completion) != len(logp) or not completion:
        raise UserError(
            f"{where}: {len(completion):,} tokens of the completion and {len(logp):,} log-probabilities of the "
            f"sampler; give the ids of the tokens that were drawn, as {COMPLETION[0]}"
        )
    group = next((str(row[name]) for name in read.GROUP if row.get(name) is not None), None)
    reward = read.number_in(row, ("reward",), where)
    if group is None or reward != reward:
        raise UserError(f"{where}: no {'group' if group is None else 'reward'}; errors of the gradient need both")
    return _Row(_ids(row, PROMPT, "prompt", policy, where), completion, logp, reward, group)


def _ids(row: Mapping[str, Any], names: Sequence[str], text: str, policy: Policy, where: str) -> list[int]:
    """Token ids under one of the names, or of the text."""
    name = next((name for name in names if row.get(name) is not None), None)
    if name is None and isinstance(row.get(text), str):
        return list(policy.tokenizer(row[text], add_special_tokens=text == "prompt").input_ids)
    given = row.get(name) if name is not None else None
    vocabulary = int(getattr(policy.model.config, "vocab_size", 0) or 2**31)
    if not isinstance(given, list) or not all(isinstance(one, int) and 0 <= one < vocabulary for one in given):
        raise UserError(
            f"{where}: no tokens of the {text}; give a list of ids of {policy.name}, as {names[0]}, or its plain text "
            f"as {text}"
        )
    return list(given)


def _batch(groups: Sequence[Sequence[_Row]], policy: Policy) -> Rollouts:
    """Groups of rows as a batch."""
    rows = [row for group in groups for row in group]
    before, after = max(len(row.prompt) for row in rows), max(len(row.completion) for row in rows)
    prompt_ids = torch.full((len(rows), before), policy.pad)
    tokens, logp = torch.full((len(rows), after), policy.pad), torch.zeros(len(rows), after, dtype=torch.float64)
    prompt_mask, mask = (torch.zeros(array.shape, dtype=torch.bool) for array in (prompt_ids, tokens))
    for i, row in enumerate(rows):
        start, end = before - len(row.prompt), len(row.completion)
        prompt_ids[i, start:], prompt_mask[i, start:] = torch.tensor(row.prompt), True
        tokens[i, :end], mask[i, :end], logp[i, :end] = torch.tensor(row.completion), True, torch.from_numpy(row.logp)
    rewards = torch.tensor([row.reward for row in rows], dtype=torch.float64).unflatten(0, (len(groups), -1))
    return Rollouts(
        prompt_ids, prompt_mask, tokens, mask, logp, torch.zeros_like(logp),
        torch.zeros(len(rows), dtype=torch.bool), rewards,
    ).to(policy.model.device)  # fmt: skip
